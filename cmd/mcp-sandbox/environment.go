package main

import (
	"encoding"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"mcp-sandbox/externals"
)

// envPrefix begins the name of every variable that stands for a flag.
const envPrefix = "MCP_SANDBOX_"

// checkEnvironment refuses a variable that stands for no flag: a limit that is
// misspelt would silently not hold. What Kubernetes sets for a service of our
// name, and what our tests use, is no mistake.
func checkEnvironment(environ []string, root *kong.Node) error {
	known := []string{envPrefix + "REQUIRE", envPrefix + "PROVE", envPrefix + "MOUNT", envPrefix + "ENV", externals.DepthVariable}
	_ = kong.Visit(root, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			known = append(known, f.Envs...)
		}
		return next(nil)
	})
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		switch {
		case !ours, slices.Contains(known, name), strings.HasPrefix(rest, "TEST_"), strings.HasPrefix(rest, "SERVICE_"), strings.HasPrefix(rest, "PORT_"):
		case rest == "PORT" && strings.Contains(value, "://"):
		default:
			return fmt.Errorf("%s is set in the environment, but there is no flag --%s", name, strings.ToLower(strings.ReplaceAll(rest, "_", "-")))
		}
	}
	return nil
}

// several gives a repeatable flag that was not given the lines of its variable.
func several[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](flag string, values *[]T) error {
	name := envPrefix + strings.ToUpper(flag)
	if len(*values) > 0 {
		return nil
	}
	for l := range strings.Lines(os.Getenv(name)) {
		if l = strings.TrimSpace(l); l == "" {
			continue
		}
		var v T
		if err := P(&v).UnmarshalText([]byte(l)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*values = append(*values, v)
	}
	return nil
}

// dropEmptyEnvironment takes an empty variable for one that is not set, as
// those who write container files mean it.
func dropEmptyEnvironment() {
	for _, e := range os.Environ() {
		if name, value, _ := strings.Cut(e, "="); value == "" && strings.HasPrefix(name, envPrefix) {
			os.Unsetenv(name)
		}
	}
}
