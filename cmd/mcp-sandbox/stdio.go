package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// eofHold is how long requests that were read before the end of input may
// still be answered: clients send SIGTERM two seconds after closing it.
const eofHold = 1500 * time.Millisecond

// stdio serves one client over two streams. Beyond what stream says of mcp-go's
// transports, its stdio server drops an unterminated last line, cancels what is
// under way at the end of input, and keeps its session in a package global.
type stdio struct {
	*stream
	in  io.Reader
	out io.Writer
}

func newStdio(s *server.MCPServer, in io.Reader, out io.Writer, log *slog.Logger) *stdio {
	return &stdio{stream: newStream(newPeer(s, log), "stdio"), in: in, out: out}
}

// stdioDoor is the one client that started us.
type stdioDoor struct {
	in  io.Reader
	out io.Writer
	log *slog.Logger
}

func (d stdioDoor) open(s *server.MCPServer, _ *sandbox.Sessions) (transport, []any, error) {
	return newStdio(s, d.in, d.out, d.log), []any{"transport", "stdio"}, nil
}

func (d stdioDoor) caller(ctx context.Context) sandbox.Caller { return hostCaller("stdio")(ctx) }
func (d stdioDoor) quotas() map[string]sandbox.Quota          { return nil }

// serve reads requests until the input or ctx ends. It returns when all have
// been answered, or with their contexts cancelled once eofHold is over; finish
// waits for the rest.
func (s *stdio) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	if err := s.server.RegisterSession(ctx, s.ear); err != nil {
		return err
	}
	defer s.server.UnregisterSession(context.WithoutCancel(ctx), s.ear.SessionID())
	go func() {
		if err := s.write(outlet{put: s.put}); err != nil {
			cancel(err)
		}
	}()
	read := make(chan line)
	ended := make(chan error, 1)
	go readLines(ctx, s.in, read, ended)
	for {
		select {
		case l := <-read:
			s.receive(ctx, l)
		case err := <-ended:
			s.hold(ctx)
			if err == io.EOF {
				err = nil
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put writes one message, a line.
func (s *stdio) put(b []byte) error {
	if _, err := s.out.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("the client can't be written to: %w", err)
	}
	return nil
}

// readLines ends with its input, or, as a read of a terminal or a pipe can't
// be interrupted, at the next line after ctx has ended.
func readLines(ctx context.Context, in io.Reader, read chan<- line, ended chan<- error) {
	for r := newLines(in); ; {
		l, err := r.next()
		if err != nil {
			ended <- err
			return
		}
		select {
		case read <- l:
		case <-ctx.Done():
			return
		}
	}
}

// hold waits for the answers to all that was read.
func (s *stdio) hold(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(eofHold):
	case <-ctx.Done():
	}
}
