package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// script is all that a platform and the way to it do wrong, again and again.
func script() []workloadtest.Fault {
	create, records, logs := regexp.MustCompile(`^/workloads/$`), regexp.MustCompile(`^/workloads/[0-9a-f]+/?$`), regexp.MustCompile(`^/otel/`)
	html := http.Header{"Content-Type": {"text/html"}}
	page := "<html><head><title>502 Bad Gateway</title></head></html>"
	return []workloadtest.Fault{
		{Method: "POST", Path: create, From: 3, Every: 11, Times: -1, Status: 429, Header: http.Header{"Retry-After": {"2"}}},
		{Method: "POST", Path: create, From: 5, Every: 13, Times: -1, Drop: true},
		{Method: "POST", Path: create, From: 7, Every: 17, Times: -1, Drop: true, Commit: true},
		{Method: "POST", Path: create, From: 2, Every: 19, Times: -1, Status: 502, Body: page, Header: html},
		{Method: "POST", Path: create, From: 4, Every: 23, Times: -1, Status: 502, Commit: true, Body: page, Header: html},
		{Method: "POST", Path: create, From: 9, Every: 29, Times: -1, Cut: true},
		{Method: "GET", Path: logs, From: 1, Every: 7, Times: -1, Status: 200, Body: page, Header: html},
		{Method: "GET", Path: logs, From: 2, Every: 11, Times: -1, Status: 500},
		{Method: "GET", Path: logs, From: 3, Every: 97, Times: -1, Hang: true},
		{Method: "GET", Path: logs, From: 5, Every: 13, Times: -1, Cut: true},
		{Method: "GET", Path: records, From: 1, Every: 3, Times: -1, Status: 503},
		{Method: "GET", Path: records, From: 2, Every: 89, Times: -1, Hang: true},
		{Method: "DELETE", From: 1, Every: 4, Times: -1, Status: 502, Body: `{"detail":"please retry"}`},
		{Method: "DELETE", From: 2, Every: 7, Times: -1, Drop: true, Commit: true},
		{Method: "DELETE", From: 3, Every: 9, Times: -1, Status: 429, Header: http.Header{"Retry-After": {"1"}}},
	}
}

// A hundred runs at once through all of it: each ends with the right result, and
// nothing is left.
func TestFaults(t *testing.T) {
	b := emulated(t, func(e *workloadtest.Config, c *Config) {
		e.Speed, c.speed = 20, 20 // a hundred interpreters at once are slow
		e.Faults = script()
		e.Logs = workloadtest.Logs{Jitter: 5 * time.Second, Duplicate: true, Split: true}
		e.Cluster.Limit = 40
		c.requestLimit = 2 * time.Second
		c.removeLimit = time.Hour  // likewise: a request that hangs is not sped up
		c.Provisioning = time.Hour // of twenty times the speed, on a busy machine
	})
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 100 {
		wg.Go(func() {
			s, err := b.w.Open(t.Context(), sandbox.Spec{ID: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			code, status := "print('x' * 30000)\n_return = inputs['i']", sandbox.StatusOK
			if i%5 == 4 {
				code, status = "_return = inputs['i']\nraise ValueError(7)", sandbox.StatusError
			}
			r, err := s.Run(t.Context(), sandbox.Request{Code: code, Inputs: map[string]any{"i": i}, Timeout: time.Minute})
			if err != nil || r.Status != status || string(r.ReturnValue) != fmt.Sprint(i) {
				t.Errorf("run %d: status %s, value %s, %v (%s)", i, r.Status, r.ReturnValue, err, r.Error)
			}
			if status == sandbox.StatusOK && r.Truncated.Stdout.Produced != 30001 {
				t.Errorf("run %d: %+v", i, r.Truncated)
			}
		})
	}
	wg.Wait()
	t.Logf("%v for 100 runs, %+v", time.Since(start), b.e.Counters())
}

// A call that is given up, at whatever moment, ends at once and leaves nothing.
func TestCancel(t *testing.T) {
	for _, after := range []time.Duration{0, 1, 3, 6, 10, 15, 20, 30, 40, 60, 90, 150, 250} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			b := emulated(t, nil)
			s := b.open()
			ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
			defer cancel()
			r, err := s.Run(ctx, sandbox.Request{Code: "import time\ntime.sleep(30)", Timeout: time.Minute})
			if !errors.Is(err, context.DeadlineExceeded) || r.Status != "" && r.Status != sandbox.StatusCancelled {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	t.Run("close", func(t *testing.T) {
		b := emulated(t, nil)
		s := b.open()
		time.AfterFunc(200*time.Millisecond, func() { _ = s.Close() })
		if _, err := s.Run(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(30)", Timeout: time.Minute}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("%v", err)
		}
		if _, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// Likewise a session's, while it opens and while it runs. What the code is
// interrupted in goes on living: the next call has it.
func TestSessionCancel(t *testing.T) {
	for _, after := range []time.Duration{0, 5, 20, 60, 150, 300, 600, 1200} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			b, _ := remembering(t, nil)
			s, err := b.w.Open(t.Context(), sandbox.Spec{ID: "s", Lazy: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
			defer cancel()
			r, err := s.Run(ctx, sandbox.Request{Code: "x = 1\nimport time\ntime.sleep(30)", Timeout: time.Minute})
			if !errors.Is(err, context.DeadlineExceeded) || r.Status != "" && r.Status != sandbox.StatusCancelled {
				t.Errorf("%+v, %v", r, err)
			}
			if r = call1(t, s, "globals().get('x')"); r.Status != sandbox.StatusOK || string(r.Output) == "1" && r.State != sandbox.StateKept {
				t.Errorf("after it: %+v", r)
			}
		})
	}
}

// What a create whose answer never comes has made is found, while it is waited
// for and after the caller has gone.
func TestLostAnswers(t *testing.T) {
	create := regexp.MustCompile(`^/workloads/$`)
	for name, fault := range map[string]workloadtest.Fault{
		"committed and dropped":     {Drop: true, Commit: true},
		"committed and a page":      {Status: 502, Commit: true, Body: "<html>"},
		"committed and cut":         {Cut: true},
		"dropped before it arrived": {Drop: true},
	} {
		fault.Method, fault.Path = http.MethodPost, create
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := emulated(t, func(e *workloadtest.Config, _ *Config) { e.Faults = []workloadtest.Fault{fault} })
			if r := b.run("40 + 2"); string(r.Output) != "42" {
				t.Errorf("%+v", r)
			}
			if n := b.e.Counters().Created; n != 1 {
				t.Errorf("%d workloads for one run", n)
			}
		})
	}
	t.Run("committed, and the caller has gone", func(t *testing.T) {
		t.Parallel()
		b := emulated(t, func(e *workloadtest.Config, _ *Config) {
			e.Faults = []workloadtest.Fault{{Method: http.MethodPost, Path: create, Hang: true, Commit: true}}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { // the caller goes as soon as it is committed
			for ctx.Err() == nil && b.e.Counters().Created == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if _, err := b.open().Run(ctx, sandbox.Request{Code: "1"}); !errors.Is(err, context.Canceled) || b.e.Counters().Created != 1 {
			t.Errorf("%v, %+v", err, b.e.Counters())
		}
	})
}

// The account's limit is kept to, and a platform that is full is waited for.
func TestLimit(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("known ", known), func(t *testing.T) {
			t.Parallel()
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Cluster.Limit = 2
				if !known {
					e.Faults = []workloadtest.Fault{{Path: regexp.MustCompile(`^/account/`), Times: -1, Status: http.StatusNotFound}}
				}
			})
			var wg sync.WaitGroup
			for range 6 {
				s := b.open()
				wg.Go(func() {
					if r, err := s.Run(t.Context(), sandbox.Request{Code: "40 + 2"}); err != nil || string(r.Output) != "42" {
						t.Errorf("%+v, %v", r, err)
					}
				})
			}
			wg.Wait()
			refused := 0
			for _, s := range b.e.Seen() {
				if s.Status == http.StatusForbidden {
					refused++
				}
			}
			if known && refused > 0 {
				t.Errorf("%d requests beyond the limit", refused)
			}
		})
	}
}

// No goroutine outlives a Workload.
func TestNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("use", func(t *testing.T) {
		b := emulated(t, nil)
		b.run("1")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, _ = b.open().Run(ctx, sandbox.Request{Code: "1"})
	})
	for range 100 {
		if runtime.NumGoroutine() <= before+2 { // of the transport's own, for a moment
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "mcp-sandbox/workload.") {
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks)
	}
}
