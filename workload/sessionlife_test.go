package workload

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// What is given up while a container is awaited leaves nothing.
func TestSessionGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		cluster workloadtest.Cluster
		after   time.Duration
		says    string
	}{
		"while it is pulled":    {workloadtest.Cluster{Pull: time.Hour}, 300 * time.Millisecond, ""},
		"at once":               {workloadtest.Cluster{}, 0, ""},
		"no node":               {workloadtest.Cluster{Unschedulable: true}, 0, "Unschedulable"},
		"a refused image":       {workloadtest.Cluster{RefusedImages: []string{"registry.example/sandbox:1"}}, 0, "not permitted"},
		"not reachable":         {workloadtest.Cluster{InvokeDenied: true}, 0, "403"},
		"at another's origin":   {workloadtest.Cluster{EndpointBase: "https://elsewhere.example"}, 0, "another origin"},
		"no right to the API":   {workloadtest.Cluster{NotEntitled: true}, 0, "403"},
		"killed for its memory": {workloadtest.Cluster{OOM: true}, 0, "again and again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := remembering(t, func(ec *workloadtest.Config, wc *Config) {
				ec.Cluster = c.cluster
				if c.says != "" {
					wc.Provisioning = 300 * time.Second
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			if c.says == "" {
				time.AfterFunc(c.after, cancel)
			}
			defer cancel()
			s, err := b.w.Open(ctx, sandbox.Spec{ID: "s"})
			if err == nil {
				_ = s.Close()
				t.Fatal("opened")
			}
			if c.says == "" && !errors.Is(err, context.Canceled) || c.says != "" && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, sandbox.ErrInfra)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A container that is there, and whose interpreter does not start, is no session's:
// it goes with the error.
func TestSessionThatDoesNotOpen(t *testing.T) {
	for _, name := range []string{"refused", "given up"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m := remembering(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m.meddle(func(req *http.Request, _ []byte, send func() (*http.Response, []byte)) (*http.Response, error) {
				if !strings.HasSuffix(req.URL.Path, "/v1/start") {
					res, _ := send()
					return res, nil
				}
				if name == "given up" {
					cancel()
				}
				return answered(req, http.StatusServiceUnavailable, nil), nil
			})
			s, err := b.w.Open(ctx, sandbox.Spec{ID: "s"})
			if err == nil {
				_ = s.Close()
				t.Fatal("opened")
			}
			if name == "refused" && !errors.Is(err, sandbox.ErrInfra) || name == "given up" && !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			} // the bench looks whether anything is left
		})
	}
}

// Close does not wait for a container that is being made.
func TestSessionClosedWhileItStarts(t *testing.T) {
	b, _ := remembering(t, func(ec *workloadtest.Config, _ *Config) { ec.Cluster.Pull = time.Hour })
	s, err := b.w.Open(t.Context(), sandbox.Spec{ID: "s", Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(context.WithoutCancel(t.Context()), sandbox.Request{Code: "1"})
		done <- err
	}()
	waitFor(t, "the container to be asked for", func() bool { return b.e.Counters().Created > 0 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// The platform ends a draft after eight hours; the session does so before it, and says so.
func TestSessionRetires(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	call1(t, s, "x = 1")
	s.remote.expires = time.Now()
	first := s.workloadID()
	res := call1(t, s, "'x' in globals()")
	if string(res.Output) != "false" || res.State != sandbox.StateLost || len(res.Notes) != 1 || s.workloadID() == first {
		t.Errorf("%+v", res)
	}
}
