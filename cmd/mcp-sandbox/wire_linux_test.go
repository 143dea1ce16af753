package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// wire is the product as a client starts it, spoken to in raw JSON-RPC, one
// request at a time.
type wire struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	id     int
}

func newWire(t *testing.T, server string, env ...string) *wire {
	t.Helper()
	w := &wire{t: t, cmd: exec.Command(server, "serve", "--log-level", "warn")}
	w.cmd.Env = append(os.Environ(), env...)
	w.cmd.Stderr = &w.stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewReader(stdout)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	return w
}

func (w *wire) send(method string, params any) {
	w.t.Helper()
	w.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": w.id, "method": method, "params": params})
	if err == nil {
		_, err = w.in.Write(append(b, '\n'))
	}
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.stderr.String())
	}
}

// tool calls one, and gives what it reports and how long it took.
func (w *wire) tool(name string, arguments map[string]any) (reply, time.Duration) {
	w.t.Helper()
	start := time.Now()
	w.send("tools/call", map[string]any{"name": name, "arguments": arguments})
	l, err := w.out.ReadString('\n')
	took := time.Since(start)
	if err != nil {
		_ = w.cmd.Wait()
		w.t.Fatalf("%v\n%s", err, w.stderr.String())
	}
	return structured(w.t, l), took
}

func (w *wire) python(code string) reply {
	w.t.Helper()
	r, _ := w.tool("execute_python", map[string]any{"code": code, "timeout_s": 120})
	if !r.Success {
		w.t.Fatalf("%s: %+v", code, r)
	}
	return r
}

// end closes the input, and expects the server to end in order.
func (w *wire) end() {
	w.t.Helper()
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("%v\n%s", err, w.stderr.String())
	}
}

// memory is a line of the server's /proc/PID/status, in bytes.
func (w *wire) memory(name string) int64 {
	w.t.Helper()
	return kilobytes(w.t, fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid), name+":")
}

// processes are the server's descendants.
func (w *wire) processes() int {
	w.t.Helper()
	return len(family(w.t, w.cmd.Process.Pid)) - 1
}
