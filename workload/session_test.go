package workload

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload/workloadtest"
)

func TestSession(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	if res := call1(t, s, "x = 41\nprint('hello')\nopen('made', 'w').write('here')"); res.Status != sandbox.StatusOK || res.Stdout != "hello\n" || res.State != sandbox.StateNew || res.Backend != "workload" || len(res.Files) != 1 {
		t.Errorf("%+v", res)
	}
	// The platform's credentials, and what the agent was packed in, are not in the code's environment.
	res := call1(t, s, "import os\n[x + 1, [k for k in os.environ if k.startswith(('OTEL', 'DRX', 'DR_', 'DATAROBOT', 'WORKLOAD'))]]")
	if string(res.Output) != `[42,[]]` || res.State != sandbox.StateKept || len(res.Files) != 0 || len(res.Notes) != 0 {
		t.Errorf("%s %+v", res.Output, res)
	}
}

// Where the platform refuses an entrypoint, the image's own program runs the agent.
func TestSessionByTheStockRunner(t *testing.T) {
	b, _ := remembering(t, func(ec *workloadtest.Config, _ *Config) { ec.Cluster.RefuseEntry = true })
	s := b.session()
	call1(t, s, "x = 41")
	if res := call1(t, s, "x + 1"); string(res.Output) != "42" || res.State != sandbox.StateKept {
		t.Errorf("%+v", res)
	}
}

// A container that is started again between the calls has lost all, and the next call says so.
func TestSessionLostBetweenCalls(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	call1(t, s, "x = 1\nopen('kept', 'w').write('k')")
	first := s.workloadID()
	if !b.e.Kill(first, false) {
		t.Fatal("there was nothing to kill")
	}
	waitFor(t, "the loss to be noticed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.live.client.Err() != nil
	})
	res := call1(t, s, "['x' in globals(), open('kept').read()]")
	if string(res.Output) != `[false,"k"]` || res.State != sandbox.StateLost || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "the container was lost") {
		t.Errorf("%s, %s, %q", res.Output, res.State, res.Notes)
	}
	if s.workloadID() == first {
		t.Error("the container that was lost is used again")
	}
	if res := call1(t, s, "1"); res.State != sandbox.StateKept {
		t.Errorf("state %s", res.State)
	}
}

func TestSessionLostInACall(t *testing.T) {
	for name, c := range map[string]struct {
		oom    bool
		status sandbox.Status
		says   string
	}{
		"killed":   {false, sandbox.StatusCrash, "The container ended while the code ran"},
		"by limit": {true, sandbox.StatusOOM, "memory limit of 512 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := remembering(t, nil)
			s := b.session()
			call1(t, s, "x = 1")
			begun := make(chan struct{})
			var once sync.Once
			go func() {
				<-begun
				b.e.Kill(s.workloadID(), c.oom)
			}()
			res, err := s.Run(t.Context(), sandbox.Request{Code: "import time\nprint('before\\n', end='')\ntime.sleep(60)", Progress: func(sandbox.Stream, []byte) { once.Do(func() { close(begun) }) }})
			if err != nil || res.Status != c.status || res.State != sandbox.StateLost || res.Stdout != "before\n" || !strings.Contains(res.Error, c.says) {
				t.Errorf("%+v, %v", res, err)
			}
			if res := call1(t, s, "'x' in globals()"); string(res.Output) != "false" || res.State != sandbox.StateNew {
				t.Errorf("after it: %+v", res)
			}
		})
	}
}

// A container of which nobody can say why it is gone is the wall's fault, and code may have run.
func TestSessionUnreachableInACall(t *testing.T) {
	b, m := remembering(t, func(ec *workloadtest.Config, _ *Config) { ec.Cluster.DetailsMissing = true })
	s := b.session()
	call1(t, s, "x = 1")
	m.meddle(func(req *http.Request, _ []byte, _ func() (*http.Response, []byte)) (*http.Response, error) {
		return answered(req, http.StatusNotFound, nil), nil
	})
	_, err := s.Run(t.Context(), sandbox.Request{Code: "x = 2"})
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || !e.Ran || !errors.Is(err, sandbox.ErrInfra) {
		t.Fatalf("%v", err)
	}
	m.meddle(nil)
	if res := call1(t, s, "'x' in globals()"); string(res.Output) != "false" || res.State != sandbox.StateLost || len(res.Notes) == 0 {
		t.Errorf("%+v", res)
	}
}

// A container that does not answer any more is not said to have run out of time alone.
func TestSessionSilentInACall(t *testing.T) {
	t.Parallel() // it waits for most of its time
	b, m := remembering(t, nil)
	s := b.session()
	call1(t, s, "x = 1")
	m.meddle(func(req *http.Request, _ []byte, _ func() (*http.Response, []byte)) (*http.Response, error) {
		return answered(req, http.StatusBadGateway, nil), nil
	})
	res, err := s.Run(t.Context(), sandbox.Request{Code: "x = 2", Timeout: time.Second})
	if err != nil || res.Status != sandbox.StatusTimeout || res.State != sandbox.StateLost || !strings.HasPrefix(res.Error, "The time limit of 1s was reached, and the container was lost: ") || !strings.Contains(res.Error, "does not answer") {
		t.Errorf("%+v, %v", res, err)
	}
	// Nobody knows whether the code was late, and nothing of it is kept.
	if promises := res.Error + strings.Join(res.Notes, " "); strings.Contains(promises, "kept") || strings.Contains(promises, "tries again") || strings.Contains(promises, "did not stop") {
		t.Errorf("%q %q", res.Error, res.Notes)
	}
	m.meddle(nil)
	if res := call1(t, s, "'x' in globals()"); string(res.Output) != "false" || res.State != sandbox.StateNew {
		t.Errorf("after it: %+v", res)
	}
}

// Whatever the way does to questions and answers, each request is run once.
func TestSessionRunsEachCallOnce(t *testing.T) {
	for name, with := range map[string]func(n int64, req *http.Request, send func() (*http.Response, []byte)) (*http.Response, error){
		"answers lost": func(n int64, _ *http.Request, send func() (*http.Response, []byte)) (*http.Response, error) {
			res, _ := send()
			if n%2 == 0 {
				return nil, errors.New("connection reset by peer")
			}
			return res, nil
		},
		"questions lost": func(n int64, req *http.Request, send func() (*http.Response, []byte)) (*http.Response, error) {
			if n%2 == 0 {
				return answered(req, http.StatusBadGateway, []byte("<html><title>502</title>")), nil
			}
			res, _ := send()
			return res, nil
		},
		"questions repeated": func(n int64, _ *http.Request, send func() (*http.Response, []byte)) (*http.Response, error) {
			first, _ := send()
			if n%2 == 0 {
				return first, nil
			}
			second, _ := send()
			return second, nil
		},
		"too many requests": func(n int64, req *http.Request, send func() (*http.Response, []byte)) (*http.Response, error) {
			if n%3 != 0 {
				return answered(req, http.StatusTooManyRequests, nil), nil
			}
			res, _ := send()
			return res, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m := remembering(t, nil)
			s := b.session()
			call1(t, s, "n = 0")
			var count atomic.Int64
			m.meddle(func(req *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
				return with(count.Add(1), req, send)
			})
			for i := range 10 {
				res := call1(t, s, "n += 1\nprint('line', n)\nopen('f%d' % n, 'w').write('x' * n)\nn")
				if string(res.Output) != strconv.Itoa(i+1) || res.Stdout != "line "+strconv.Itoa(i+1)+"\n" || res.State != sandbox.StateKept || len(res.Files) != 1 {
					t.Errorf("call %d: %+v", i, res)
				}
			}
			m.meddle(nil)
		})
	}
}

// Nobody but the agent can answer: what is forged, old or another's ends the session's container,
// and is never believed.
func TestSessionForgeries(t *testing.T) {
	for name, forge := range map[string]func(r *remote, b, old []byte) (int, []byte){
		"a bit":               func(_ *remote, b, _ []byte) (int, []byte) { b[len(b)-1] ^= 1; return 200, b },
		"a number":            func(_ *remote, b, _ []byte) (int, []byte) { b[bootSize+7] ^= 1; return 200, b },
		"an old answer":       func(_ *remote, _, old []byte) (int, []byte) { return 200, old },
		"no seal":             func(_ *remote, b, _ []byte) (int, []byte) { return 200, b[sealFixed:] },
		"nothing":             func(_ *remote, _, _ []byte) (int, []byte) { return 200, nil },
		"cut short":           func(_ *remote, b, _ []byte) (int, []byte) { return 200, b[:len(b)/2] },
		"a page":              func(_ *remote, _, _ []byte) (int, []byte) { return 200, []byte("<html>welcome</html>") },
		"a start of its own":  func(_ *remote, b, _ []byte) (int, []byte) { return 409, b[:bootSize] },
		"another key's":       func(r *remote, _, _ []byte) (int, []byte) { return 200, forged(r.seal.boot) },
		"another boot's":      func(_ *remote, _, _ []byte) (int, []byte) { return 200, forged([bootSize]byte{1}) },
		"not for this caller": func(_ *remote, _, _ []byte) (int, []byte) { return 403, []byte(`{"message":"no"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m := remembering(t, nil)
			s := b.session()
			var mu sync.Mutex
			var old []byte // guarded by mu
			m.meddle(func(_ *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
				res, body := send()
				mu.Lock()
				old = bytes.Clone(body)
				mu.Unlock()
				return res, nil
			})
			call1(t, s, "x = 1")
			r := s.remote
			m.meddle(func(req *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
				_, body := send()
				if len(body) < sealFixed {
					return answered(req, http.StatusBadGateway, nil), nil
				}
				mu.Lock()
				before := bytes.Clone(old)
				mu.Unlock()
				status, body := forge(r, bytes.Clone(body), before)
				return answered(req, status, body), nil
			})
			res, err := s.Run(t.Context(), sandbox.Request{Code: "x"})
			if err == nil && res.Status == sandbox.StatusOK {
				t.Fatalf("believed: %+v", res)
			}
			m.meddle(nil)
			if res := call1(t, s, "'x' in globals()"); string(res.Output) != "false" || res.State == sandbox.StateKept {
				t.Errorf("after it: %+v", res)
			}
		})
	}
}

// forged is an answer of somebody who knows all but the key.
func forged(boot [bootSize]byte) []byte {
	s := newSeal()
	s.boot = boot
	m, _ := s.close("/v1/talk", 3, map[string]any{"in": 0, "out": []int{0, 0}}, nil)
	return m
}

// The agent takes questions from one client alone, and each once.
func TestAgentRefuses(t *testing.T) {
	b, m := remembering(t, nil)
	s := b.session()
	var mu sync.Mutex
	var question []byte // the last one
	m.meddle(func(req *http.Request, body []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/v1/changes") {
			mu.Lock()
			question = bytes.Clone(body)
			mu.Unlock()
		}
		res, _ := send()
		return res, nil
	})
	r := s.remote
	if _, err := r.ask(t.Context(), "/v1/changes", map[string]any{"version": 0}, nil, nil); err != nil {
		t.Fatal(err)
	}
	m.meddle(nil)
	post := func(path string, body []byte) answer {
		t.Helper()
		a, err := r.client.exchange(t.Context(), exchange{method: http.MethodPost, at: r.endpoint.JoinPath(path), body: body, max: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	mu.Lock()
	again := bytes.Clone(question)
	mu.Unlock()
	if a := post("v1/changes", again); a.status != 200 || !bytes.Contains(a.body, []byte(`"replayed"`)) || bytes.Contains(a.body, []byte(`"changed"`)) {
		t.Errorf("a question that came twice: %d %q", a.status, a.body)
	}
	changed := bytes.Clone(again)
	changed[bootSize+7]++
	if a := post("v1/changes", changed); a.status != http.StatusForbidden {
		t.Errorf("another number: %d", a.status)
	}
	if a := post("v1/fetch", again); a.status != http.StatusForbidden {
		t.Errorf("another path: %d", a.status)
	}
	changed = bytes.Clone(again)
	changed[0]++
	if a := post("v1/changes", changed); a.status != http.StatusConflict {
		t.Errorf("another boot: %d", a.status)
	}
	if a := post("v1/changes", []byte("short")); a.status != http.StatusBadRequest {
		t.Errorf("no message: %d", a.status)
	}
	key := newSeal().key
	if a := post("v1/hello", key[:]); a.status != http.StatusConflict {
		t.Errorf("a second key: %d", a.status)
	}
	if err := r.hello(t.Context()); err != nil {
		t.Errorf("the same key: %v", err)
	}
	if res := call1(t, s, "40 + 2"); string(res.Output) != "42" {
		t.Errorf("after it: %+v", res)
	}
}

// An agent that nobody speaks to ends by itself, whatever becomes of its client.
func TestAgentLease(t *testing.T) {
	b, _ := remembering(t, func(_ *workloadtest.Config, wc *Config) { wc.lease = time.Second })
	r, err := b.w.newRemote(t.Context(), s1(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.deployment.remove()
	var e *lostError
	waitFor(t, "the agent to end", func() bool {
		time.Sleep(1500 * time.Millisecond)
		_, err := r.once(t.Context(), "/v1/changes", map[string]any{"version": 0}, nil, nil)
		return errors.As(err, &e) && e.restarted
	})
}

// s1 is the tenant of the tests.
func s1(b *bench) *tenant {
	for _, t := range b.w.holdAll() {
		b.w.drop(t)
		return t
	}
	return nil
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Output is capped where it comes from: of a flood, the ends come here, and how much it was.
func TestSessionOutputIsBounded(t *testing.T) {
	b, m := remembering(t, nil)
	s := b.session()
	var came atomic.Int64
	m.meddle(func(_ *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
		res, body := send()
		came.Add(int64(len(body)))
		return res, nil
	})
	res := call1(t, s, "import os\nprint('first')\nfor _ in range(500): os.write(1, b'x' * 99_999 + b'\\n')\nprint('last')\nNone")
	if want := int64(500*100_000 + 11); res.Truncated.Stdout.Produced != want || !strings.HasPrefix(res.Stdout, "first\nxxx") || !strings.HasSuffix(res.Stdout, "xxx\nlast\n") {
		t.Errorf("%+v of %d", res.Truncated, want)
	}
	t.Logf("%d bytes came of %d", came.Load(), res.Truncated.Stdout.Produced)
}

// A gateway that waits less long than the agent would is no fault.
func TestSessionBehindAnImpatientGateway(t *testing.T) {
	b, _ := remembering(t, func(ec *workloadtest.Config, _ *Config) { ec.Cluster.InvokeTimeout = 150 * time.Second }) // 1.5 s of ours
	s := b.session()
	res := call1(t, s, "import time\ntime.sleep(4)\nprint('done')")
	if res.Status != sandbox.StatusOK || res.Stdout != "done\n" {
		t.Errorf("%+v", res)
	}
}

// The agent runs on whatever Python an image has.
func TestAgentOnEveryPython(t *testing.T) {
	list, set := os.LookupEnv("MCP_SANDBOX_TEST_PYTHONS")
	sandboxtest.Require(t, set, "MCP_SANDBOX_TEST_PYTHONS, which `make test` sets")
	for _, python := range filepath.SplitList(list) {
		t.Run(python, func(t *testing.T) {
			b, _ := remembering(t, func(ec *workloadtest.Config, _ *Config) { ec.Python = python })
			s := b.session()
			if err := s.Root().WriteFile("given", []byte("g"), 0o644); err != nil {
				t.Fatal(err)
			}
			call1(t, s, "x = open('given').read()\nopen('made', 'w').write('m')")
			res := call1(t, s, "import os\nprint('x' * 300_000)\nos.kill(os.getpid(), 9)")
			if res.Status != sandbox.StatusCrash || res.State != sandbox.StateRestored || res.Truncated.Stdout.Produced != 300_001 {
				t.Errorf("%+v", res)
			}
			if res := call1(t, s, "x"); string(res.Output) != `"g"` || res.State != sandbox.StateKept {
				t.Errorf("%+v", res)
			}
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if res := call1(t, s, "'x' in globals(), open('made').read()"); string(res.Output) != `[false,"m"]` || res.State != sandbox.StateNew {
				t.Errorf("%+v", res)
			}
		})
	}
}
