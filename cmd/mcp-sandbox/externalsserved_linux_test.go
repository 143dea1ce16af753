package main_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// otherServer writes a file with one server: this very program, marked.
func otherServer(t testing.TB, mark string, args ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mcp.json")
	data, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"other": map[string]any{
		"command": "fake-sandbox", "args": append([]string{"serve", "--log-level", "error", "--env", "MARK=" + mark}, args...),
		"description": "A sandbox", "allowDestructive": true,
	}}})
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// bearing lists the processes that have the mark among their arguments.
func bearing(mark string) (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), mark) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

type externalReport struct {
	Result struct {
		Structured struct {
			Status string          `json:"status"`
			State  string          `json:"state"`
			Output json.RawMessage `json:"output"`
			Calls  []reportedCall  `json:"calls"`
		} `json:"structuredContent"`
		Content []struct{ Text string } `json:"content"`
		Tools   []struct{ Name, Description string }
	} `json:"result"`
}

type reportedCall struct {
	Name string
	OK   bool
}

func execute(code string) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{"name": "execute_python", "arguments": map[string]any{"code": code}}}
}

var hello = map[string]any{"jsonrpc": "2.0", "method": "initialize", "params": map[string]any{
	"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}}

func TestExternalsServed(t *testing.T) {
	t.Parallel()
	mark := rand.Text()
	file, audit := otherServer(t, mark), filepath.Join(t.TempDir(), "audit")
	p, err := startPeer(exec.Command("fake-sandbox", "serve", "--externals", file, "--audit-log", audit))
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	ask := func(request map[string]any) (r externalReport) {
		t.Helper()
		if err := p.ask(request, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	ask(hello)
	r := ask(execute(`external other execute_python {"code":"print hi"}`))
	if !strings.Contains(string(r.Result.Structured.Output), `"stdout":"hi\n"`) || len(r.Result.Structured.Calls) != 1 || !r.Result.Structured.Calls[0].OK ||
		!strings.Contains(r.Result.Content[0].Text, "calls: other.execute_python (ok, ") {
		t.Errorf("a call: %+v", r)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // no call waits for it
		line, err := os.ReadFile(audit)
		if err == nil && strings.Contains(string(line), `"externals":{"other.execute_python":1}`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the audit log: %s, %v", line, err)
		}
	}
	r = ask(map[string]any{"jsonrpc": "2.0", "method": "tools/list"})
	if d := r.Result.Tools[1].Description; r.Result.Tools[1].Name != "execute_python" || !strings.HasSuffix(d, "\n- other (A sandbox): execute_cli, execute_python, reset_session") {
		t.Errorf("%s: the description ends\n%s", r.Result.Tools[1].Name, d[max(0, len(d)-400):])
	}
	if len(bearing(mark)) == 0 {
		t.Fatal("no process bears the mark")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(bearing(mark)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after the server was killed: %q", bearing(mark))
		}
	}
}
