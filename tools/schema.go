package tools

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

// The tools' names.
const (
	executePython = "execute_python"
	executeCLI    = "execute_cli"
	resetSession  = "reset_session"
)

// schemas are written by hand: schemas made from Go types know no limits and
// hold null-unions, which strict clients refuse. ${…} stands for a value of
// the operator's.
//
//go:embed schema
var schemas embed.FS

// describe makes the tools as this operator's clients are to see them.
func describe(cfg Config) ([]mcp.Tool, error) {
	fill := strings.NewReplacer(
		`"${timeout_s}"`, number(cfg.Timeout.Seconds()),
		`"${max_timeout_s}"`, number(cfg.MaxTimeout.Seconds()),
		"${timeout}", span(cfg.Timeout),
		"${max_timeout}", span(cfg.MaxTimeout),
		"${idle}", span(cfg.Idle),
		"${max_age}", span(cfg.MaxAge),
		"${python}", strings.TrimSpace("Python "+cfg.Python),
		"${packages}", packages(cfg.Packages),
		"${preloaded}", preloaded(cfg.Preloaded),
		"${sessions}", cfg.describeSessions(),
		"${own}", cfg.describeOwn(),
		"${at}", cfg.at(),
		"${workspace}", cfg.Workspace.describe(cfg.Mounts),
		"${network}", cfg.describeNetwork(),
		"${commands}", strings.Join(cfg.Commands, " "),
		"${operators}", cfg.quoting(),
		"${readable}", readable(cfg.Mounts),
		",\n    \"${backend}\": {}", cfg.backendProperty(),
		"${image}", cfg.Remote.Image,
		"${memory_of_calls}", cfg.Remote.describeState(),
	)
	var defs []mcp.Tool
	for _, d := range []struct {
		name, title                       string
		readOnly, destructive, idempotent bool
	}{
		{executePython, "Run Python", false, true, false},
		{executeCLI, "Run read-only commands", true, false, true},
		{resetSession, "Reset the Python session", false, true, true},
	} {
		if d.name == executeCLI && cfg.Allow == nil {
			continue
		}
		input, err := schema(d.name+".json", fill)
		if err != nil {
			return nil, err
		}
		output, err := schema("result.json", fill)
		if err != nil {
			return nil, err
		}
		text, err := cfg.text(d.name)
		if err != nil {
			return nil, err
		}
		// A remote one's network is the cluster's.
		open := d.name == executePython && (len(cfg.Network) > 0 || cfg.Externals != nil || slices.Contains(cfg.Backends, sandbox.BackendWorkload))
		defs = append(defs, mcp.Tool{
			Name: d.name, Title: d.title,
			Description:    strings.TrimSpace(fill.Replace(text)),
			RawInputSchema: input, RawOutputSchema: output,
			Annotations: mcp.ToolAnnotation{
				Title: d.title, ReadOnlyHint: &d.readOnly, OpenWorldHint: &open,
				DestructiveHint: &d.destructive, IdempotentHint: &d.idempotent,
			},
		})
	}
	return defs, nil
}

func schema(file string, fill *strings.Replacer) (json.RawMessage, error) {
	b, err := schemas.ReadFile("schema/" + file)
	if err != nil {
		return nil, err
	}
	filled := json.RawMessage(fill.Replace(string(b)))
	if !json.Valid(filled) {
		return nil, fmt.Errorf("schema/%s is not JSON", file)
	}
	return filled, nil
}

// packages is what a model may import, of distributions given as "name version".
func packages(installed []string) string {
	const most = 12
	wanted := slices.DeleteFunc(slices.Clone(installed), func(p string) bool {
		return slices.Contains([]string{"pip", "setuptools", "wheel"}, name(p))
	})
	if len(wanted) == 0 {
		return ": the standard library alone"
	}
	for i, p := range wanted {
		wanted[i] = release(p)
	}
	all := len(wanted)
	if all > most { // those that models know come first
		slices.SortStableFunc(wanted, func(a, b string) int { return rank(a) - rank(b) })
		wanted = wanted[:most]
	}
	s := " besides the standard library: " + strings.Join(wanted, ", ")
	if all > most {
		s += fmt.Sprintf(", and %d more", all-most)
	}
	return s
}

// preloaded is what costs a new session no time to import.
func preloaded(modules []string) string {
	if len(modules) == 0 {
		return ""
	}
	return " Imported ahead: " + strings.Join(modules, ", ") + "."
}

// release is a distribution with as much of its version as decides how it is used.
func release(distribution string) string {
	name, version, _ := strings.Cut(distribution, " ")
	numbers := strings.SplitN(version, ".", 3)
	return strings.TrimSpace(name + " " + strings.Join(numbers[:min(2, len(numbers))], "."))
}

func name(distribution string) string {
	name, _, _ := strings.Cut(distribution, " ")
	return strings.ToLower(name)
}

// rank orders distributions by how likely a model is to want them.
func rank(distribution string) int {
	known := []string{
		"numpy", "pandas", "matplotlib", "scipy", "scikit-learn", "polars", "pyarrow", "pillow", "seaborn", "plotly",
		"statsmodels", "sympy", "networkx", "openpyxl", "duckdb", "sqlalchemy", "requests", "beautifulsoup4", "lxml", "pyyaml",
		"torch", "xgboost", "lightgbm", "tqdm", "python-dateutil",
	}
	if i := slices.Index(known, name(distribution)); i >= 0 {
		return i
	}
	return len(known)
}

func (w Workspace) describe(mounts []string) string {
	s := map[Workspace]string{
		Private: ", the session's own; files there last as long as the session",
		Shared:  ", the user's directory, writable",
		Folder:  ", the session's own",
	}[w]
	if len(mounts) > 0 {
		s += ". Also there: " + strings.Join(mounts, ", ")
	}
	return s
}

// describeNetwork tells a model what its code can reach, and how.
func (c Config) describeNetwork() string {
	const most = 12
	if len(c.Network) == 0 {
		return "none; nothing can be installed"
	}
	hosts := strings.Join(c.Network[:min(len(c.Network), most)], ", ")
	if more := len(c.Network) - most; more > 0 {
		hosts += fmt.Sprintf(" and %d more", more)
	}
	return hosts + ", and no other hosts; through the proxy that HTTP_PROXY and HTTPS_PROXY name, as urllib, requests, curl and pip (install --target) do by themselves. No DNS, no direct connections"
}

// at is what the descriptions call the workspace.
func (c Config) at() string {
	if c.HostPaths {
		return "the workspace"
	}
	return "/workspace"
}

// describeSessions tells a model how calls come to share their variables.
func (c Config) describeSessions() string {
	if c.Handles {
		return "pass a result's `session_id` with the next call to go on there; without it that may start in a fresh one"
	}
	return "this connection has its own; the result's `session_id` addresses it from elsewhere"
}

// describeOwn is what a call without a session_id gets.
func (c Config) describeOwn() string {
	if c.Handles {
		return "Without it: this connection's own, or, where it has none, a fresh one"
	}
	return "Without it: this connection's own"
}

// span is a duration as people write it: 90 s, 30 min, 24 h.
func span(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d > 10*time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return number(d.Seconds()) + " s"
	}
}
