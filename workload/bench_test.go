package workload

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload/workloadtest"
	"mcp-sandbox/workload/workloadtest/plain"
)

const testToken = "token-1-of-the-tests"

// bench is a Workload in front of an emulated cluster. Its end is that of the
// test, which fails if anything is left there.
type bench struct {
	*testing.T
	e   *workloadtest.Emulator
	url string
	w   *Workload
	log *safeBuffer
}

// speed is how much faster than the platform the tests' times pass.
const speed = 100

// emulated makes a bench. change may be nil.
func emulated(t *testing.T, change func(*workloadtest.Config, *Config)) *bench {
	t.Helper()
	python, err := exec.LookPath("python3")
	sandboxtest.Require(t, err == nil, "no python3")
	ec := workloadtest.Config{Start: plain.Start, Python: python, Token: testToken, Speed: speed}
	b := &bench{T: t, log: &safeBuffer{}}
	wc := Config{
		Token: testToken, Image: "registry.example/sandbox:1", Mode: ModeOneShot, Instance: "test-" + t.Name(),
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})), speed: speed, requestLimit: 5 * time.Second,
	}
	if change != nil {
		change(&ec, &wc)
	}
	if b.e, err = workloadtest.New(ec); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b.e)
	b.url = server.URL
	if wc.Endpoint == "" {
		wc.Endpoint = server.URL
	}
	if b.w, err = New(wc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		b.clean()
		server.CloseClientConnections()
		server.Close()
		b.e.Close()
		if strings.Contains(b.log.String(), testToken) {
			t.Error("the token is in the log")
		}
		if t.Failed() && testing.Verbose() {
			t.Logf("the log:\n%s", b.log)
		}
	})
	return b
}

// clean fails the test where something is left on the cluster.
func (b *bench) clean() {
	b.Helper()
	var c workloadtest.Counters
	for range 200 { // a process that was told to end may take a moment
		c = b.e.Counters()
		if c.Processes == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if c.Processes+c.Workloads+c.Artifacts != 0 {
		b.Errorf("left behind: %d processes, %d workloads, %d artifacts", c.Processes, c.Workloads, c.Artifacts)
	}
}

// open is a session that ends with the test.
func (b *bench) open() sandbox.Session {
	b.Helper()
	s, err := b.w.Open(b.Context(), sandbox.Spec{ID: "s"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// run is one call that must not fail.
func (b *bench) run(code string) sandbox.Result {
	b.Helper()
	r, err := b.open().Run(b.Context(), sandbox.Request{Code: code, Timeout: 20 * time.Second})
	if err != nil {
		b.Fatalf("Run: %v", err)
	}
	return r
}

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
