package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload"
)

// A caller's DataRobot token reaches the remote sandbox by the request's context
// alone, and only where it is asked for.
func TestCallerToken(t *testing.T) {
	for _, on := range []bool{true, false} {
		var seen http.Header
		var denied error
		w, err := workload.New(workload.Config{Endpoint: "http://127.0.0.1:1", CallerToken: true, Instance: "test", Mode: workload.ModeOneShot})
		if err != nil {
			t.Fatal(err)
		}
		g := &guard{self: "me", callers: on, body: bodyTime, log: slog.New(slog.NewTextHandler(t.Output(), nil)), next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = r.Header.Clone()
			s, err := w.Open(r.Context(), sandbox.Spec{ID: "s"})
			if denied = err; err == nil {
				_ = s.Close()
			}
		})}
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", nil)
		r.Header.Set("X-DataRobot-Api-Token", "ann-s-token")
		g.ServeHTTP(httptest.NewRecorder(), r)
		if (denied == nil) != on {
			t.Errorf("asked for %v: %v", on, denied)
		}
		if seen.Get("X-DataRobot-Api-Token") != "" {
			t.Error("the header is passed on")
		}
		if denied != nil && (strings.Contains(denied.Error(), "ann-s-token") || !strings.Contains(denied.Error(), "X-DataRobot-Api-Token")) {
			t.Errorf("%v", denied)
		}
		// Its own sweep, of an endpoint that nobody serves, ends with it.
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
