package externals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

const enough = 30 * time.Second // a limit against hanging tests alone

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func call(t testing.TB, c *Client, tool, arguments string) sandbox.ExternalResult {
	t.Helper()
	r, err := c.Call(within(t, enough), "fake", tool, json.RawMessage(arguments))
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// faulty checks why a call fails, and that the next one works.
func faulty(t testing.TB, c *Client, ctx context.Context, tool string, fault sandbox.ExternalFault, says string) {
	t.Helper()
	_, err := c.Call(ctx, "fake", tool, nil)
	var e *sandbox.ExternalError
	if !errors.As(err, &e) || e.Fault != fault || !strings.Contains(e.Text, says) {
		t.Errorf("%s: %v, want %s saying %q", tool, err, fault, says)
	}
	if r := call(t, c, "echo", `{"n":1}`); string(r.Value) != `{"got":{"n":1}}` {
		t.Errorf("after %s: %s", tool, r.Value)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "notes")
	c := open(t, Config{Servers: []Server{fake(t, "", "NOTES", notes)}, MaxReply: 4 << 20})
	if s := c.Servers(t.Context()); len(s) != 1 || s[0].Name != "fake" || s[0].Tools != nil || s[0].Revision != "" {
		t.Errorf("before any connection: %+v", s)
	}
	tools, err := c.Tools(within(t, enough), "fake")
	if err != nil || len(tools) != 14 || tools[0].Name != "echo" || !strings.Contains(string(tools[0].Input), `"x-kept":1`) {
		t.Fatalf("%d tools, %v: %+v", len(tools), err, tools)
	}
	if r := call(t, c, "exact", "{}"); string(r.Value) != `{"n":9007199254740993}` {
		t.Errorf("a large integer became %s", r.Value)
	}
	if r := call(t, c, "noise", "{}"); len(r.Content) != 1 || r.Content[0].Text != "after the noise" {
		t.Errorf("noise: %+v", r)
	}
	r := call(t, c, "content", "{}")
	if !r.IsError || len(r.Content) != 4 || string(r.Content[0].Data) != "\x89PNG" || r.Content[0].MIME != "image/png" || r.Content[0].Kind != sandbox.ExternalData ||
		r.Content[1].Kind != sandbox.ExternalLink || r.Content[1].URI != "file:///x" || r.Content[2].Text != "why" {
		t.Errorf("content: %+v", r)
	}
	if r := call(t, c, "fault", "{}"); !r.IsError || !strings.Contains(r.Content[0].Text, "bad key") {
		t.Errorf("fault: %+v", r)
	}
	faulty(t, c, within(t, enough), "huge", sandbox.ExternalUnavailable, "more than 4194304 bytes")
	faulty(t, c, within(t, enough), "destroy", sandbox.ExternalDenied, "allowDestructive")
	faulty(t, c, within(t, enough), "ech", sandbox.ExternalUnknown, "did you mean echo?")
	if call(t, c, "ask", "{}"); strings.Count(readNotes(t, notes, 3), "-32601") != 3 {
		t.Error("sampling, elicitation and roots are not all refused")
	}
	before := c.Servers(t.Context())[0]
	call(t, c, "change", "{}")
	call(t, c, "added", "{}")
	if after := c.Servers(t.Context())[0]; after.Revision == before.Revision || !slices.Contains(after.Tools, "added") || slices.Contains(after.Tools, "destroy") || strings.Contains(strings.Join(after.Tools, ","), " ") {
		t.Errorf("after the list changed: %+v, before: %+v", after, before)
	}
}

// readNotes waits for n lines of the fake's.
func readNotes(t testing.TB, name string, n int) string {
	t.Helper()
	for ctx := within(t, enough); ctx.Err() == nil; {
		if b, err := os.ReadFile(name); err == nil && strings.Count(string(b), "\n") >= n {
			return string(b)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Fatalf("the fake wrote no %d lines to %s", n, name)
	return ""
}

func TestCrashMalformed(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []Server{fake(t, "")}})
	faulty(t, c, within(t, enough), "crash", sandbox.ExternalUnavailable, "it has ended: exit status 3")
	faulty(t, c, within(t, enough), "malformed", sandbox.ExternalUnavailable, "not JSON-RPC")
	faulty(t, c, within(t, enough), "crash", sandbox.ExternalUnavailable, "it has ended: exit status 3")
}

func TestHangs(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "notes")
	c := open(t, Config{Servers: []Server{fake(t, "", "NOTES", notes)}})
	call(t, c, "echo", "{}")
	faulty(t, c, within(t, 500*time.Millisecond), "hang", sandbox.ExternalLate, "in its time")
	if said := readNotes(t, notes, 1); !strings.HasPrefix(said, "cancelled ") {
		t.Errorf("the fake saw %q", said)
	}
	// One whose process answers nothing any more is started anew.
	faulty(t, c, within(t, 500*time.Millisecond), "stuck", sandbox.ExternalLate, "in its time")

	// So is one for which code waited until it was interrupted.
	c = open(t, Config{Servers: []Server{fake(t, "", "NOTES", notes+"2")}, doubt: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Call(ctx, "fake", "stuck", nil)
		done <- err
	}()
	readNotes(t, notes+"2", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	call(t, c, "echo", "{}")
}

func TestStarts(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"slow", "strict"} {
		c := open(t, Config{Servers: []Server{fake(t, mode)}})
		if r := call(t, c, "echo", "{}"); string(r.Value) != `{"got":{}}` {
			t.Errorf("%s: %s", mode, r.Value)
		}
	}
	var log logged
	dead := fake(t, "dead", "API_KEY", "sk-1234567890")
	dead.secrets = []string{"sk-1234567890"}
	c := open(t, Config{Servers: []Server{dead}, Log: log.logger(slog.LevelDebug)})
	for range 4 {
		_, err := c.Call(within(t, enough), "fake", "echo", nil)
		if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no licence for [redacted]") {
			t.Errorf("dead: %v", err)
		}
	}
	u := c.upstreams[0]
	u.mu.Lock()
	gap := time.Until(u.next)
	u.mu.Unlock()
	if gap <= 0 || u.failures != 4 {
		t.Errorf("after %d failures the next attempt is in %v", u.failures, gap)
	}
	if strings.Contains(log.String(), "sk-1234567890") {
		t.Errorf("the log holds the secret:\n%s", &log)
	}

	c = open(t, Config{Servers: []Server{fake(t, "silent")}, StartTimeout: 200 * time.Millisecond})
	if _, err := c.Call(within(t, enough), "fake", "echo", nil); err == nil || !strings.Contains(err.Error(), "did not start within 200ms") {
		t.Errorf("silent: %v", err)
	}
	c = open(t, Config{Servers: []Server{fake(t, "ancient")}})
	if _, err := c.Tools(within(t, enough), "fake"); err == nil || !strings.Contains(err.Error(), "1999-12-31") {
		t.Errorf("ancient: %v", err)
	}
	c = open(t, Config{Servers: []Server{fake(t, "circular")}})
	if _, err := c.Tools(within(t, enough), "fake"); err == nil || !strings.Contains(err.Error(), "circles") {
		t.Errorf("circular: %v", err)
	}
	c = open(t, Config{Servers: []Server{{Name: "fake", Command: "/nonexistent/server"}}})
	if _, err := c.Tools(within(t, enough), "fake"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no command: %v", err)
	}
}

func TestSecretsOfAServer(t *testing.T) {
	t.Parallel()
	const key = "s3cr3t/with+odd=signs"
	server := fake(t, "", "API_KEY", key)
	server.secrets = []string{key}
	c := open(t, Config{Servers: []Server{server}})
	for _, tool := range []string{"leak", "fault"} {
		r := call(t, c, tool, "{}")
		if said, _ := json.Marshal(r); strings.Contains(string(said), "s3cr3t") || !strings.Contains(string(said), redacted) {
			t.Errorf("%s: %s", tool, said)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	server := fake(t, "")
	server.Allow, server.Deny, server.AllowDestructive = []string{"e*", "destroy"}, []string{"ex?ct"}, true
	c := open(t, Config{Servers: []Server{server}})
	c.Learn(within(t, enough))
	if got := c.Servers(t.Context())[0].Tools; !slices.Equal(got, []string{"echo", "destroy"}) {
		t.Errorf("allowed are %v", got)
	}
	call(t, c, "destroy", "{}")
	faulty(t, c, within(t, enough), "exact", sandbox.ExternalDenied, "denies it")
	faulty(t, c, within(t, enough), "leak", sandbox.ExternalDenied, "not among the tools")
	if _, err := c.Call(t.Context(), "other", "echo", nil); err == nil || !strings.Contains(err.Error(), `there is no server "other"; there are fake`) {
		t.Errorf("another server: %v", err)
	}
}

func TestNested(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Client{
		"below another": open(t, Config{Servers: []Server{fake(t, "")}, Depth: 1}),
		"asked by one":  open(t, Config{Servers: []Server{fake(t, "")}}),
	} {
		ctx := within(t, enough)
		if name == "asked by one" {
			ctx = WithDepth(ctx, 1)
		}
		c.Learn(ctx)
		_, err := c.Call(ctx, "fake", "echo", nil)
		var e *sandbox.ExternalError
		if !errors.As(err, &e) || e.Fault != sandbox.ExternalDenied || c.upstreams[0].conn != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []Server{fake(t, "")}})
	call(t, c, "echo", "{}")
	process := c.upstreams[0].conn.link.(*pipe).process.(*child)
	done := make(chan error)
	go func() {
		_, err := c.Call(context.Background(), "fake", "hang", nil)
		done <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-process.gone:
	default:
		t.Error("the child outlives Close")
	}
	if err := <-done; err == nil {
		t.Error("a call succeeded")
	}
	if _, err := c.Call(t.Context(), "fake", "echo", nil); err == nil {
		t.Error("a closed client calls")
	}
}

// Learning under a context that is over begins, and does not wait.
func TestLearnBegins(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []Server{fake(t, "silent")}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Learn(ctx)
	u := c.upstreams[0]
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dialing == nil {
		t.Error("nothing is begun")
	}
}

// Calls run side by side, and each gets its own answer, also while others are given up.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []Server{fake(t, "")}})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 10 {
				if i%4 == 0 {
					_, _ = c.Call(within(t, time.Millisecond), "fake", "hang", nil)
				}
				n := fmt.Sprintf(`{"n":%d}`, 100*i+j)
				r, err := c.Call(within(t, enough), "fake", "echo", json.RawMessage(n))
				if err != nil || string(r.Value) != `{"got":`+n+`}` {
					t.Errorf("%s: %s, %v", n, r.Value, err)
				}
			}
		})
	}
	wg.Wait()
}
