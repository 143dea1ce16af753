package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// resident memory of the server, in bytes.
func (w *web) resident() int64 {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// listens opens a stream of events, sends a message, reads an answer with one of these
// in it, and goes away.
func (w *web) listens(message string, wanted ...string) {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	do := func(method, path, body string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
		if err != nil {
			w.t.Error(err)
			return nil
		}
		r.Header.Set("Authorization", "Bearer "+webToken)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Error(err)
			return nil
		}
		return res
	}
	events := do("GET", "/sse", "")
	if events == nil {
		return
	}
	defer events.Body.Close()
	lines := bufio.NewScanner(events.Body)
	for lines.Scan() {
		if path, ok := strings.CutPrefix(lines.Text(), "data: /message"); ok {
			if res := do("POST", "/message"+path, message); res != nil {
				res.Body.Close()
			}
		}
		for _, want := range wanted {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
	}
	w.t.Errorf("no answer: %v", lines.Err())
}

// Event streams that are opened and abandoned cost no memory that grows with them, nor
// descriptors: what the first 300 at once have taken serves the next, until the runtime
// gives it back, as TestProveAbandonedStreams waits for.
func TestWebAbandonedStreams(t *testing.T) {
	w := startWeb(t)
	round := func() (int64, int) {
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() { w.listens(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "execute_python") })
		}
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
		time.Sleep(time.Second)
		return w.resident(), w.descriptors()
	}
	memory, descriptors := round()
	after, left := round()
	t.Logf("after 300 streams %d KiB and %d descriptors, after 300 more %d and %d", memory>>10, descriptors, after>>10, left)
	if after > memory+10<<20 || left > descriptors+10 {
		t.Errorf("memory %d → %d bytes, descriptors %d → %d", memory, after, descriptors, left)
	}
	w.stop()
}

// Three hundred event streams at once, each with a session in which code has run: all
// that they had is taken away in time. The runtime gives memory back to the system when
// it collects on an idle server, each two minutes.
func TestProveAbandonedStreams(t *testing.T) {
	proving(t)
	const many = 300
	w := serveWeb(t, "--session-idle", "2s", "--session-max-age", "10s", "--max-sessions", "64", "--warm", "0")
	round := func(n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { w.listens(callWeb, `"output":42`, "try again") })
		}
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
	round(8) // what the first ones cost once
	w.reaped()
	memory, descriptors := w.resident(), w.descriptors()
	begun := time.Now()
	round(many)
	w.reaped()
	reaped := time.Since(begun)
	peak := w.resident() - memory
	var grown int64
	var left int
	for deadline := begun.Add(5 * time.Minute); ; time.Sleep(time.Second) {
		grown, left = w.resident()-memory, w.descriptors()-descriptors
		if grown <= 10<<20 && left <= 10 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("memory + %d KiB, descriptors + %d", grown>>10, left)
			break
		}
	}
	settled := time.Since(begun)
	w.stop()
	if !t.Failed() {
		proof("HTTP: %d event streams at once, each with a session, abandoned: all sessions and processes gone after %v; memory + %d KiB then, + %d KiB after %v; descriptors + %d",
			many, reaped.Round(time.Second), peak>>10, grown>>10, settled.Round(time.Second), left)
	}
}

// Two thousand clients with connections of their own, who call once and never say
// goodbye: all that they had is taken away in time.
func TestProveLegacySessions(t *testing.T) {
	proving(t)
	const many, atOnce = 2000, 8
	w := serveWeb(t, "--session-idle", "2s", "--session-max-age", "10s", "--max-sessions", "64", "--warm", "0")
	round := func(n int) {
		var wg sync.WaitGroup
		turn := make(chan struct{}, atOnce)
		for range n {
			turn <- struct{}{}
			wg.Go(func() { w.abandons(); <-turn })
		}
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
	round(50) // what the first ones cost once
	w.reaped()
	memory, descriptors := w.resident(), w.descriptors()
	begun := time.Now()
	round(many)
	served := time.Since(begun)
	w.reaped()
	took := time.Since(begun)
	grown, left := w.resident()-memory, w.descriptors()-descriptors
	if grown > 10<<20 || left > 10 {
		t.Errorf("memory + %d KiB, descriptors + %d", grown>>10, left)
	}
	w.stop()
	if !t.Failed() {
		proof("HTTP: %d clients of 2025-11-25 that called once, in %v, and said no goodbye: all sessions and processes gone %v later, memory + %d KiB, descriptors + %d",
			many, served.Round(time.Second), (took - served).Round(time.Second), grown>>10, left)
	}
}

const callWeb = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"x = 41\nx + 1"}}}`

// abandons opens a connection, calls once, and is not heard of again.
func (w *web) abandons() {
	_, header, _ := w.do("POST", "/mcp", helloWeb, "")
	if status, _, answer := w.do("POST", "/mcp", callWeb, header.Get("Mcp-Session-Id")); !strings.Contains(answer, `"output":42`) {
		w.t.Errorf("a call: %d, %.1000s", status, answer)
	}
}

// reaped waits until no session is left, and no process of one.
func (w *web) reaped() {
	w.t.Helper()
	var sessions, processes int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		sessions, processes = len(w.listed()), len(family(w.t, w.cmd.Process.Pid))-1
		if sessions == 0 && processes == 0 {
			return
		}
	}
	w.t.Errorf("%d sessions and %d processes are left", sessions, processes)
}

func (w *web) descriptors() int {
	w.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(fds)
}

// Ten thousand connections that say nothing cost bounded memory, those too many
// are told so, and the server is there again when they are over.
func TestProveWebConnections(t *testing.T) {
	proving(t)
	const many = 10_000
	w := startWeb(t)
	addr := strings.TrimPrefix(w.url, "http://")
	before := w.resident()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range many {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("after %d: %v", len(conns), err)
		}
		conns = append(conns, c)
		if len(conns)%2 == 0 {
			_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
		}
	}
	var refused atomic.Int32
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
			if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode == http.StatusServiceUnavailable {
				refused.Add(1)
			}
		})
	}
	grown := w.resident() - before
	wg.Wait()
	if refused.Load() == 0 {
		t.Error("none was told that it is one too many")
	}
	if grown > 300<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	for _, c := range conns {
		c.Close()
	}
	if r := w.python("", "6 * 7"); string(r.Output) != "42" {
		t.Errorf("afterwards: %+v", r)
	}
	w.stop()
	proof("HTTP: %d silent connections: %d told to come back, memory + %d MiB, served again afterwards", many, refused.Load(), grown>>20)
}

// A call of four minutes reaches a client that gives up after one without news.
func TestProveWebLongCall(t *testing.T) {
	proving(t)
	node, dir := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t)
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			w := startWeb(t)
			out, stderr, err := tryFor(t, 6*time.Minute, dir, []string{"TOKEN=" + webToken}, node, "long.mjs", w.url+path)
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, stderr)
			}
			var got struct {
				Result reply `json:"result"`
				Pieces int   `json:"pieces"`
				MS     int   `json:"ms"`
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got.Result.expect(t, "four minutes", "new", `"done"`)
			if got.MS < 240_000 || got.Pieces < 4 {
				t.Errorf("%d ms, %d pieces", got.MS, got.Pieces)
			}
			w.stop()
			proof("HTTP %s: a silent call of %d s reached a client that gives up after 60 s, by %d pieces of progress", path, got.MS/1000, got.Pieces)
		})
	}
}

// Many real sessions at once, each with a variable of its own.
func TestProveWebManyClients(t *testing.T) {
	proving(t)
	const clients, calls = 256, 20
	w := startWeb(t, "--log-level", "info")
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = clients
	var wg sync.WaitGroup
	var served, refused atomic.Int32
	begun := time.Now()
	for i := range clients {
		wg.Go(func() {
			var id string
			n := 0
			for j := range calls {
				code := fmt.Sprintf("x += %d\nx", i)
				if id == "" {
					code = fmt.Sprintf("assert 'x' not in globals()\nx = %d\nx", i)
				}
				r := w.python(id, code)
				if strings.Contains(r.Error, "try again") {
					refused.Add(1)
					continue
				}
				n++
				if want := strconv.Itoa(i * n); !r.Success || string(r.Output) != want || id != "" && r.SessionID != id {
					t.Errorf("client %d, call %d: %+v; want %s", i, j, r, want)
					return
				}
				id = r.SessionID
				served.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	w.stop()
	proof("HTTP: %d clients × %d calls at once: %d served, %d told to come back, in %v", clients, calls, served.Load(), refused.Load(), took.Round(time.Millisecond))
	if served.Load() < clients*calls/2 {
		t.Errorf("%d of %d calls were served", served.Load(), clients*calls)
	}
}

func TestProveConformance(t *testing.T) {
	proving(t)
	const times = 10
	suite, url := newConformanceSuite(t), startFixture(t)
	for revision := range revisions {
		var passed, excused int
		for range times {
			passed, excused = suite.run(t, url, "fixture", revision, nil)
		}
		if !t.Failed() {
			proof("conformance: %d runs in a row of the official suite, revision %s: %d checks passed and %d did not, each with its reason", times, revision, passed, excused)
		}
	}
}
