package workload

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// Real faults of another client of this platform, by the number that they have
// in the list of them: what looked like this must not go wrong here.
func TestRegressions(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"R1 strict schema, no old paths", func(t *testing.T) {
			b := emulated(t, nil)
			b.run("1")
			for _, s := range b.e.Seen() {
				if strings.Contains(s.URI, "console") || s.Status == http.StatusUnprocessableEntity {
					t.Errorf("%+v", s)
				}
			}
		}},
		{"R2 an unknown entitlement is not a refusal", func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, c *Config) { e.Cluster.Flags = map[string]bool{"ENABLE_ELSE": true} })
			_, err := b.w.tenants[onlyKey(b.w)].client.entitled(t.Context(), "MCP_SANDBOX")
			if !errors.Is(err, errUnknownEntitlement) {
				t.Errorf("%v", err)
			}
			if ok, err := b.w.tenants[onlyKey(b.w)].client.entitled(t.Context(), "ENABLE_ELSE"); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		}},
		{"R3 a result wins over errored and stopped", func(t *testing.T) {
			for _, status := range []string{"errored", "stopped"} {
				story{events: []event{becomes(1, "launching"), says(2, runnerLine), becomes(3, status), exits(3, 0, "Completed"), says(4, marker("42"))}}.
					play().is(t, sandbox.StatusOK, "42").within(t, 4, 5)
			}
		}},
		{"R4 rows without their newline", func(t *testing.T) {
			e := story{events: []event{says(1, "a"), says(1, "b\n"), says(1, marker("1")), exits(1, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "1")
			if e.res.Stdout != "a\nb\n" {
				t.Errorf("stdout %q", e.res.Stdout)
			}
		}},
		{"R5 the marker within text, and lines after it", func(t *testing.T) {
			e := story{events: []event{says(1, "see "+marker("99")), says(1, marker("1")), says(1, "atexit"), exits(1, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "1")
			if e.res.Stdout != "see "+marker("99")+"\natexit\n" {
				t.Errorf("stdout %q", e.res.Stdout)
			}
		}},
		{"R6 no log at the end, and the marker later", func(t *testing.T) {
			story{events: []event{becomes(2, "errored"), exits(2, 0, "Completed"), says(7, marker("5"))}}.play().is(t, sandbox.StatusOK, "5").within(t, 7, 8)
		}},
		{"R7 a log without its slash is redirected", func(t *testing.T) {
			b := emulated(t, nil)
			var p logPage
			if err := b.client().do(t.Context(), call{method: http.MethodGet, path: "otel/workload/65f000000000000000000000/logs", out: &p}); err != nil && statusOf(err) != http.StatusNotFound {
				t.Error(err)
			}
			if seen := b.e.Seen(); !slices.ContainsFunc(seen, func(s workloadtest.Seen) bool { return s.Status == http.StatusPermanentRedirect }) {
				t.Errorf("no redirect: %+v", seen)
			}
		}},
		{"R8 a pull is not the code's time", func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) { e.Cluster.Pull = 90 * time.Second })
			r, err := b.open().Run(t.Context(), sandbox.Request{Code: "_return = 1", Timeout: 5 * time.Second})
			if err != nil || r.Status != sandbox.StatusOK {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		{"R9 errored before the start, and the marker a minute later", func(t *testing.T) {
			story{events: []event{becomes(6, "errored"), platformSays(6, "Image pull failed reason=ErrImagePull"), stuck(7, "ErrImagePull", "no such host"), says(70, runnerLine), says(70.5, marker("3")), exits(71, 0, "Completed")}}.
				play().is(t, sandbox.StatusOK, "3").within(t, 70, 72)
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Cluster.PullFailures, e.Cluster.PullRetry = 3, 20*time.Second
			})
			if r := b.run("40 + 2"); string(r.Output) != "42" {
				t.Errorf("%+v", r)
			}
		}},
		{"R10 equal reads are not the end", func(t *testing.T) {
			events := many(func(at float64) event { return says(at, runnerLine) }, 1, 1.2, 1.4, 1.6)
			story{events: append(events, says(9, marker("1")), exits(9, 0, "Completed"))}.play().is(t, sandbox.StatusOK, "1")
		}},
		{"R11 stdout lags behind stderr", func(t *testing.T) {
			story{events: []event{says(1, runnerLine), becomes(2, "errored"), exits(2, 0, "Completed"), says(2.5, runnerLine), says(15, marker("7"))}}.play().is(t, sandbox.StatusOK, "7").within(t, 15, 16)
		}},
		{"R12 nothing but the platform's words for a minute", func(t *testing.T) {
			events := many(func(at float64) event { return platformSays(at, "Image pull failed reason=ErrImagePull") }, 5, 15, 30, 55)
			story{events: append(events, becomes(5, "errored"), says(65, marker("2")), exits(65, 0, "Completed"))}.play().is(t, sandbox.StatusOK, "2")
		}},
		{"R13 new rows of the platform are life", func(t *testing.T) {
			story{events: []event{says(1, runnerLine), becomes(2, "errored"), exits(2, 0, "Completed"), platformSays(28, "Crash looping"), platformSays(50, "Crash looping"), says(75, marker("4"))}}.play().is(t, sandbox.StatusOK, "4")
		}},
		{"R14 running for ever, and the marker at once", func(t *testing.T) {
			story{events: []event{becomes(1, "running"), says(1, marker(`"x"`))}}.play().is(t, sandbox.StatusOK, `"x"`).within(t, 1, 5)
			b := emulated(t, nil)
			start := time.Now()
			if r := b.run("40 + 2"); string(r.Output) != "42" {
				t.Errorf("%+v", r)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("%v for a marker that is there", took)
			}
		}},
		{"R15 a timeout without an exit code", func(t *testing.T) {
			story{events: []event{becomes(1, "running"), says(31, "sandbox exceeded timeout of 30s"), says(31, marker("null"))}}.play().is(t, sandbox.StatusTimeout, "")
		}},
		{"R16 the timeout's line after a null marker", func(t *testing.T) {
			for _, late := range []float64{1, 13} {
				story{events: []event{becomes(1, "running"), says(31, marker("null")), says(31+late, "sandbox exceeded timeout of 30s")}}.play().is(t, sandbox.StatusTimeout, "")
			}
		}},
		{"R17 a quiet snippet", func(t *testing.T) {
			story{timeout: 2 * time.Minute, events: []event{becomes(1, "running"), says(1, runnerLine), says(61, marker("6")), exits(61, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "6")
		}},
		{"R18 the record can't be read", func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Faults = []workloadtest.Fault{{Method: http.MethodGet, Path: regexp.MustCompile(`^/workloads/[0-9a-f]+/?$`), Times: -1, Status: http.StatusInternalServerError}}
			})
			if r := b.run("40 + 2"); string(r.Output) != "42" {
				t.Errorf("%+v", r)
			}
		}},
		{"R19 pages and wrong JSON in place of the log", func(t *testing.T) {
			path := regexp.MustCompile(`^/otel/`)
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Faults = []workloadtest.Fault{
					{Path: path, Status: http.StatusOK, Body: "<html><title>x</title></html>", Header: http.Header{"Content-Type": {"text/html"}}},
					{Path: path, From: 2, Status: http.StatusOK, Body: `{"data":"x"}`},
				}
			})
			if r := b.run("40 + 2"); string(r.Output) != "42" {
				t.Errorf("%+v", r)
			}
		}},
		{"R20 a cancel while the log is slow", func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Faults = []workloadtest.Fault{{Path: regexp.MustCompile(`^/otel/`), Times: -1, Hang: true}}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			start := time.Now()
			r, err := b.open().Run(ctx, sandbox.Request{Code: "1"})
			if !errors.Is(err, context.DeadlineExceeded) || r.Status != sandbox.StatusCancelled || time.Since(start) > 2*time.Second {
				t.Errorf("%+v, %v after %v", r, err, time.Since(start))
			} // the bench looks whether anything is left
		}},
		{"R21 several attempts", func(t *testing.T) {
			e := story{events: []event{says(1, runnerLine), says(1, "first"), says(1, marker("1")), says(3, runnerLine), says(3, "second"), says(3, marker("2")), exits(4, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "1")
			if e.res.Stdout != "first\n" {
				t.Errorf("stdout %q", e.res.Stdout)
			}
		}},
		{"R22 rows of an error's severity, and stack traces", func(t *testing.T) {
			e := story{events: []event{rowAt(1, row{Level: "ERROR", Message: "bad", Stacktrace: "  at x\n"}), rowAt(1, row{Level: "WARNING", Message: "mind"}), rowAt(1, row{Level: "INFO", Stacktrace: "y"}), says(1, marker("1")), exits(1, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "1")
			if e.res.Stderr != "bad\n  at x\ny\n" || e.res.Stdout != "mind\n\n" {
				t.Errorf("stdout %q, stderr %q", e.res.Stdout, e.res.Stderr)
			}
		}},
		{"R23 a parameter that is there twice", func(t *testing.T) {
			var got string
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.URL.RawQuery
				_, _ = w.Write([]byte(`{"data":[]}`))
			})
			if _, err := c.list(t.Context(), "workloads", url.Values{"status": {"running", "errored"}}); err != nil || !strings.Contains(got, "status=running&status=errored") {
				t.Errorf("%s, %v", got, err)
			}
		}},
		{"R24 an image that can't run", func(t *testing.T) {
			story{events: []event{becomes(2, "launching"), becomes(3, "errored"), exits(3, 2, "Error"), says(3, "/opt/venv/bin/python: can't open file")}}.play().is(t, sandbox.StatusCrash, "").within(t, 3, 40)
		}},
		{"R25 sys.exit keeps the value", func(t *testing.T) {
			for _, bare := range []bool{false, true} {
				b := emulated(t, func(_ *workloadtest.Config, c *Config) { c.Bare = bare })
				if r := b.run("import sys\n_return = 5\nsys.exit(0)"); r.Status != sandbox.StatusOK || string(r.ReturnValue) != "5" {
					t.Errorf("bare %v: %+v", bare, r)
				}
			}
		}},
		{"R26 an image not pushed yet is no reason to ask again", func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) {
				e.Faults = []workloadtest.Fault{{Method: http.MethodPost, Path: regexp.MustCompile(`^/workloads/$`), Status: http.StatusUnprocessableEntity, Body: `{"detail":"runtime_image_uri is None"}`}}
			})
			_, err := b.open().Run(t.Context(), sandbox.Request{Code: "1"})
			if !errors.Is(err, sandbox.ErrInfra) || !strings.Contains(err.Error(), "runtime_image_uri") || b.e.Counters().Created != 0 {
				t.Errorf("%v", err)
			}
		}},
		{"R27 inputs that are no JSON", func(t *testing.T) {
			b := emulated(t, nil)
			_, err := b.open().Run(t.Context(), sandbox.Request{Code: "1", Inputs: map[string]any{"x": make(chan int)}})
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Status != sandbox.StatusInvalid || posts(b.e) != 0 {
				t.Errorf("%v, %d requests", err, posts(b.e))
			}
		}},
		{"R28 no replacement is polled", func(t *testing.T) {
			b := emulated(t, nil)
			b.run("1")
			for _, s := range b.e.Seen() {
				if strings.Contains(s.URI, "replacement") {
					t.Errorf("%+v", s)
				}
			}
		}},
		{"R29 a next page elsewhere", func(t *testing.T) {
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(`{"data":[{"id":"a"}],"next":"https://elsewhere.example/api/v2/workloads/?offset=1"}`))
			})
			if _, err := c.list(t.Context(), "workloads", nil); err == nil || !strings.Contains(err.Error(), "origin") {
				t.Errorf("%v", err)
			}
			if _, _, err := c.logs(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "origin") {
				t.Errorf("%v", err)
			}
		}},
		{"R30 an empty page with a next one", func(t *testing.T) {
			n := 0
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				_, _ = w.Write([]byte(`{"data":[],"next":"?offset=1"}`))
			})
			if _, err := c.list(t.Context(), "workloads", nil); err != nil || n != 1 {
				t.Errorf("%v, %d requests", err, n)
			}
			if _, _, err := c.logs(t.Context(), "x"); err != nil || n != 2 {
				t.Errorf("%v, %d requests", err, n)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.do(t)
		})
	}
}

// against is a client of a server that answers as a test has it.
func against(t *testing.T, answer http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return clientOf(t, server.URL)
}

func clientOf(t *testing.T, endpoint string) *client {
	t.Helper()
	cfg, base, err := Config{Endpoint: endpoint, Token: testToken, Instance: "test", speed: speed, requestLimit: 2 * time.Second}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return &client{base: base, token: testToken, http: cfg.httpClient(), log: cfg.Logger, clock: newClock(speed), limit: cfg.requestLimit}
}

func (b *bench) client() *client { return b.w.tenants[onlyKey(b.w)].client }

func onlyKey(w *Workload) (key [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key = range w.tenants {
		break
	}
	return key
}

// posts counts the requests to create.
func posts(e *workloadtest.Emulator) (n int) {
	for _, s := range e.Seen() {
		if s.Method == http.MethodPost && strings.Contains(s.URI, "/workloads/") {
			n++
		}
	}
	return n
}
