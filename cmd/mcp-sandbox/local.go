package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt"
)

// beChildVerb is the hidden first argument of the re-exec that becomes a wall.
const beChildVerb = "be-child"

// within is this binary as a part of a wall: a command that it is by its name, or
// the re-exec; or the keeper of an external server. ok is false for the product itself.
func within(argv []string, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool) {
	if code, ok := srt.Applet(argv, os.Environ(), stdin, stdout, stderr); ok {
		return code, true
	}
	if len(argv) > 1 && argv[1] == beChildVerb {
		return srt.BeChild(argv[2:]), true
	}
	if len(argv) > 1 && argv[1] == beUpstreamVerb {
		return beUpstream(argv[2:], stderr), true
	}
	return 0, false
}

// localConfig is what the local sandbox is to be.
type localConfig struct {
	wallFlags
	packageFlags
	warmFlags                 // the zero value keeps none ready
	workspace string          // host directory; "" = a temporary one for each session
	readOnly  bool            // the workspace can't be written
	apart     bool            // each session has a folder of its own in the workspace
	allow     *allowlist.List // commands beside the code; nil = none
	stateDir  string          // host directory in which sessions outlive the server; "" = they end with it
	log       *slog.Logger
	told      *slog.Logger // of the packages that are installed, line by line

	checkpoint string // always, idle, off; "" = always
}

// config is what the wall is told.
func (cfg localConfig) config() (srt.Config, error) {
	settings, err := cfg.settings()
	if err != nil {
		return srt.Config{}, err
	}
	c := srt.Config{
		Settings: settings,
		Wall:     cfg.Wall, Python: cfg.Python, Workspace: cfg.workspace, WorkspaceReadOnly: cfg.readOnly, WorkspaceApart: cfg.apart,
		StateDir: cfg.stateDir, Limits: cfg.limits(), Commands: cfg.allow, Log: cfg.log,
		Checkpoint: sandbox.Checkpoint(cfg.checkpoint),
		Warm:       cfg.Warm, Preload: cfg.Preload,
	}
	if c.Network, err = cfg.network(); err != nil {
		return c, err
	}
	for _, m := range cfg.Mount {
		c.Mounts = append(c.Mounts, srt.Mount{Host: m.host, Guest: m.guest, Writable: m.writable})
	}
	for _, e := range cfg.Env {
		c.Env = append(c.Env, string(e))
	}
	// A version manager's shim needs these to choose an interpreter.
	for _, name := range []string{"HOME", "PATH", "PYENV_ROOT", "PYENV_VERSION", "ASDF_DIR", "ASDF_DATA_DIR", "XDG_DATA_HOME"} {
		if v, ok := os.LookupEnv(name); ok {
			c.PythonEnv = append(c.PythonEnv, name+"="+v)
		}
	}
	return c, nil
}

func openLocal(ctx context.Context, cfg localConfig) (*local, error) {
	c, err := cfg.config()
	if err != nil {
		return nil, err
	}
	l, err := srt.New(ctx, c)
	if err != nil {
		return nil, err
	}
	python := l.Python()
	opened := &local{Sandbox: l, close: l.Close, contain: l.Contain, prove: l.Prove, ready: l.Ready, path: python.Path, python: python.Version, packages: python.Packages}
	opened.wall, opened.lesser, opened.places = l.Wall(), l.Lesser(), l.HostPaths()
	opened.tellCommands(l.Commands())
	return opened, nil
}

// tellCommands takes down what there is of the list, and what would help
// against what is not.
func (l *local) tellCommands(available []string, missing []srt.Missing) {
	l.commands = available
	var packages []string
	for _, m := range missing {
		l.lacking = append(l.lacking, m.String())
		if m.Package != "" {
			packages = append(packages, m.Package)
		}
	}
	if slices.Sort(packages); len(packages) > 0 {
		l.remedy = "apt install " + strings.Join(slices.Compact(packages), " ")
	}
}

// diagnose takes the remedy out of an error, if it holds one.
func diagnose(err error) (detail, remedy string) {
	var layer *srt.LayerError
	if !errors.As(err, &layer) || layer.Remedy == "" {
		return err.Error(), ""
	}
	return strings.Replace(err.Error(), " ("+layer.Remedy+")", "", 1), layer.Remedy
}
