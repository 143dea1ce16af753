package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"
)

// size is a number of bytes: 512MiB, 2GB, 1048576.
type size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *size) UnmarshalText(b []byte) error {
	n, err := humanize.ParseBytes(string(b))
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("expected a size such as 512MiB but got %q", b)
	}
	*s = size(n)
	return nil
}

// mount is a host directory and where code sees it.
type mount struct {
	host, guest string
	writable    bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *mount) UnmarshalText(b []byte) error {
	parts := strings.Split(string(b), ":")
	mode := "ro"
	if len(parts) == 3 {
		mode = parts[2]
	}
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !path.IsAbs(parts[1]) || mode != "ro" && mode != "rw" {
		return fmt.Errorf("expected SRC:DST or SRC:DST:rw, with DST absolute, but got %q", b)
	}
	host, err := filepath.Abs(parts[0])
	if err != nil {
		return err
	}
	*m = mount{host: host, guest: path.Clean(parts[1]), writable: mode == "rw"}
	return nil
}

func (m mount) String() string {
	if m.writable {
		return m.guest + " (writable)"
	}
	return m.guest + " (read-only)"
}

// env is NAME=VALUE for the guest's environment.
type env string

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *env) UnmarshalText(b []byte) error {
	name, _, given := strings.Cut(string(b), "=")
	if name == "" || strings.ContainsAny(name, " \t\n\x00") {
		return fmt.Errorf("expected NAME or NAME=VALUE but got %q", b)
	}
	if given {
		*e = env(b)
		return nil
	}
	value, ok := os.LookupEnv(name)
	if !ok {
		return fmt.Errorf("%s is not set in this environment: give NAME=VALUE", name)
	}
	*e = env(name + "=" + value)
	return nil
}

// names are separated by commas. An empty value is a fault: it may be meant as
// none of them, and would otherwise be as if the flag had not been given.
type names []string

// Decode implements kong.MapperValue.
func (n *names) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("NAME,...", &text); err != nil {
		return err
	}
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			err := fmt.Errorf("expected names separated by commas but got %q", text)
			if ctx.Value.Name == "cli-allow" {
				err = fmt.Errorf("%w; to offer no commands at all, give --cli-allow %s", err, noCommands)
			}
			return err
		}
		*n = append(*n, name)
	}
	return nil
}
