package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLegacySessions(t *testing.T) {
	s := startWeb(t)
	a, b := s.legacy(), s.legacy()
	first := a.run("print 1")
	if !first.Success || first.State != "new" || first.Stdout != "1\n" || first.SessionID == "" || first.SessionID == a.id {
		t.Errorf("a's first: %+v", first)
	}
	if r := a.run("print 2"); r.State != "kept" || r.SessionID != first.SessionID {
		t.Errorf("a's second: %+v", r)
	}
	if r := b.run("print 3"); r.State != "new" || r.SessionID == first.SessionID {
		t.Errorf("b's first: %+v", r)
	}
	if x := s.do("POST", "/mcp/", a.headers(asJSON), `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`); !strings.Contains(x.body, "execute_python") || strings.Contains(x.body, "${") {
		t.Errorf("tools/list at /mcp/: %+v", x)
	}

	for name, test := range map[string]struct {
		headers header
		body    string
		status  int
		says    string
	}{
		"no session":         {asJSON, call(1, "print"), 400, "send initialize first"},
		"an unknown one":     {append(asJSON[:2:2], "Mcp-Session-Id", "11111111-1111-4111-8111-111111111111"), call(1, "print"), 404, "unknown session"},
		"no id at all":       {append(asJSON[:2:2], "Mcp-Session-Id", "x y"), call(1, "print"), 404, "unknown session"},
		"a revision to come": {append(asJSON[:2:2], "Mcp-Session-Id", a.id, "Mcp-Protocol-Version", "1999-01-01"), call(1, "print"), 400, "unsupported protocol version"},
		"an answer":          {a.headers(asJSON), `{"jsonrpc":"2.0","id":1,"result":{}}`, 202, ""},
		"a notification":     {a.headers(asJSON), `{"jsonrpc":"2.0","method":"notifications/whatever"}`, 202, ""},
	} {
		if x := s.do("POST", "/mcp", test.headers, test.body); x.status != test.status || !strings.Contains(x.body, test.says) {
			t.Errorf("%s: %+v", name, x)
		}
	}

	if x := s.do("DELETE", "/mcp", a.headers(nil), ""); x.status != 204 {
		t.Errorf("DELETE: %+v", x)
	}
	s.stderr.await(t, "session ended session="+first.SessionID)
	if x := s.do("POST", "/mcp", a.headers(asJSON), call(1, "print")); x.status != 404 {
		t.Errorf("after DELETE: %+v", x)
	}
	if x := s.do("DELETE", "/mcp", a.headers(nil), ""); x.status != 404 {
		t.Errorf("DELETE again: %+v", x)
	}
	if x := s.do("GET", "/mcp", header{"Accept", "text/event-stream"}, ""); x.status != 405 || x.header.Get("Allow") == "" {
		t.Errorf("GET: %+v", x)
	}
	if r := b.run("print 4"); r.State != "kept" {
		t.Errorf("b after a's end: %+v", r)
	}
}

// Modern requests have no session but what they name: clients without an id
// never share one.
func TestModernClientsShareNothing(t *testing.T) {
	s := startWeb(t)
	seen := map[string]bool{}
	for range 3 {
		r := s.modern(map[string]any{"code": "print 1"})
		if !r.Success || r.State != "new" || r.SessionID == "" || seen[r.SessionID] {
			t.Errorf("%+v", r)
		}
		seen[r.SessionID] = true
		if r := s.modern(map[string]any{"code": "print 2", "session_id": r.SessionID}); r.State != "kept" {
			t.Errorf("by its id: %+v", r)
		}
	}
	// An Mcp-Session-Id means nothing there, and none is given.
	old := s.legacy()
	old.run("print 0")
	a := s.do("POST", "/mcp", append(append(both[:4:4], modernHeaders...), "Mcp-Session-Id", old.id), modernCall(map[string]any{"code": "print 1"}))
	if r := read(t, a); r.State != "new" || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("with a legacy session's header: %+v", a)
	}
	for _, id := range []string{"nonsense", "11111111-1111-4111-8111-111111111111"} {
		if r := s.modern(map[string]any{"code": "print 1", "session_id": id}); r.Success || !strings.Contains(r.Error, "unknown session") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	reset := strings.Replace(modernCall(map[string]any{}), "execute_python", "reset_session", 1)
	if r := read(t, s.do("POST", "/mcp", append(both[:4:4], "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "reset_session"), reset)); r.Success || !strings.Contains(r.Error, "`session_id` is required") {
		t.Errorf("reset of nothing: %+v", r)
	}
}

func TestModernHeaders(t *testing.T) {
	s := startWeb(t)
	good := modernCall(map[string]any{"code": "print 1"})
	with := func(changes ...string) header {
		h := append(append(header{}, both...), modernHeaders...)
		for i := 0; i < len(changes); i += 2 {
			for j := 0; j < len(h); j += 2 {
				if h[j] == changes[i] {
					h = append(h[:j], h[j+2:]...)
					break
				}
			}
			if changes[i+1] != "" {
				h = append(h, changes[i], changes[i+1])
			}
		}
		return h
	}
	for name, test := range map[string]struct {
		headers header
		body    string
		status  int
		says    string
	}{
		"as it should be":          {with(), good, 200, `"success":true`},
		"name in base64":           {with("Mcp-Name", "=?base64?ZXhlY3V0ZV9weXRob24=?="), good, 200, `"success":true`},
		"no version header":        {with("Mcp-Protocol-Version", ""), good, 400, "-32020"},
		"another version header":   {with("Mcp-Protocol-Version", "2025-11-25"), good, 400, "-32020"},
		"an unknown version":       {with("Mcp-Protocol-Version", "2099-01-01"), strings.ReplaceAll(good, "2026-07-28", "2099-01-01"), 400, `"supported"`},
		"no version in the body":   {with(), call(1, "print 1"), 400, "_meta"},
		"no method header":         {with("Mcp-Method", ""), good, 400, "Mcp-Method"},
		"another method":           {with("Mcp-Method", "tools/list"), good, 400, "does not match"},
		"no name header":           {with("Mcp-Name", ""), good, 400, "Mcp-Name"},
		"another name":             {with("Mcp-Name", "reset_session"), good, 400, "does not match"},
		"broken base64":            {with("Mcp-Name", "=?base64?!?="), good, 400, "Base64"},
		"resuming":                 {with("Last-Event-ID", "1"), good, 400, "Last-Event-ID"},
		"an answer":                {with(), `{"jsonrpc":"2.0","id":1,"result":{}}`, 400, "no method"},
		"a method that has gone":   {with("Mcp-Method", "ping", "Mcp-Name", ""), strings.NewReplacer("tools/call", "ping").Replace(good), 404, "-32601"},
		"somebody's cancellation":  {with("Mcp-Method", "notifications/cancelled", "Mcp-Name", ""), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, 202, ""},
		"no client capabilities":   {with(), strings.Replace(good, "clientCapabilities", "clientCapabilitieS", 1), 400, "clientCapabilities"},
		"discover":                 {with("Mcp-Method", "server/discover", "Mcp-Name", ""), strings.NewReplacer("tools/call", "server/discover").Replace(good), 200, "supportedVersions"},
		"a GET":                    {header{"Mcp-Protocol-Version", "2026-07-28"}, "", 405, "POST"},
		"a tool that is not there": {with("Mcp-Name", "x"), strings.Replace(good, "execute_python", "x", 1), 400, "not found"},
	} {
		method := "POST"
		if test.body == "" {
			method = "GET"
		}
		if a := s.do(method, "/mcp", test.headers, test.body); a.status != test.status || !strings.Contains(a.body, test.says) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := s.do("DELETE", "/mcp", header{"Mcp-Protocol-Version", "2026-07-28"}, ""); a.status != 405 {
		t.Errorf("DELETE: %+v", a)
	}
}

func TestHTTPRefusals(t *testing.T) {
	s := startWeb(t)
	c := s.legacy()
	for name, test := range map[string]struct {
		headers header
		body    string
		status  int
		says    string
	}{
		"no content type":       {c.headers(nil), call(1, "print"), 415, "application/json"},
		"text/plain":            {c.headers(header{"Content-Type", "text/plain"}), call(1, "print"), 415, "application/json"},
		"a form":                {c.headers(header{"Content-Type", "application/x-www-form-urlencoded"}), call(1, "print"), 415, "application/json"},
		"a list of types":       {c.headers(header{"Content-Type", "text/plain, application/json"}), call(1, "print"), 415, "application/json"},
		"with a charset":        {c.headers(header{"Content-Type", "Application/JSON; charset=utf-8"}), call(1, "print"), 200, "result"},
		"accepting HTML":        {c.headers(append(asJSON[:2:2], "Accept", "text/html")), call(1, "print"), 406, "accept both"},
		"accepting anything":    {c.headers(append(asJSON[:2:2], "Accept", "*/*")), call(1, "print"), 200, "result"},
		"nothing":               {c.headers(asJSON), " ", 400, "-32700"},
		"no JSON":               {c.headers(asJSON), "{", 400, "-32700"},
		"bytes":                 {c.headers(asJSON), "\xff\xfe\x00", 400, "-32700"},
		"a batch":               {c.headers(asJSON), "[" + call(1, "print") + "]", 400, "batches are not supported"},
		"an array within":       {c.headers(asJSON), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, 200, "error"},
		"another protocol":      {c.headers(asJSON), `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 200, "-32600"},
		"an empty object":       {c.headers(asJSON), `{}`, 400, "-32600"},
		"deep":                  {c.headers(asJSON), `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}", 400, "-32700"},
		"deep arguments":        {c.headers(asJSON), strings.Replace(call(1, "print"), `"code"`, `"inputs":{"x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`},"code"`, 1), 200, "levels deep"},
		"long beside arguments": {c.headers(asJSON), `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`, 413, `"id":7`},
		"long in _meta":         {c.headers(asJSON), strings.Replace(call(1, "print"), `"progressToken"`, `"x":"`+strings.Repeat("x", 2<<20)+`","progressToken"`, 1), 413, "only the arguments"},
		"too long":              {c.headers(asJSON), strings.Repeat(" ", maxLine+1), 413, "16 MiB"},
		"a number of no float":  {c.headers(asJSON), strings.Replace(call(1, "inputs"), `"code"`, `"inputs":{"x":1e999},"code"`, 1), 200, "1e999"},
	} {
		if a := s.do("POST", "/mcp", test.headers, test.body); a.status != test.status || !strings.Contains(a.body, test.says) {
			t.Errorf("%s: status %d, %.300q", name, a.status, a.body)
		}
	}
	for _, path := range []string{"/", "/nowhere", "/mcp/x", "/sessions/", "/metrics/x"} {
		if a := s.do("GET", path, nil, ""); a.status != 404 {
			t.Errorf("%s: %+v", path, a)
		}
	}
	for path, method := range map[string]string{"/healthz": "POST", "/sessions": "PUT", "/message": "GET", "/sse": "POST", "/mcp": "OPTIONS"} {
		if a := s.do(method, path, asJSON, ""); a.status != 405 {
			t.Errorf("%s %s: %+v", method, path, a)
		}
	}
}

// What a call prints is streamed ahead of its result; who can't take events
// gets the result alone.
func TestHTTPProgress(t *testing.T) {
	s := startWeb(t)
	c := s.legacy()
	a := s.do("POST", "/mcp", c.headers(both), call(7, "progress"))
	var told []string
	for l := range strings.Lines(a.body) {
		if data, ok := strings.CutPrefix(l, "data: "); ok {
			var m struct {
				ID     int
				Params struct{ Message string }
			}
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprint(m.ID, m.Params.Message))
		}
	}
	if diff := cmp.Diff([]string{"0step 0\n", "0step 1\n", "0step 2\n", "7"}, told); diff != "" {
		t.Error(diff)
	}
	if a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", a.header)
	}
	if a := s.do("POST", "/mcp", c.headers(asJSON), call(7, "progress")); a.header.Get("Content-Type") != "application/json" || !read(t, a).Success {
		t.Errorf("without events: %+v", a)
	}
}

// A silent call shows that it lives, though its client asked for no progress.
func TestHTTPKeepAlive(t *testing.T) {
	t.Parallel()
	s := startWeb(t)
	code := fmt.Sprintf("sleep %v", keepAlive+time.Second)
	a := s.do("POST", "/mcp", s.legacy().headers(both), strings.Replace(call(1, code), "progressToken", "x", 1))
	if !strings.HasPrefix(a.body, ": alive\n\n") || !read(t, a).Success {
		t.Errorf("%+v", a)
	}
}

// begin sends a call and waits until it runs; stop drops its connection.
func (c *legacy) begin(id int, code string) (stop func(), rest chan string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	res, err := c.request(ctx, "POST", "/mcp", c.headers(both), strings.NewReader(call(id, code)))
	if err != nil {
		c.t.Fatal(err)
	}
	r := bufio.NewReader(res.Body)
	for {
		l, err := r.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.Contains(l, "hanging") || strings.Contains(l, "stubborn") {
			break
		}
	}
	rest = make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		res.Body.Close()
		rest <- string(b)
	}()
	return cancel, rest
}

// interruptedAfter judges how long it took until code was told to stop: 200 ms
// are the goal, and what fails the test leaves room for a loaded machine.
func interruptedAfter(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("interrupted after %v", took)
	if took > time.Second {
		t.Errorf("interrupted after %v", took)
	}
}

func TestHTTPCancel(t *testing.T) {
	for name, cancel := range map[string]func(*legacy, func()){
		"notification": func(c *legacy, _ func()) {
			if a := c.do("POST", "/mcp", c.headers(asJSON), fmt.Sprintf(cancelled, 7)); a.status != 202 {
				c.t.Errorf("%+v", a)
			}
		},
		"dropped connection": func(_ *legacy, stop func()) { stop() },
		"DELETE":             func(c *legacy, _ func()) { c.do("DELETE", "/mcp", c.headers(nil), "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := startWeb(t)
			c, other := s.legacy(), s.legacy()
			stop, rest := c.begin(7, "hang")
			_, others := other.begin(7, "hang")
			begun := time.Now()
			cancel(c, stop)
			s.stderr.await(t, "fake: interrupted")
			interruptedAfter(t, time.Since(begun))
			if got := <-rest; strings.Contains(got, `"id":7`) {
				t.Errorf("who cancels expects no answer: %q", got)
			}
			if name != "DELETE" {
				if r := c.run("print 1"); r.State != "kept" {
					t.Errorf("the next call: %+v", r)
				}
			}
			select {
			case got := <-others:
				t.Errorf("another client's call with the same id ended: %q", got)
			case <-time.After(50 * time.Millisecond):
			}
		})
	}
}

// A call that waits for another of its session can be given up too.
func TestHTTPCancelQueued(t *testing.T) {
	s := startWeb(t)
	c := s.legacy()
	stop, rest := c.begin(1, "hang")
	queued := make(chan answer, 1)
	go func() { queued <- s.do("POST", "/mcp", c.headers(both), call(2, "print never")) }()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c.do("POST", "/mcp", c.headers(asJSON), fmt.Sprintf(cancelled, 2))
		select {
		case a := <-queued:
			if a.status != 200 || strings.Contains(a.body, "never") {
				t.Errorf("%+v", a)
			}
			stop()
			<-rest
			return
		default:
			if time.Now().After(deadline) {
				t.Fatal("a queued call was not cancelled")
			}
		}
	}
}

func TestDrain(t *testing.T) {
	t.Run("calls go on", func(t *testing.T) {
		s := startWeb(t)
		c := s.legacy()
		ended := make(chan report, 1)
		go func() { ended <- read(t, s.do("POST", "/mcp", c.headers(both), call(1, "sleep 700ms"))) }()
		time.Sleep(200 * time.Millisecond)
		code, took := s.stop()
		if r := <-ended; !r.Success || code != 0 || took > 5*time.Second {
			t.Errorf("exit code %d after %v: %+v", code, took, r)
		}
	})
	t.Run("within the bound", func(t *testing.T) {
		s := startWeb(t, "--drain-timeout", "300ms")
		_, rest := s.legacy().begin(1, "hang")
		code, took := s.stop()
		if got := <-rest; code != 0 || took < 300*time.Millisecond || took > 3*time.Second || !strings.Contains(got, `"status":"cancelled"`) {
			t.Errorf("exit code %d after %v: %q", code, took, got)
		}
		for _, want := range []string{"fake: interrupted", "fake: closed", "ended"} {
			if !strings.Contains(s.stderr.String(), want) {
				t.Errorf("%q is missing", want)
			}
		}
	})
	t.Run("event streams", func(t *testing.T) {
		s := startWeb(t)
		e := s.listen()
		e.send(helloWeb, call(1, "sleep 500ms"))
		e.await(`"protocolVersion"`)
		ended := make(chan struct{})
		go func() { e.await(`"id":1`); close(ended) }()
		time.Sleep(100 * time.Millisecond)
		code, took := s.stop()
		<-ended
		if code != 0 || took > 5*time.Second {
			t.Errorf("exit code %d after %v", code, took)
		}
	})
}
