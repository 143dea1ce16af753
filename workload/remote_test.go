package workload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload/workloadtest"
	"mcp-sandbox/workload/workloadtest/plain"
)

func TestInvokeURL(t *testing.T) {
	base, _ := url.Parse("https://app.example.com/api/v2/")
	for endpoint, want := range map[string]string{
		"https://app.example.com/api/v2/endpoints/workloads/6a/":         "https://app.example.com/api/v2/endpoints/workloads/6a/",
		"https://app.example.com/api/v2/endpoints/workloads/6a":          "https://app.example.com/api/v2/endpoints/workloads/6a/",
		"https://APP.example.com:443/api/v2/endpoints/workloads/6a/?p=1": "https://APP.example.com:443/api/v2/endpoints/workloads/6a/",
		"": "", "/api/v2/endpoints/workloads/6a/": "", "http://app.example.com/api/v2/endpoints/workloads/6a/": "",
		"https://app.example.com.evil/api/v2/endpoints/workloads/6a/": "", "https://evil/api/v2/endpoints/workloads/6a/": "",
		"https://app.example.com@evil/api/v2/endpoints/workloads/6a/": "", "https://app.example.com:8443/api/v2/endpoints/workloads/6a/": "",
		"https://u:p@app.example.com/api/v2/endpoints/workloads/6a/":     "",
		"https://app.example.com/api/v2/endpoints/workloads/":            "",
		"https://app.example.com/api/v2/endpoints/workloads/../../users": "",
		"https://app.example.com/api/v2/users/":                          "",
		"https://app.example.com/x/api/v2/endpoints/workloads/6a/":       "",
	} {
		u, err := invokeURL(base, endpoint)
		if got := ""; err != nil != (want == "") || err == nil && u.String() != want {
			if u != nil {
				got = u.String()
			}
			t.Errorf("%s: %q, %v; want %q", endpoint, got, err, want)
		}
	}
}

// The agent has to fit the variables of a container.
func TestAgentVars(t *testing.T) {
	vars, err := agentVars()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars {
		if n := len(v.Name) + len(v.Value) + 2; n > 128<<10 {
			t.Errorf("%s has %d bytes", v.Name, n)
		}
	}
	if len(vars) > 3 {
		t.Errorf("%d variables", len(vars))
	}
	t.Logf("%d variables, the last has %d bytes", len(vars), len(vars[len(vars)-1].Value))
}

// What a call costs beyond the way there and back: compare the two by their ratio.
func BenchmarkSession(b *testing.B) {
	s := benchSession(b)
	warm := sandbox.Request{Code: "x"}
	if _, err := s.Run(b.Context(), sandbox.Request{Code: "x = 1"}); err != nil {
		b.Fatal(err)
	}
	median := map[string]time.Duration{}
	call := func() error { _, err := s.Run(b.Context(), warm); return err }
	for _, c := range []struct {
		name  string
		pause time.Duration // before each: who calls thinks, and a checkpoint is made meanwhile
		do    func() error
	}{
		{"empty", 0, func() error { return knockOnce(s) }},
		{"empty after a pause", 50 * time.Millisecond, func() error { return knockOnce(s) }},
		{"call", 0, call},
		{"call after a pause", 50 * time.Millisecond, call},
	} {
		b.Run(c.name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				time.Sleep(c.pause)
				begun := time.Now()
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(begun))
			}
			median[c.name] = middle(all)
			b.ReportMetric(float64(median[c.name].Microseconds()), "µs/median")
		})
	}
	if empty := median["empty after a pause"]; empty > 0 {
		b.Logf("after a pause a warm call costs %.1f times an empty request, and %v more", float64(median["call after a pause"])/float64(empty), median["call after a pause"]-empty)
	}
}

// What comes from a container may be anything.
func FuzzSealOpen(f *testing.F) {
	s := seal{key: [keySize]byte{1, 2, 3}} // the same in each process
	f.Add([]byte{}, uint64(0))
	f.Add(make([]byte, sealFixed+4), uint64(0))
	f.Fuzz(func(t *testing.T, m []byte, number uint64) {
		was, m := s, bytes.Clone(m)
		if _, _, err := was.open("/v1/talk", number, m); err == nil {
			t.Fatal("a message without the key was opened")
		}
		// With the right code whatever else is wrong must be noticed.
		if len(m) >= sealFixed+4 {
			copy(m[bootSize+8:], s.code('a', "/v1/talk", m[:bootSize], m[bootSize:bootSize+8], m[sealFixed:]))
			head, data, err := was.open("/v1/talk", number, m)
			if err == nil && len(head)+len(data)+4+sealFixed != len(m) {
				t.Fatal("some of it is missing")
			}
		}
	})
}

func FuzzTalkAnswer(f *testing.F) {
	f.Add([]byte(`{"in":5,"out":[0,3],"stdout":[[0,2],[9,1]],"stderr":[],"ended":null,"kills":0}`), []byte("abcdefgh"))
	f.Add([]byte(`{"in":-1,"out":[-5,9223372036854775807],"stdout":[[9223372036854775807,1]],"ended":{"exit":1}}`), []byte("abc"))
	f.Add([]byte(`{"out":[0,0],"files":{"version":1,"full":true,"changed":[["a","f",1,2]],"gone":["b"],"left":{"links":1}}}`), []byte{})
	f.Fuzz(func(t *testing.T, head, data []byte) {
		var a talkAnswer
		if json.Unmarshal(head, &a) != nil {
			return
		}
		out, w := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, out) }()
		l := &link{r: &remote{}, out: w, output: kernel.NewFedOutput(1000), version: 1}
		l.queue, l.sent = []byte("12345"), 5
		before := l.taken
		_ = l.take(round{answer: a, data: data})
		for i := range before {
			if l.taken[i] < before[i] {
				t.Fatalf("offsets went back: %v", l.taken)
			}
		}
		if l.acked < 0 || l.acked+int64(len(l.queue)) != 5 || l.sent < l.acked {
			t.Fatalf("acked %d, sent %d, queue %d", l.acked, l.sent, len(l.queue))
		}
		w.Close()
	})
}

func FuzzChanges(f *testing.F) {
	f.Add([]byte(`{"version":1,"full":true,"changed":[["a","f",1,2],["../x","d",0,0],["b/c","f",-1,0]],"gone":["b",".."],"left":{"links":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c changes
		if json.Unmarshal(b, &c) != nil {
			return
		}
		root := openRoot(t)
		m := newMirror(root, "", 1<<20)
		if err := root.WriteFile("stays", []byte("here"), 0o644); err != nil {
			t.Fatal(err)
		}
		for i := range c.Changed { // files would be asked for
			c.Changed[i].Kind = "d"
		}
		if len(c.Changed) > 50 {
			return
		}
		_, _, _ = m.pull(t.Context(), nil, &c)
		if got, err := root.ReadFile("stays"); err != nil || string(got) != "here" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

func TestBackgroundOutputBetweenCalls(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	call1(t, s, "import threading, time\ndef late():\n    time.sleep(0.3)\n    print('late')\nthreading.Thread(target=late).start()")
	time.Sleep(2 * time.Second)
	res := call1(t, s, "print('now')")
	if res.Stdout != "late\nnow\n" || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "the first 5 bytes of output came from the background") {
		t.Errorf("%q %q", res.Stdout, res.Notes)
	}
}

// A warm call that changes no file costs one round trip.
func TestSessionCallIsOneRoundTrip(t *testing.T) {
	b, m := remembering(t, nil)
	s := b.session()
	call1(t, s, "x = 41\nopen('f', 'w').write('f')")
	var asked atomic.Int64
	m.meddle(func(_ *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
		asked.Add(1)
		res, _ := send()
		return res, nil
	})
	var each []int64 // requests for each call
	for range 21 {
		before := asked.Load()
		if res := call1(t, s, "print('x' * 1000)\nx + 1"); string(res.Output) != "42" || len(res.Stdout) != 1001 {
			t.Errorf("%+v", res)
		}
		each = append(each, asked.Load()-before)
	}
	// On a slow machine some have a question between, or wait for longer than the agent lingers.
	if slices.Min(each) != 1 {
		t.Errorf("requests for each call: %v", each)
	}
}

// A question without news is asked now and then, not all the time.
func TestSessionIsQuietWhenIdle(t *testing.T) {
	t.Parallel() // it waits for most of its time
	b, _ := remembering(t, nil)
	s := b.session()
	call1(t, s, "x = 1")
	time.Sleep(1500 * time.Millisecond) // the checkpoint is told of
	before := b.e.Counters().Requests
	time.Sleep(3 * time.Second)
	if n := b.e.Counters().Requests - before; n > 2 {
		t.Errorf("%d requests in 3 s of an idle session", n)
	}
}

func knockOnce(s *filedSession) error {
	r := s.remote
	_, err := r.client.exchange(context.Background(), exchange{method: http.MethodGet, at: r.endpoint.JoinPath("healthz"), max: 100})
	return err
}

// benchSession is a session on an emulated cluster of the platform's own pace.
func benchSession(b *testing.B) *filedSession {
	b.Helper()
	python, err := exec.LookPath("python3")
	sandboxtest.Require(b, err == nil, "no python3")
	e, err := workloadtest.New(workloadtest.Config{Start: plain.Start, Python: python, Token: testToken, Speed: speed})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(e)
	w, err := New(Config{Endpoint: server.URL, Token: testToken, Mode: ModeSession, Instance: "bench", WorkDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	s, err := w.Open(b.Context(), sandbox.Spec{ID: "s"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(s.Close(), w.Close()); err != nil {
			b.Error(err)
		}
		server.Close()
		e.Close()
	})
	return s.(*filedSession)
}

func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func openRoot(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// A first process hears no signal that it does not ask for: the loader asks for
// SIGTERM before it does anything that takes time.
func TestLoaderHearsTermination(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := json.NewEncoder(z).Encode(map[string]any{"agent": map[string]string{"main.py": "print('up', flush=True)\nimport time\ntime.sleep(60)"}}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-u", "-c", agentLoader)
	cmd.Env = append(os.Environ(), "DRX_BOOT_0="+base64.StdEncoding.EncodeToString(packed.Bytes()))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil { // by the signal, if nobody heard it
		t.Error(err)
	}
}
