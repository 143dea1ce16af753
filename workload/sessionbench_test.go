package workload

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// meddler stands between a client and the cluster.
type meddler struct {
	mu   sync.Mutex
	with func(req *http.Request, body []byte, send func() (*http.Response, []byte)) (*http.Response, error) // nil = nothing is done
}

// RoundTrip implements http.RoundTripper.
func (m *meddler) RoundTrip(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	with := m.with
	m.mu.Unlock()
	if with == nil || !strings.Contains(req.URL.Path, "/endpoints/") {
		return http.DefaultTransport.RoundTrip(req)
	}
	body, _ := io.ReadAll(req.Body)
	var failed error
	res, err := with(req, body, func() (*http.Response, []byte) {
		again := req.Clone(req.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		res, err := http.DefaultTransport.RoundTrip(again)
		if err != nil {
			failed = err
			return nil, nil
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			failed = err
			return nil, nil
		}
		res.Body = io.NopCloser(bytes.NewReader(b))
		return res, b
	})
	if failed != nil {
		return nil, failed
	}
	return res, err
}

func (m *meddler) meddle(with func(*http.Request, []byte, func() (*http.Response, []byte)) (*http.Response, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.with = with
}

// answered makes an answer of whoever meddles.
func answered(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}

// remembering is a bench of sessions that remember, and who stands before it.
func remembering(t *testing.T, change func(*workloadtest.Config, *Config)) (*bench, *meddler) {
	t.Helper()
	m := &meddler{}
	return emulated(t, func(ec *workloadtest.Config, wc *Config) {
		wc.Mode, wc.WorkDir, wc.HTTP, wc.requestLimit = ModeSession, t.TempDir(), &http.Client{Transport: m}, 15*time.Second
		wc.Provisioning = 6000 * time.Second // the code in containers is not sped up
		if change != nil {
			change(ec, wc)
		}
	}), m
}

// session opens one that ends with the test.
func (b *bench) session() *filedSession {
	b.Helper()
	s, err := b.w.Open(b.Context(), sandbox.Spec{ID: randomName()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	return s.(*filedSession)
}

// id is that of the session's workload.
func (s *session) workloadID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote.deployment.ID
}

// call is one that must not fail.
func call1(t testing.TB, s sandbox.Session, code string) sandbox.Result {
	t.Helper()
	res, err := s.Run(context.WithoutCancel(t.Context()), sandbox.Request{Code: code})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return res
}
