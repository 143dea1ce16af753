package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// webServer is the product over HTTP, with a scripted sandbox, as its operator
// starts it.
type webServer struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	stderr *journal
	client *http.Client
}

// journal is what a process logs, readable while it runs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// await waits until the log holds a pattern, and gives its first group.
func (j *journal) await(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m := re.FindStringSubmatch(j.String()); m != nil {
			return m[len(m)-1]
		}
	}
	t.Fatalf("never logged: %s\n%s", pattern, j)
	return ""
}

// startWeb starts fake-sandbox over HTTP, on a port of its own.
func startWeb(t *testing.T, args ...string) *webServer {
	t.Helper()
	s := &webServer{t: t, stderr: &journal{}}
	s.cmd = exec.Command("fake-sandbox", append([]string{"serve", "--transport", "http", "--listen", "127.0.0.1:0", "--log-level", "debug"}, args...)...)
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}, Timeout: time.Minute}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Logf("%.20000s", s.stderr)
		}
		if strings.Contains(s.stderr.String(), "panic") {
			t.Errorf("the server panicked:\n%s", s.stderr)
		}
	})
	s.url = strings.TrimSuffix(s.stderr.await(t, `serving MCP transport=http url=(\S+)`), "/mcp")
	return s
}

// stop ends the server as an operator does; it gives the exit code and how long
// that took.
func (s *webServer) stop() (int, time.Duration) {
	s.t.Helper()
	begun := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode(), time.Since(begun)
}

// answer is a response as these tests look at it.
type answer struct {
	status int
	header http.Header
	body   string
}

// header is name, value, name, value, …; a name that is there twice is sent twice.
type header []string

func (s *webServer) request(ctx context.Context, method, path string, h header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(h); i += 2 {
		if h[i] == "Host" {
			r.Host = h[i+1]
		}
		r.Header.Add(h[i], h[i+1])
	}
	return s.client.Do(r)
}

func (s *webServer) do(method, path string, h header, body string) answer {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	res, err := s.request(s.t.Context(), method, path, h, reader)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return answer{}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

var (
	asJSON = header{"Content-Type", "application/json"}
	both   = header{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
)

const helloWeb = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// legacy is a client of a revision with sessions.
type legacy struct {
	*webServer
	id    string
	extra header
}

func (s *webServer) legacy(extra ...string) *legacy {
	s.t.Helper()
	a := s.do("POST", "/mcp", append(append(header{}, both...), extra...), helloWeb)
	c := &legacy{s, a.header.Get("Mcp-Session-Id"), extra}
	if a.status != 200 || c.id == "" || !strings.Contains(a.body, `"protocolVersion":"2025-11-25"`) {
		s.t.Fatalf("initialize: %+v", a)
	}
	if a := s.do("POST", "/mcp", c.headers(asJSON), `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != 202 || a.body != "" {
		s.t.Errorf("initialized: %+v", a)
	}
	return c
}

func (c *legacy) headers(h header) header {
	return append(append(append(header{}, h...), "Mcp-Session-Id", c.id, "Mcp-Protocol-Version", "2025-11-25"), c.extra...)
}

func (c *legacy) run(code string) report {
	c.t.Helper()
	return read(c.t, c.do("POST", "/mcp", c.headers(asJSON), call(1, code)))
}

// modernCall is a call of revision 2026-07-28, with further arguments.
func modernCall(arguments map[string]any) string {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "execute_python", "arguments": arguments, "_meta": modernMeta,
	}})
	return string(b)
}

var modernMeta = map[string]any{
	"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
	"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "t", "version": "1"},
	"io.modelcontextprotocol/clientCapabilities": map[string]any{},
}

var modernHeaders = header{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "execute_python"}

func (s *webServer) modern(arguments map[string]any, extra ...string) report {
	s.t.Helper()
	return read(s.t, s.do("POST", "/mcp", append(append(append(header{}, both...), modernHeaders...), extra...), modernCall(arguments)))
}

// report is what a call told.
type report struct {
	Success   bool   `json:"success"`
	Status    string `json:"status"`
	State     string `json:"state"`
	Stdout    string `json:"stdout"`
	Error     string `json:"error"`
	SessionID string `json:"session_id"`
}

// read finds the report in an answer, be it JSON or events.
func read(t *testing.T, a answer) report {
	t.Helper()
	text := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		i := strings.LastIndex(text, "data: ")
		text = text[max(i, 0):]
		text = strings.TrimPrefix(text, "data: ")
	}
	var m struct {
		Result struct {
			StructuredContent *report
		}
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Result.StructuredContent == nil || a.status != 200 {
		t.Errorf("no result: %v: %+v", err, a)
		return report{}
	}
	return *m.Result.StructuredContent
}
