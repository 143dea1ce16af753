package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/tools"
)

// client talks raw JSON-RPC to a server with a scripted sandbox, within this
// process.
type client struct {
	t        *testing.T
	in       *io.PipeWriter
	out      *bufio.Scanner
	fake     *sandboxtest.Fake
	sessions *sandbox.Sessions
	server   *stdio
	served   chan error
	stop     context.CancelFunc
}

func newClient(t *testing.T, maxRunning int) *client {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	fake := &sandboxtest.Fake{Script: (&fakePython{cfg: localConfig{log: log}}).run}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake, MaxRunning: maxRunning})
	if err != nil {
		t.Fatal(err)
	}
	kit, err := tools.New(tools.Config{Sessions: sessions, Caller: hostCaller("stdio"), Turn: waitTurn})
	if err != nil {
		t.Fatal(err)
	}
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	out := bufio.NewScanner(outRead)
	out.Buffer(nil, 1<<20)
	c := &client{
		t: t, in: inWrite, out: out, fake: fake, sessions: sessions,
		server: newStdio(kit.Server(), inRead, outWrite, log), served: make(chan error, 1), stop: stop,
	}
	go func() {
		err := c.server.serve(ctx)
		err = errors.Join(err, sessions.Close(), c.server.finish(context.WithoutCancel(ctx)))
		outWrite.Close()
		c.served <- err
	}()
	return c
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(c.in, l+"\n"); err != nil {
			c.t.Error(err)
		}
	}
}

// call is a tools/call of execute_python.
func call(id any, code string) string {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{
		"name": "execute_python", "arguments": map[string]any{"code": code}, "_meta": map[string]any{"progressToken": "p"},
	}})
	return string(b)
}

// calls is likewise, in a fresh session beside the connection's own.
func callNew(id any, code string) string {
	return strings.Replace(call(id, code), `"code"`, `"session_id":"new","code"`, 1)
}

const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%v}}`

// next reads one message and says it shortly: an id with a text, an error, or
// a notification's message.
func (c *client) next() string {
	c.t.Helper()
	if !c.out.Scan() {
		return "the end"
	}
	var m struct {
		ID     json.RawMessage
		Params struct{ Message string }
		Error  struct{ Message string }
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(c.out.Bytes(), &m); err != nil {
		c.t.Fatalf("%v: %s", err, c.out.Bytes())
	}
	switch {
	case m.ID == nil:
		return "progress " + strings.TrimSpace(m.Params.Message)
	case m.Error.Message != "":
		return fmt.Sprintf("%s error %s", m.ID, m.Error.Message)
	case len(m.Result.Content) > 0:
		first, _, _ := strings.Cut(m.Result.Content[0].Text, "\n")
		return fmt.Sprintf("%s %s", m.ID, first)
	}
	return string(m.ID)
}

func (c *client) expect(want ...string) {
	c.t.Helper()
	for _, w := range want {
		if got := c.next(); got != w {
			c.t.Errorf("got %q, want %q", got, w)
		}
	}
}

// end closes the input and expects nothing more.
func (c *client) end() {
	c.t.Helper()
	c.in.Close()
	c.expect("the end")
	if err := <-c.served; err != nil {
		c.t.Error(err)
	}
	if live := c.fake.Live(); len(live) > 0 {
		c.t.Errorf("sessions left: %v", live)
	}
}
