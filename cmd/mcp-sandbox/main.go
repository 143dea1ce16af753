// Command mcp-sandbox is an MCP server whose execute_python runs in one live
// Python behind an OS sandbox. Everything it can be told is a flag, each with
// an environment variable; see mcp-sandbox --help.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"mcp-sandbox/srt"
	"mcp-sandbox/workload"
)

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program; argv[0] is its name, and it returns the exit code.
// What this binary is within a wall comes first: its start is part of every
// command's and every session's.
func run(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := within(argv, stdin, stdout, stderr); ok {
		return code
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	p := program{stdin: stdin, stdout: stdout, stderr: stderr, open: openLocal, environment: makeEnvironment, facts: srt.Facts, reach: workload.Reach}
	return p.run(ctx, argv[min(1, len(argv)):])
}

// untilSignal derives a context that the first SIGINT, SIGTERM or SIGHUP ends; a second
// one kills as ever. A client that closes our stdout must not kill us before
// the sessions are closed, so SIGPIPE is caught, and the write fails instead;
// unlike an ignored signal, a caught one is not inherited by children.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
