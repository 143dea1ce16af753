package main_test

import (
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// environment points a server to the cluster, and gives it a place of its own to
// remember what it was.
func (c cluster) environment(t *testing.T) []string {
	return []string{"DATAROBOT_ENDPOINT=" + c.endpoint, "DATAROBOT_API_TOKEN=" + c.token, "XDG_CACHE_HOME=" + t.TempDir()}
}

// empty waits until nothing is left on the cluster.
func (c cluster) empty(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); c.left(t) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d workloads and artifacts are left", c.left(t))
		}
	}
}

// A session's Python runs where its first call has it, and nowhere else; commands
// see the same files.
func TestBackends(t *testing.T) {
	c := startCluster(t)
	w := newWire(t, binary(t), c.environment(t)...)
	w.send("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "t", "version": "0"}})
	if _, err := w.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	w.send("tools/list", map[string]any{})
	if list, err := w.out.ReadString('\n'); err != nil || !strings.Contains(list, `"enum":["workload","local"]`) || !strings.Contains(list, "execute_cli") {
		t.Errorf("%v: %s", err, list)
	}
	if r := w.python("x = 41\nopen('made.txt', 'w').write('from afar')"); r.Backend != "workload" || r.State != "new" {
		t.Errorf("%+v", r)
	}
	if r, _ := w.tool("execute_cli", map[string]any{"command": "cat made.txt"}); r.Stdout != "from afar" || r.Backend != "local" {
		t.Errorf("%+v", r)
	}
	if r := w.python("x + 1"); string(r.Output) != "42" || r.State != "kept" {
		t.Errorf("%+v", r)
	}
	if r, _ := w.tool("execute_python", map[string]any{"code": "x", "backend": "local"}); r.Status != "invalid" || !strings.Contains(r.Error, "workload") {
		t.Errorf("another backend in the same session: %+v", r)
	}
	if r, _ := w.tool("execute_python", map[string]any{"code": "x", "backend": "cloud"}); r.Status != "invalid" {
		t.Errorf("an unknown backend: %+v", r)
	}
	if r := w.python("x"); string(r.Output) != "41" {
		t.Errorf("%+v", r)
	}
	r, _ := w.tool("execute_python", map[string]any{"code": "'x' in globals()", "backend": "local", "session_id": "new"})
	if r.Backend != "local" || string(r.Output) != "false" {
		t.Errorf("%+v", r)
	}
	if r, _ := w.tool("execute_python", map[string]any{"code": "1", "session_id": r.SessionID}); r.Backend != "local" {
		t.Errorf("without a backend in a local session: %+v", r)
	}
	if r, _ := w.tool("reset_session", map[string]any{}); !r.Success {
		t.Errorf("%+v", r)
	}
	if r := w.python("'x' in globals()"); string(r.Output) != "false" || r.Backend != "workload" {
		t.Errorf("%+v", r)
	}
	w.end()
	c.empty(t)
}

// A remote session that nobody uses gives its container up: its files stay, and the
// next call is told what is lost.
func TestIdleRemoteSession(t *testing.T) {
	c := startCluster(t)
	w := newWire(t, binary(t), append(c.environment(t), "MCP_SANDBOX_SESSION_IDLE=2s")...)
	w.send("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "t", "version": "0"}})
	if _, err := w.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if r := w.python("x = 1\nopen('made.txt', 'w').write('kept')"); r.State != "new" || !r.Success {
		t.Fatalf("%+v", r)
	}
	c.empty(t) // the container is deleted
	if r := w.python("['x' in globals(), open('made.txt').read()]"); string(r.Output) != `[false,"kept"]` || r.State != "lost" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "not used for some time") {
		t.Errorf("%+v", r)
	}
	if r := w.python("'x' in globals()"); r.State != "kept" {
		t.Errorf("told again: %+v", r)
	}
	w.end()
	c.empty(t)
}

// What a server that is killed leaves on the cluster, the next one deletes.
func TestKilledServerLeavesNothingRemote(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := startCluster(t)
	env := c.environment(t)
	for _, mode := range []string{"session", "oneshot"} {
		for range 6 {
			w := newWire(t, binary(t), append(slices.Clone(env), "MCP_SANDBOX_WORKLOAD_MODE="+mode)...)
			w.send("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "t", "version": "0"}})
			w.send("tools/call", map[string]any{"name": "execute_python", "arguments": map[string]string{"code": "import time\ntime.sleep(60)"}})
			if _, err := w.out.ReadString('\n'); err != nil {
				t.Errorf("no answer to initialize: %v", err)
			}
			time.Sleep(mathrand.N(600 * time.Millisecond)) // the random moment, not a wait for something
			if err := w.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = w.cmd.Wait() // killed
		}
	}
	t.Logf("%d workloads and artifacts after the kills", c.left(t))
	w := newWire(t, binary(t), env...)
	defer w.end()
	c.empty(t)
}
