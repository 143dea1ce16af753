package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/tools"
)

// newWebServer serves within this process, so that its times can be short.
func newWebServer(t *testing.T, change func(*httpConfig)) (*httpServer, string) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	fake := &sandboxtest.Fake{Workspaces: t.TempDir(), Script: (&fakePython{cfg: localConfig{log: log}}).run}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake})
	if err != nil {
		t.Fatal(err)
	}
	kit, err := tools.New(tools.Config{Sessions: sessions, Caller: httpCaller, Turn: waitTurn})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := httpConfig{listener: l, server: kit.Server(), sessions: sessions, self: "me", sse: true, idle: time.Minute, drain: time.Second, log: log}
	change(&cfg)
	s := newHTTPServer(cfg)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := sessions.Close(); err != nil {
			t.Error(err)
		}
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.finish(end); err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// slow sends a beginning and nothing more; it gives what comes back, and when
// the connection was closed.
func slow(t *testing.T, addr, beginning string) (string, time.Duration) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begun := time.Now()
	if _, err := io.WriteString(c, beginning); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, _ := io.ReadAll(c)
	return string(b), time.Since(begun)
}

func TestSlowBodies(t *testing.T) {
	_, addr := newWebServer(t, func(c *httpConfig) { c.body = 300 * time.Millisecond })
	const post = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
	for name, test := range map[string]struct{ beginning, status string }{
		"a body that stops":           {post + "application/json\r\nContent-Length: 1000\r\n\r\n{", "400"},
		"one of which nothing comes":  {post + "application/json\r\nContent-Length: 1000\r\n\r\n", "400"},
		"a chunked one":               {post + "application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "400"},
		"one that is refused at once": {post + "text/plain\r\nContent-Length: 1000\r\n\r\n{", "415"},
		"one for nobody":              {"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, took := slow(t, addr, test.beginning)
			if !strings.HasPrefix(got, "HTTP/1.1 "+test.status) || took > 3*time.Second {
				t.Errorf("after %v: %q", took, got)
			}
		})
	}
}

func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	s := startWeb(t)
	got, took := slow(t, strings.TrimPrefix(s.url, "http://"), "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ")
	if took > headerTime+3*time.Second || strings.Contains(got, "200 OK") {
		t.Errorf("after %v: %q", took, got)
	}
}

func TestTooManySockets(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &socketLimit{Listener: inner, places: newBudget(4), plain: true} // two from one address
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	defer inner.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	first := <-accepted
	<-accepted
	res, err := http.ReadResponse(bufio.NewReader(dial()), nil)
	if err != nil || res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the third: %v, %+v", err, res)
	}
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if c, err := elsewhere.Dial("tcp", inner.Addr().String()); err == nil { // only Linux has that address
		defer c.Close()
		(<-accepted).Close()
	}
	first.Close()
	first.Close() // fine twice
	dial()
	select {
	case <-accepted:
	case <-time.After(5 * time.Second):
		t.Error("a place that came free was not given out")
	}
	if res, err := http.ReadResponse(bufio.NewReader(dial()), nil); err != nil || res.StatusCode != 503 {
		t.Errorf("the one after: %v, %+v", err, res)
	}
}

// Connections that nobody ends are forgotten, and their sessions with them.
func TestAbandonedConnections(t *testing.T) {
	s, addr := newWebServer(t, func(c *httpConfig) { c.idle = 400 * time.Millisecond })
	w := &webServer{t: t, url: "http://" + addr, client: http.DefaultClient}
	c := w.legacy()
	first := c.run("print 1")
	for range 2000 {
		w.do("POST", "/mcp", asJSON, helloWeb)
	}
	count := func() int {
		s.mcp.connections.mu.Lock()
		defer s.mcp.connections.mu.Unlock()
		return len(s.mcp.connections.byID)
	}
	if n := count(); n > maxConnections {
		t.Errorf("%d connections are remembered", n)
	}
	for deadline := time.Now().Add(10 * time.Second); count() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", count())
		}
	}
	if a := w.do("POST", "/mcp", c.headers(asJSON), call(1, "print 2")); a.status != 404 {
		t.Errorf("a forgotten one: %+v", a)
	}
	if r := w.modern(map[string]any{"code": "print 2", "session_id": first.SessionID}); r.State != "kept" {
		t.Errorf("its session by the id: %+v", r)
	}
}

// A connection with a call under way is never swept.
func TestBusyConnectionStays(t *testing.T) {
	_, addr := newWebServer(t, func(c *httpConfig) { c.idle = 50 * time.Millisecond })
	w := &webServer{t: t, url: "http://" + addr, client: http.DefaultClient}
	c := w.legacy()
	if r := c.run("sleep 500ms"); !r.Success {
		t.Errorf("%+v", r)
	}
}

// Answers that their client does not read have a limit: beyond it a short one stands
// for what the code has told, and once they are read all is as before.
func TestUnreadAnswers(t *testing.T) {
	s, addr := newWebServer(t, func(*httpConfig) {})
	w := &webServer{t: t, url: "http://" + addr, client: http.DefaultClient}
	c, e := w.legacy(), w.listen()
	const unreadByMe = maxAnswers/2 - 100
	if !s.answers.take("me", unreadByMe) {
		t.Fatal("half is not for one")
	}
	if a := w.do("POST", "/mcp", c.headers(asJSON), call(1, "print 1")); !strings.Contains(a.body, `"id":1,"error":{"code":-32000,"message":"the code has run`) {
		t.Errorf("%+v", a)
	}
	e.send(call(2, "print 2"))
	e.await(`"id":2,"error":{"code":-32000,"message":"(the code has run)`)
	s.answers.give("me", unreadByMe)
	if r := c.run("print 3"); r.Stdout != "3\n" {
		t.Errorf("%+v", r)
	}
	e.send(call(4, "print 4"))
	e.await(`"stdout":"(4)\\n"`)
	e.stop()
	for deadline := time.Now().Add(10 * time.Second); !s.answers.take("me", maxAnswers/2); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was read is held for ever")
		}
	}
}

// A connection that is ended while a request of it is coming in: that one is not
// begun, and the connection is gone with the last of them, not before.
func TestRequestThatComesWithTheEnd(t *testing.T) {
	gone := 0
	cs := &connections{gone: func(sandbox.Caller) { gone++ }, log: slog.New(slog.DiscardHandler), byID: map[string]*connection{}}
	c := cs.add("ann")
	if cs.take("ann", c.id) != c {
		t.Fatal("the connection is not there")
	}
	cs.remove(c)
	cs.leave(c)
	if gone != 0 {
		t.Error("it is gone, with a request under way")
	}
	m, fault := decode([]byte(call(1, "print never")))
	if fault != nil {
		t.Fatal(fault)
	}
	ctx, r, over := c.begin(t.Context(), m)
	if !r.cancelled.Load() || waitTurn(ctx) == nil {
		t.Error("a call was begun whose connection had ended")
	}
	over()
	cs.leave(c)
	if gone != 1 || cs.take("ann", c.id) != nil {
		t.Errorf("it was said to be gone %d times", gone)
	}
}

// lateWriter is a response whose connection an earlier request left with a
// deadline.
type lateWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *lateWriter) SetReadDeadline(time.Time) error    { return nil }
func (w *lateWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

func TestDeadlineOfAnEarlierRequest(t *testing.T) {
	s, _ := newWebServer(t, func(*httpConfig) {})
	w := &lateWriter{httptest.NewRecorder(), time.Now().Add(-time.Minute)}
	r := httptest.NewRequest("GET", "http://localhost/healthz", nil)
	s.http.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !w.deadline.IsZero() {
		t.Errorf("status %d; what is written must be written before %v", w.Code, w.deadline)
	}
}

// Whatever is posted is answered, by a status that says whose fault it is.
func FuzzPost(f *testing.F) {
	for _, body := range []string{helloWeb, call(1, "print 1"), "[]", "{}", `{"id":{},"method":"tools/call"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":3}}`, modernCall(map[string]any{"code": "print 1"})} {
		f.Add(body, "2026-07-28", "tools/call", "execute_python")
		f.Add(body, "", "", "")
	}
	log := slog.New(slog.DiscardHandler)
	fake := &sandboxtest.Fake{Script: (&fakePython{cfg: localConfig{log: log}}).run}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake})
	if err != nil {
		f.Fatal(err)
	}
	kit, err := tools.New(tools.Config{Sessions: sessions, Caller: httpCaller, Turn: waitTurn})
	if err != nil {
		f.Fatal(err)
	}
	s := newHTTPServer(httpConfig{server: kit.Server(), sessions: sessions, self: "me", idle: time.Minute, log: log})
	c := s.mcp.connections.add("me")
	f.Fuzz(func(t *testing.T, body, version, method, name string) {
		if strings.Contains(body, "hang") || strings.Contains(body, "sleep") || strings.Contains(body, "stubborn") {
			return // it would
		}
		r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(body))
		for header, value := range map[string]string{
			"Content-Type": "application/json", "Mcp-Session-Id": c.id, "Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name,
		} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		switch w.Code {
		case 200, 202, 400, 404, 413:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if w.Code != 202 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d: %q", w.Code, w.Body)
		}
	})
}
