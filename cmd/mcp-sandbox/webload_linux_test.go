package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// memory is what the server has resident, in bytes.
func (s *webServer) memory() int64 {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// descriptors that the server holds.
func (s *webServer) descriptors() int {
	s.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(fds)
}

func TestFloods(t *testing.T) {
	s := startWeb(t)
	addr := strings.TrimPrefix(s.url, "http://")
	before := s.memory()

	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "X-%d: y\r\n", i)
	}
	for name, h := range map[string]string{"many": many.String(), "long": "X: " + strings.Repeat("y", 1<<20) + "\r\n"} {
		got, _ := slow(t, addr, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"+h+"\r\n")
		if got != "" && !strings.HasPrefix(got, "HTTP/1.1 431") { // it may be closed before all was sent
			t.Errorf("%s headers: %.100q", name, got)
		}
	}
	got, took := slow(t, addr, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n{")
	if !strings.HasPrefix(got, "HTTP/1.1 413") || took > 5*time.Second {
		t.Errorf("a body of 1 GB, after %v: %q", took, got)
	}
	// One that does not say how long it is ends where the limit is.
	res, err := s.request(t.Context(), "POST", "/mcp", asJSON, io.MultiReader(strings.NewReader(`{"x":"`), &endless{}))
	if err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("an endless body: %d", res.StatusCode)
		}
	}
	// Bodies that come at the same time share what memory there is.
	var wg sync.WaitGroup
	var crowded, served atomic.Int32
	big := strings.Replace(call(1, "print x"), `"code"`, `"inputs":{"x":"`+strings.Repeat("x", 7<<20)+`"},"code"`, 1)
	c := s.legacy()
	for range 20 {
		wg.Go(func() {
			res, err := s.request(t.Context(), "POST", "/mcp", c.headers(asJSON), strings.NewReader(big))
			if err != nil {
				crowded.Add(1) // refused before all was sent
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			switch {
			case res.StatusCode == http.StatusOK:
				served.Add(1)
			case res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
				crowded.Add(1)
			default:
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
	wg.Wait()
	if served.Load() == 0 {
		t.Error("none was served")
	}
	grown := s.memory() - before
	t.Logf("of 20 bodies of 7 MiB %d were served, %d told to come back; memory grew by %d MiB", served.Load(), crowded.Load(), grown>>20)
	if grown > 1500<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if a := s.do("GET", "/readyz", nil, ""); a.status != 200 {
		t.Errorf("%+v", a)
	}
}

type endless struct{}

func (*endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// Many clients at once: every call is answered, or refused with a word on when
// to come back, and nobody gets what is another's.
func TestManyClients(t *testing.T) {
	const clients, calls = 256, 20
	s := startWeb(t)
	var wg sync.WaitGroup
	var served, refused atomic.Int32
	var mu sync.Mutex
	owner := map[string]int{}
	begun := time.Now()
	for i := range clients {
		wg.Go(func() {
			c := s.legacy()
			for j := range calls {
				word := fmt.Sprintf("%d-%d", i, j)
				a := s.do("POST", "/mcp", c.headers(asJSON), call(j, "print "+word))
				if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
					if a.header.Get("Retry-After") == "" {
						t.Errorf("a refusal without a time: %+v", a)
					}
					refused.Add(1)
					continue
				}
				r := read(t, a)
				if !r.Success && strings.Contains(r.Error, "try again") {
					refused.Add(1)
					continue
				}
				served.Add(1)
				mu.Lock()
				if who, ok := owner[r.SessionID]; ok && who != i {
					t.Errorf("clients %d and %d share a session", who, i)
				}
				owner[r.SessionID] = i
				mu.Unlock()
				if !r.Success || r.Stdout != word+"\n" {
					t.Errorf("client %d: %+v", i, r)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls served, %d refused, in %v", served.Load(), refused.Load(), time.Since(begun))
	if served.Load() < clients*calls/2 {
		t.Errorf("%d of %d calls were served", served.Load(), clients*calls)
	}
}

// Event streams that are abandoned in the middle of a call leave nothing.
func TestAbandonedStreams(t *testing.T) {
	s := startWeb(t, "--session-idle", "1s")
	round := func(n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				res, err := s.request(ctx, "GET", "/sse", nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				b := make([]byte, 200)
				k, err := res.Body.Read(b)
				if err != nil {
					t.Error(err)
					return
				}
				_, endpoint, _ := strings.Cut(string(b[:k]), "data: ")
				if a := s.do("POST", strings.TrimSpace(endpoint), asJSON, call(1, "hang")); a.status != http.StatusAccepted {
					t.Errorf("%+v", a)
				}
			})
		}
		wg.Wait()
		s.client.CloseIdleConnections()
	}
	settled := func() int {
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			var got struct{ Sessions []any }
			if err := json.Unmarshal([]byte(s.do("GET", "/sessions", nil, "").body), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Sessions) == 0 {
				s.client.CloseIdleConnections()
				time.Sleep(100 * time.Millisecond)
				return s.descriptors()
			}
		}
		t.Fatal("sessions are left")
		return 0
	}
	round(30) // what the first ones cost once
	descriptors := settled()
	round(300)
	left := settled()
	if left > descriptors+10 {
		t.Errorf("%d descriptors became %d", descriptors, left)
	}
}
