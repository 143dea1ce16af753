package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests drive the product over HTTP, with the wall, by other people's
// clients and by plain requests.

const (
	webToken      = "a-token-for-tests-0123456789"
	strangerToken = "a-strangers-token-0123456789"
)

const helloWeb = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// web is the product as an operator starts it.
type web struct {
	t   *testing.T
	cmd *exec.Cmd
	url string // without a path

	token string // of who asks

	mu     sync.Mutex
	stderr bytes.Buffer
}

// Write takes what the server logs.
func (w *web) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stderr.Write(b)
}

func (w *web) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stderr.String()
}

// startWeb starts it with tokens.
func startWeb(t *testing.T, args ...string) *web {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("tester:"+webToken+"\nstranger:"+strangerToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveWeb(t, append([]string{"--auth-token-file", tokens}, args...)...)
}

// serveWeb starts it, for whoever is on this machine unless tokens are asked for.
func serveWeb(t *testing.T, args ...string) *web {
	t.Helper()
	w := &web{t: t, token: webToken}
	w.cmd = exec.Command(binary(t), append([]string{"serve", "--transport", "http", "--listen", "127.0.0.1:0"}, args...)...)
	w.cmd.Stderr = w
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		if t.Failed() {
			t.Logf("%.20000s", w.logged())
		}
	})
	at := regexp.MustCompile(`url=(http://\S+)/mcp`)
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if m := at.FindStringSubmatch(w.logged()); m != nil {
			w.url = m[1]
			return w
		}
	}
	t.Fatalf("the server did not start:\n%s", w.logged())
	return nil
}

// stop ends the server, which must end in order.
func (w *web) stop() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("%v\n%s", err, w.logged())
	}
}

// post sends a call of revision 2026-07-28.
func (w *web) post(ctx context.Context, tool string, arguments map[string]any) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": arguments, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", w.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer " + w.token,
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	return http.DefaultClient.Do(r)
}

func (w *web) call(tool string, arguments map[string]any) reply {
	w.t.Helper()
	res, err := w.post(w.t.Context(), tool, arguments)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return structured(w.t, string(b))
}

func (w *web) python(session, code string) reply {
	w.t.Helper()
	arguments := map[string]any{"code": code}
	if session != "" {
		arguments["session_id"] = session
	}
	return w.call("execute_python", arguments)
}

func TestWebClients(t *testing.T) {
	const (
		node   = "MCP_SANDBOX_TEST_NODE"
		python = "MCP_SANDBOX_TEST_CLIENT_PYTHON"
		newer  = "MCP_SANDBOX_TEST_CLIENT_PYTHON_V2"
	)
	for _, test := range []struct {
		name        string
		interpreter string
		path        string
		argv        []string
	}{
		{"typescript sdk 1, http", node, "/mcp", []string{"sdk1.mjs"}},
		{"typescript sdk 1, sse", node, "/sse", []string{"sdk1.mjs"}},
		{"typescript client 2, http, legacy", node, "/mcp", []string{"sdk2.mjs", "legacy"}},
		{"typescript client 2, http, 2026-07-28", node, "/mcp", []string{"sdk2.mjs", "2026-07-28"}},
		{"typescript client 2, sse", node, "/sse", []string{"sdk2.mjs", "legacy"}},
		{"python mcp 1, http", python, "/mcp", []string{"mcp1.py"}},
		{"python mcp 1, sse", python, "/sse", []string{"mcp1.py"}},
		{"python mcp 2, http, legacy", newer, "/mcp", []string{"mcp2.py", "legacy"}},
		{"python mcp 2, http, auto", newer, "/mcp", []string{"mcp2.py", "auto"}},
		{"python mcp 2, sse", newer, "/sse", []string{"mcp2.py", "legacy"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			interpreter, dir, mark := installed(t, test.interpreter), scripts(t), mark()
			w := startWeb(t)
			argv := append([]string{interpreter, test.argv[0], w.url + test.path, mark}, test.argv[1:]...)
			out := run(t, dir, []string{"PYTHONDONTWRITEBYTECODE=1", "TOKEN=" + webToken}, argv...)
			var seen observed
			if err := json.Unmarshal([]byte(out), &seen); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			seen.check(t)
			w.stop()
			gone(t, mark)
		})
	}
}

// adapted is a call as an agent's framework gives it on.
type adapted struct {
	Report reply  `json:"report"`
	Text   string `json:"text"` // what the model reads
	Status string `json:"status"`
}

// An agent framework's adapter, whose default is a connection for each call.
func TestLangChain(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			python, dir, w := installed(t, "MCP_SANDBOX_TEST_CLIENT_PYTHON"), scripts(t), startWeb(t)
			env := []string{"PYTHONDONTWRITEBYTECODE=1", "LANGSMITH_TRACING=false", "TOKEN=" + webToken}
			out := run(t, dir, env, python, "langchain.py", w.url+path)
			var seen struct {
				Tools                                               []string
				First, Second, Failed, Shown, Command, Other, Named adapted
				Together                                            []adapted
			}
			if err := json.Unmarshal([]byte(out), &seen); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := strings.Join(seen.Tools, " "); got != "execute_cli execute_python reset_session" {
				t.Errorf("tools: %s", got)
			}
			seen.First.Report.expect(t, "x = 41", "new", "null")
			seen.Second.Report.expect(t, "x + 1", "kept", "42")
			seen.Shown.Report.expect(t, "what is shown", "kept", `"shown"`)
			for _, want := range []string{"printed", "warned", "shown"} {
				if !strings.Contains(seen.Shown.Text, want) {
					t.Errorf("the model does not read %q in %q", want, seen.Shown.Text)
				}
			}
			if f := seen.Failed; f.Status != "error" || !strings.Contains(f.Text, "ZeroDivisionError") {
				t.Errorf("1 / 0: %+v", f)
			}
			if c := seen.Command.Report; c.Stdout != "1\n2\n" || c.SessionID != seen.First.Report.SessionID {
				t.Errorf("a command over the file that code wrote: %+v", c)
			}
			seen.Other.Report.expect(t, "another call's variables", "new", "false")
			seen.Named.Report.expect(t, "y + 1, by the session's id", "kept", "2")
			for i, a := range seen.Together {
				a.Report.expect(t, "calls at once", "new", fmt.Sprint(i))
			}
			if len(seen.Together) != 4 {
				t.Errorf("%d calls at once", len(seen.Together))
			}
			w.stop()
		})
	}
}

// The Inspector's CLI over each transport and era.
func TestInspectorWeb(t *testing.T) {
	node, dir := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t)
	w := startWeb(t)
	env := []string{"HOME=" + t.TempDir()}
	for name, where := range map[string][]string{
		"sse":    {"--transport", "sse", "--server-url", w.url + "/sse"},
		"legacy": {"--transport", "http", "--server-url", w.url + "/mcp", "--protocol-era", "legacy"},
		"modern": {"--transport", "http", "--server-url", w.url + "/mcp", "--protocol-era", "modern"},
	} {
		inspector := append([]string{node, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli"}, where...)
		inspector = append(inspector, "--header", "Authorization: Bearer "+webToken, "--format", "json", "-q")
		out := run(t, dir, env, append(inspector, "--method", "tools/call", "--tool-name", "execute_python", "--tool-arg", "code=x = 41\nx + 1")...)
		t.Run(name, func(t *testing.T) { structured(t, out).expect(t, "x = 41; x + 1", "new", "42") })
		if out := run(t, dir, env, append(inspector, "--method", "tools/list", "--strict")...); !strings.Contains(out, "execute_python") {
			t.Errorf("%s: tools/list: %s", name, out)
		}
	}
}

// Clients without an id never see each other's variables or files, and each
// session's files lie in a folder of its own.
func TestWebStrangers(t *testing.T) {
	dir := t.TempDir()
	w := startWeb(t, "--workspace", dir)
	ids := map[string]bool{}
	for i := range 3 {
		r := w.python("", fmt.Sprintf("try: n += 1\nexcept NameError: n = %d\nimport os\nbefore = os.listdir()\n_ = open('mine.txt', 'w').write(str(n))\n[n, before]", i))
		if string(r.Output) != fmt.Sprintf("[%d, []]", i) && string(r.Output) != fmt.Sprintf("[%d,[]]", i) || ids[r.SessionID] {
			t.Errorf("client %d: %+v", i, r)
		}
		ids[r.SessionID] = true
		if b, err := os.ReadFile(filepath.Join(dir, r.SessionID, "mine.txt")); err != nil || string(b) != fmt.Sprint(i) {
			t.Errorf("client %d's file: %q, %v", i, b, err)
		}
		if again := w.python(r.SessionID, "n += 10\nn"); string(again.Output) != fmt.Sprint(i+10) || again.State != "kept" {
			t.Errorf("client %d by its id: %+v", i, again)
		}
		if c := w.call("execute_cli", map[string]any{"command": "ls && cat mine.txt", "session_id": r.SessionID}); c.Stdout != fmt.Sprintf("mine.txt\n%d", i) {
			t.Errorf("client %d's command: %+v", i, c)
		}
	}
	empty := w.python("", "1")
	w.stop()
	for id := range ids {
		if _, err := os.Stat(filepath.Join(dir, id, "mine.txt")); err != nil {
			t.Errorf("what was written is the operator's: %v", err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(ids) {
		t.Errorf("%v, %v; want the three that hold something, and not %s", left, err, empty.SessionID)
	}
}

// A client that goes away in the middle of a long loop frees the interpreter,
// whose variables are there for whoever holds the id.
func TestWebDisconnectFrees(t *testing.T) {
	w := startWeb(t, "--max-running", "1")
	id := w.python("", "n = 41").SessionID
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		res, err := w.post(ctx, "execute_python", map[string]any{"code": "import time\nbegun = True\nuntil = time.time() + 300\nwhile time.time() < until: pass", "timeout_s": 310, "session_id": id})
		if err == nil {
			res.Body.Close()
		}
		gone <- err
	}()
	time.Sleep(time.Second)
	if len(gone) > 0 {
		t.Fatalf("the loop ended: %v", <-gone)
	}
	cancel()
	<-gone
	begun := time.Now()
	r := w.python(id, "[n, begun]")
	took := time.Since(begun)
	if out := strings.ReplaceAll(string(r.Output), " ", ""); out != "[41,true]" || r.State != "kept" {
		t.Errorf("%+v", r)
	}
	if took > time.Second {
		t.Errorf("the interpreter was free after %v", took)
	}
	t.Logf("the next call was answered %v after the client had gone", took)
	if runtime.GOOS == "linux" && !strings.Contains(w.logged(), "status=cancelled") {
		t.Error("the call was not cancelled")
	}
}
