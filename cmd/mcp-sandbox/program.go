package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"mcp-sandbox/externals"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt"
	"mcp-sandbox/tools"
	"mcp-sandbox/workload"
)

// Exit codes besides those of a result.
const (
	exitOK     = 0
	exitFailed = 1 // the sandbox could not be raised, or the server ended in disorder
	exitUsage  = 2
)

// program is a run of the command: its streams, and where its sandbox comes
// from.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	open           func(context.Context, localConfig) (*local, error)
	environment    func(context.Context, localConfig) (python string, err error)
	facts          func() []srt.Fact // what this machine offers
	reach          func(context.Context, workload.Config) (workload.Account, error)
}

// local is the sandbox of this machine, and what descriptions tell of it.
type local struct {
	sandbox.Sandbox
	close    func() error
	contain  func(context.Context, srt.Program) (*srt.Contained, error) // behind the same wall
	prove    func(context.Context) ([]srt.Fact, error)                  // what is in force; nil = nobody knows
	wall     string                                                     // its name
	ready    func() int                                                 // interpreters that wait for sessions to come
	lesser   []string                                                   // what it gives less of than the native one
	places   bool                                                       // code finds things where the host has them
	path     string                                                     // of the interpreter
	python   string                                                     // its version
	packages []string                                                   // "name version"
	commands []string                                                   // that execute_cli can run, sorted
	lacking  []string                                                   // the others of its list, each with the reason
	remedy   string                                                     // against that; "" = none
	backends []string                                                   // where Python runs, the default first; nil = here alone
	remote   tools.Remote                                               // what it is that is not here
	others   *externals.Client                                          // whose tools code may call; nil = nobody's
}

func (p program) run(ctx context.Context, args []string) int {
	cli, command, code, done := p.parse(args)
	if done {
		return code
	}
	switch command {
	case "exec":
		return p.exec(ctx, cli)
	case "doctor":
		return p.doctor(ctx, cli)
	case "version":
		return p.version()
	case "workload-emulator":
		return p.emulate(ctx, cli)
	default:
		return p.serve(ctx, cli)
	}
}

// fail reports err in one line, and returns the exit code to end with.
func (p program) fail(code int, err error) int {
	fmt.Fprintf(p.stderr, "mcp-sandbox: %v\n", err)
	return code
}

// logger writes to stderr: stdout belongs to the protocol.
func (p program) logger(f logFlags, usual slog.Level) *slog.Logger {
	level := usual
	if f.LogLevel != "" {
		// the name has been checked with the flags
		_ = level.UnmarshalText([]byte(f.LogLevel))
	}
	if f.LogJSON {
		return slog.New(slog.NewJSONHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(p.stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !colourful(p.stderr)}))
}

// colourful reports whether w is a terminal whose user has not declined colours.
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
