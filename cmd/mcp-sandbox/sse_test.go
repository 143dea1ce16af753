package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// eventClient is a client of revision 2024-11-05.
type eventClient struct {
	*webServer
	endpoint string
	extra    header
	stop     context.CancelFunc
	lines    *bufio.Scanner
}

func (s *webServer) listen(extra ...string) *eventClient {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	res, err := s.request(ctx, "GET", "/sse", append(header{"Accept", "text/event-stream"}, extra...), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Access-Control-Allow-Origin") != "" {
		s.t.Fatalf("GET /sse: %d, %v", res.StatusCode, res.Header)
	}
	s.t.Cleanup(func() { stop(); res.Body.Close() })
	e := &eventClient{webServer: s, extra: extra, stop: stop, lines: bufio.NewScanner(res.Body)}
	e.lines.Buffer(nil, 1<<20)
	e.endpoint = e.await(`^data: (/message\?sessionId=[0-9a-f-]{36})$`)
	return e
}

// await reads until a line matches, and gives its last group.
func (e *eventClient) await(pattern string) string {
	e.t.Helper()
	re := regexp.MustCompile(pattern)
	for e.lines.Scan() {
		if m := re.FindStringSubmatch(e.lines.Text()); m != nil {
			return m[len(m)-1]
		}
	}
	e.t.Fatalf("%s never came: %v", pattern, e.lines.Err())
	return ""
}

func (e *eventClient) send(messages ...string) {
	e.t.Helper()
	for _, m := range messages {
		if a := e.do("POST", e.endpoint, append(asJSON[:2:2], e.extra...), m); a.status != http.StatusAccepted {
			e.t.Errorf("%s: %+v", m, a)
		}
	}
}

const initializedWeb = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

func TestSSE(t *testing.T) {
	s := startWeb(t)
	e, other := s.listen(), s.listen()
	e.send(helloWeb, initializedWeb)
	e.await(`^data: .*"protocolVersion"`)

	// Calls run in the order they came, though their client does not wait.
	for i := range 20 {
		e.send(call(i+1, fmt.Sprint("print ", i)))
	}
	for i := range 20 {
		if got := e.await(`^data: .*"stdout":"(\d+)\\n"`); got != fmt.Sprint(i) {
			t.Errorf("answer %d is %s", i, got)
		}
	}
	e.send(call(30, "progress"))
	for i := range 3 {
		e.await(fmt.Sprintf(`^data: .*notifications/progress.*step %d`, i))
	}
	id := e.await(`^data: .*"id":30,.*"session_id":"([^"]+)"`)

	other.send(call(1, "print 1")) // without initialize, as some clients do
	if got := other.await(`"session_id":"([^"]+)"`); got == id {
		t.Error("two streams share a session")
	}

	for name, test := range map[string]struct {
		path    string
		headers header
		body    string
		status  int
		says    string
	}{
		"no stream":      {"/message", asJSON, call(1, "print"), 404, "unknown session"},
		"unknown stream": {"/message?sessionId=11111111-1111-4111-8111-111111111111", asJSON, call(1, "print"), 404, "unknown session"},
		"text/plain":     {e.endpoint, header{"Content-Type", "text/plain"}, call(1, "print"), 415, "application/json"},
		"no JSON":        {e.endpoint, asJSON, "{", 400, "-32700"},
		"too long":       {e.endpoint, asJSON, strings.Repeat(" ", maxLine+1), 413, "16 MiB"},
	} {
		if a := s.do("POST", test.path, test.headers, test.body); a.status != test.status || !strings.Contains(a.body, test.says) {
			t.Errorf("%s: status %d, %.300q", name, a.status, a.body)
		}
	}
	if a := s.do("GET", "/sse", header{"Accept", "text/html"}, ""); a.status != 406 {
		t.Errorf("GET /sse for HTML: %+v", a)
	}
}

func TestSSECancel(t *testing.T) {
	for name, cancel := range map[string]func(*eventClient){
		"notification": func(e *eventClient) { e.send(fmt.Sprintf(cancelled, 1)) },
		"disconnect":   func(e *eventClient) { e.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startWeb(t)
			e := s.listen()
			e.send(helloWeb, initializedWeb, call(0, "print 0"))
			id := e.await(`"session_id":"([^"]+)"`)
			e.send(call(1, "hang"))
			e.await("hanging")
			begun := time.Now()
			cancel(e)
			s.stderr.await(t, "fake: interrupted")
			interruptedAfter(t, time.Since(begun))
			// A disconnect ends nothing: who holds the id goes on.
			if r := s.modern(map[string]any{"code": "print 2", "session_id": id}); r.State != "kept" {
				t.Errorf("by its id: %+v", r)
			}
			if name == "disconnect" {
				if a := s.do("POST", e.endpoint, asJSON, call(2, "print")); a.status != 404 {
					t.Errorf("a message to a stream that has gone: %+v", a)
				}
			}
		})
	}
}

func TestSSEBackPressure(t *testing.T) {
	s := startWeb(t)
	e := s.listen()
	e.send(call(0, "hang"))
	for i := range maxUnderWay - 1 {
		e.send(call(i+1, "print 1"))
	}
	a := s.do("POST", e.endpoint, asJSON, call(-1, "print 1"))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "try again in") {
		t.Errorf("one more: %+v", a)
	}
	e.send(fmt.Sprintf(cancelled, 0)) // a notification still comes through
	for range maxUnderWay - 1 {
		e.await(`"stdout":"1\\n"`)
	}
}

func TestNoSSE(t *testing.T) {
	s := startWeb(t, "--no-sse")
	for path, method := range map[string]string{"/sse": "GET", "/message?sessionId=x": "POST"} {
		if a := s.do(method, path, asJSON, ""); a.status != 404 {
			t.Errorf("%s: %+v", path, a)
		}
	}
}
