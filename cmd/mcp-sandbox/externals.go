package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"mcp-sandbox/externals"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
)

// externalsFlags say which other MCP servers' tools code may call.
type externalsFlags struct {
	Externals         string        `placeholder:"FILE" type:"path" help:"File of MCP servers ({\"mcpServers\": …}) whose tools code may call as externals.<server>.<tool>(…). They run outside the wall."`
	ExternalsMaxCalls int           `name:"externals-max-calls" default:"100" help:"External calls of one call of execute_python (${default})."`
	ExternalsMaxBytes size          `name:"externals-max-bytes" default:"64MiB" help:"Bytes of arguments and results of these together (${default})."`
	ExternalsMaxTime  time.Duration `name:"externals-max-time" default:"10m" help:"Time of these together, side by side ones each counted (${default})."`
	ExternalsTimeout  time.Duration `name:"externals-timeout" default:"60s" help:"Time limit of each external call (${default})."`

	servers []externals.Server // what the file says
}

func (f *externalsFlags) check() error {
	var errs []error
	if f.ExternalsMaxCalls <= 0 || f.ExternalsMaxBytes <= 0 || f.ExternalsMaxTime <= 0 || f.ExternalsTimeout <= 0 {
		errs = append(errs, errors.New("--externals-max-calls, --externals-max-bytes, --externals-max-time and --externals-timeout must be above 0"))
	} else if _, err := f.limits().Resolve(); err != nil {
		errs = append(errs, fmt.Errorf("--externals: %w", err))
	}
	if f.Externals != "" {
		servers, err := readServers(f.Externals)
		if err != nil {
			errs = append(errs, fmt.Errorf("--externals %s: %w", f.Externals, err))
		}
		f.servers = servers
	}
	return errors.Join(errs...)
}

func readServers(path string) ([]externals.Server, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the path is said already
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, externals.MaxFile+1))
	if err != nil {
		return nil, err
	}
	return externals.Parse(data, filepath.Dir(path), os.LookupEnv)
}

func (f externalsFlags) limits() sandbox.ExternalsLimits {
	return sandbox.ExternalsLimits{Calls: f.ExternalsMaxCalls, Bytes: int64(f.ExternalsMaxBytes), Time: f.ExternalsMaxTime, Timeout: f.ExternalsTimeout}
}

// errNoCarrier refuses what would fail at each call.
var errNoCarrier = errors.New("--externals: one-shot runs can't carry the calls: leave out --workload-mode oneshot, or run Python locally")

// open makes the client of the file's servers; nil = there is no file. Nothing is
// connected yet.
func (f externalsFlags) open(remote remoteFlags, log *slog.Logger) (*externals.Client, error) {
	if f.Externals == "" {
		return nil, nil
	}
	if remote.WorkloadMode == "oneshot" && remote.backend(false, slog.New(slog.DiscardHandler)) == sandbox.BackendWorkload {
		return nil, errNoCarrier
	}
	if info, err := os.Stat(f.Externals); err == nil && info.Mode().Perm()&0o044 != 0 {
		log.Warn("others on this machine can read the file of external servers: if it holds secrets, chmod 600 it, or write ${VAR}", "file", f.Externals)
	}
	above, err := nested()
	if err != nil {
		return nil, err
	}
	for _, s := range f.servers {
		attrs := []any{"server", s.Name, "by", s.Transport()}
		if s.AllowDestructive {
			log.Warn("code may call external tools that change things", append(attrs, "since", "allowDestructive")...)
			continue
		}
		log.Info("code may call external tools", attrs...)
	}
	return externals.New(externals.Config{
		Servers: f.servers, Start: startUpstream, Environ: upstreamEnvironment(), Depth: above, Version: buildVersion(), Log: log,
	})
}

// nested is how many servers of our kind have started this one as an upstream.
func nested() (int, error) {
	v := os.Getenv(externals.DepthVariable)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s must be a number; got %q", externals.DepthVariable, v)
	}
	return n, nil
}

// offer adds the servers to the tools.
func (f externalsFlags) offer(c *externals.Client, cfg *tools.Config) {
	if c != nil {
		cfg.Externals, cfg.ExternalsLimits, cfg.Learn = c, f.limits(), c.Learn
	}
}

// with has l close the servers too.
func (l *local) with(others *externals.Client) {
	closeLocal := l.close
	l.others, l.close = others, func() error { return errors.Join(closeExternals(others), closeLocal()) }
}

// closeExternals closes what may be nil.
func closeExternals(c *externals.Client) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// upstreamEnvironment is what programs can't do without, of our own environment.
func upstreamEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
