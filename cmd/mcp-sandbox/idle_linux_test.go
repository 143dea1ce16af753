package main_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// emptied waits until the server has ended all processes of its sessions.
func (w *wire) emptied() {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.processes() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d processes are left", w.processes())
		}
	}
}

// What runs in the background is no activity: at --session-idle it ends with the
// interpreter, and the next call is told so.
func TestIdleEndsBackground(t *testing.T) {
	t.Parallel()
	w := newWire(t, binary(t), "MCP_SANDBOX_SESSION_IDLE=300ms", "MCP_SANDBOX_WARM=0")
	w.python(`
import subprocess, threading, time
def tick():
    while True:
        with open('ticks', 'a') as f: f.write('x')
        time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
subprocess.Popen(['sleep', '1000'])
while True:
    try:
        if open('ticks').read(): break
    except FileNotFoundError: time.sleep(0.01)
kept = 5`)
	w.emptied()
	r := w.python("import os\nbefore = os.path.getsize('ticks')\ntime.sleep(0.3)\n[kept, os.path.getsize('ticks') - before, threading.active_count()]")
	notes := strings.Join(r.Notes, "\n")
	if r.State != "restored" || string(r.Output) != "[5,0,1]" {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"the session was idle and its interpreter was ended", "not kept: 1 thread, 1 child process"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %s", want, notes)
		}
	}
	w.end()
}

// Beyond --max-hibernated the session that was unused for longest ends.
func TestMaxHibernated(t *testing.T) {
	t.Parallel()
	w := newWire(t, binary(t), "MCP_SANDBOX_SESSION_IDLE=300ms", "MCP_SANDBOX_WARM=0", "MCP_SANDBOX_MAX_HIBERNATED=1")
	open := func(code string) string {
		r, _ := w.tool("execute_python", map[string]any{"code": code, "session_id": "new"})
		w.emptied()
		return r.SessionID
	}
	first, second := open("x = 1"), open("x = 2")
	if r, _ := w.tool("execute_python", map[string]any{"code": "x", "session_id": first}); !strings.Contains(r.Error, "unknown session") {
		t.Errorf("the first: %+v", r)
	}
	if r, _ := w.tool("execute_python", map[string]any{"code": "x", "session_id": second}); r.State != "restored" || string(r.Output) != "2" {
		t.Errorf("the second: %+v", r)
	}
	w.end()
}

// Of what was too long for results a session keeps so much, and the newest.
func TestMaxOutput(t *testing.T) {
	t.Parallel()
	p := over(t, "2025-06-18", "--max-output", "1MiB")
	var rest []string
	for _, code := range []string{"print('a' * 700_000)", "print('b' * 700_000)"} {
		rest = append(rest, python(t, p, code).Result.StructuredContent.Truncated.Stdout.Rest)
	}
	if a := resource(t, p, rest[0]); !strings.Contains(a.Error.Message, "may take 1 MiB together") {
		t.Errorf("the first: %+v", a)
	}
	if all, _ := pages(t, p, rest[1]); string(all) != strings.Repeat("b", 700_000)+"\n" {
		t.Errorf("the second: %d bytes", len(all))
	}
}

// A megabyte on stderr, and nothing on stdout, of code and of a command.
func TestStderrAlone(t *testing.T) {
	t.Parallel()
	p := over(t, "2025-06-18")
	code := python(t, p, "import sys\nsys.stderr.write('e' * 1_000_000 + 'END'); None")
	var command called
	err := p.ask(map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{
		"name": "execute_cli", "arguments": map[string]any{"command": "jq -n 'range(200000)|stderr|empty'"}}}, &command)
	if err != nil {
		t.Fatal(err)
	}
	var counted strings.Builder
	for i := range 200_000 {
		counted.WriteString(strconv.Itoa(i))
	}
	for name, c := range map[string]struct {
		got  called
		want string
	}{"code": {code, strings.Repeat("e", 1_000_000) + "END"}, "command": {command, counted.String()}} {
		r := c.got.Result.StructuredContent
		if r.Stdout != "" || r.Status != "ok" || len(r.Stderr) > 21_000 || r.Stderr[:100] != c.want[:100] {
			t.Errorf("%s: %s, stdout %q, %d bytes on stderr: %.200s", name, r.Status, r.Stdout, len(r.Stderr), r.Stderr)
		}
		links := c.got.links()
		if len(links) != 1 {
			t.Fatalf("%s: %q", name, links)
		}
		if all, _ := pages(t, p, links[0]); string(all) != c.want {
			t.Errorf("%s: %d bytes were kept of %d", name, len(all), len(c.want))
		}
	}
}
