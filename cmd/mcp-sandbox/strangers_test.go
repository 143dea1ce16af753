package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a session's id is not, or not any more, or not for who asks, is one and the
// same error, word for word: nobody learns which.
func TestUnknownSessionIsOneError(t *testing.T) {
	const anns, bobs = "the-token-of-ann-0123", "the-token-of-bob-4567=="
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+anns+"\nbob:"+bobs+"\n"), "--session-idle", "200ms", "--session-max-age", "1s")
	ask := func(id, secret string) string {
		a := s.do("POST", "/mcp", append(append(both[:4:4], modernHeaders...), bearer(secret)...), modernCall(map[string]any{"code": "print 1", "session_id": id}))
		if a.status != 200 {
			t.Errorf("%s: %+v", id, a)
		}
		return strings.ReplaceAll(a.body, id, "ID")
	}
	closed := s.modern(map[string]any{"code": "print 1"}, bearer(bobs)...).SessionID
	if a := s.do("DELETE", "/sessions/"+closed, bearer(bobs), ""); a.status != 204 {
		t.Errorf("DELETE: %+v", a)
	}
	expired := s.modern(map[string]any{"code": "print 1"}, bearer(bobs)...).SessionID
	s.stderr.await(t, "session ended session="+expired)
	foreign := s.modern(map[string]any{"code": "print 1"}, bearer(anns)...).SessionID

	want := ask("11111111-1111-4111-8111-111111111111", bobs)
	if !strings.Contains(want, "unknown session") || !strings.Contains(want, `"isError":true`) {
		t.Fatalf("a guessed one: %s", want)
	}
	for name, id := range map[string]string{
		"another's": foreign, "a closed one": closed, "an expired one": expired,
		"another's, in capitals": strings.ToUpper(foreign), "another's, with a space": foreign + " ", "another's, with a NUL": foreign + `\u0000`,
		"no id at all": "../../etc/passwd", "a long one": strings.Repeat("a", 10_000), "a urn": "urn:uuid:" + foreign, "in braces": "{" + foreign + "}",
		"without dashes": strings.ReplaceAll(foreign, "-", ""),
	} {
		if got := ask(id, bobs); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	// Nor may the owner write it in another way: an id is compared, not read.
	if got := ask(strings.ToUpper(foreign), anns); got != want {
		t.Errorf("ann's own, in capitals: %s", got)
	}
}

// A principal that keeps a hundred calls waiting delays another's single call by
// two of them at most.
func TestFairOverHTTP(t *testing.T) {
	const anns, bobs = "the-token-of-ann-0123", "the-token-of-bob-4567=="
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+anns+"\nbob:"+bobs+"\n"), "--max-running", "2")
	s.modern(map[string]any{"code": "print 0"}, bearer(bobs)...) // his connection is there
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent, done atomic.Int32
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }}
	for range 100 {
		go func() {
			body := strings.NewReader(modernCall(map[string]any{"code": "sleep 300ms"}))
			res, err := s.request(httptrace.WithClientTrace(ctx, trace), "POST", "/mcp", append(append(both[:4:4], modernHeaders...), bearer(anns)...), body)
			if err != nil { // the test is over
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("status %d", res.StatusCode)
			}
			done.Add(1)
		}()
	}
	for deadline := time.Now().Add(20 * time.Second); sent.Load() < 100 || done.Load() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests were sent", sent.Load())
		}
	}
	late := 0 // a busy machine may hold a request back before anybody can be fair to it
	for i := range 5 {
		time.Sleep(100 * time.Millisecond) // into the middle of ann's two: none is just being answered
		before, begun := done.Load(), time.Now()
		r := s.modern(map[string]any{"code": fmt.Sprint("print ", i)}, bearer(bobs)...)
		waited := done.Load() - before
		t.Logf("waited for %d calls, %v", waited, time.Since(begun).Round(time.Millisecond))
		if waited > 2 {
			late++
		}
		if !r.Success || late > 1 || waited > 10 {
			t.Errorf("after %d of ann's calls: %+v", waited, r)
		}
	}
	if n := done.Load(); n > 40 {
		t.Errorf("%d of ann's calls are over, so that few were waiting", n)
	}
}
