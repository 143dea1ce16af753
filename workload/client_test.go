package workload

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string // or a part of what is wrong with it
		bad  bool
	}{
		{cfg: Config{Endpoint: "https://app.example.com"}, want: "https://app.example.com/api/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com/"}, want: "https://app.example.com/api/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com/api/v2"}, want: "https://app.example.com/api/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com/api/v2//"}, want: "https://app.example.com/api/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com/sub"}, want: "https://app.example.com/sub/api/v2/"},
		{cfg: Config{Endpoint: "http://127.0.0.1:8080"}, want: "http://127.0.0.1:8080/api/v2/"},
		{cfg: Config{Endpoint: "http://inside/api/v2", DangerouslyAllowHTTP: true}, want: "http://inside/api/v2/"},
		{cfg: Config{Endpoint: "/api/v2", PublicEndpoint: "https://app.example.com/api/v2"}, want: "https://app.example.com/api/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com/api/v2", APIBase: "/other/v2"}, want: "https://app.example.com/other/v2/"},
		{cfg: Config{Endpoint: "https://app.example.com", APIBase: "https://api.example.com/v2/"}, want: "https://api.example.com/v2/"},
		{cfg: Config{}, want: "set DATAROBOT_ENDPOINT", bad: true},
		{cfg: Config{Endpoint: "/api/v2"}, want: "a path without a host", bad: true},
		{cfg: Config{Endpoint: "app.example.com"}, want: "no http or https address", bad: true},
		{cfg: Config{Endpoint: "ftp://app.example.com"}, want: "no http or https address", bad: true},
		{cfg: Config{Endpoint: "https://me:secret@app.example.com"}, want: "an address alone", bad: true},
		{cfg: Config{Endpoint: "https://app.example.com?x=1"}, want: "an address alone", bad: true},
		{cfg: Config{Endpoint: "http://app.example.com"}, want: "unencrypted", bad: true},
		{cfg: Config{Endpoint: "https://[::1"}, want: "no address", bad: true},
	} {
		base, err := c.cfg.base()
		switch {
		case c.bad && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		case !c.bad && (err != nil || base.String() != c.want):
			t.Errorf("%+v: %v, %v, want %s", c.cfg, base, err, c.want)
		}
	}
	_, err := New(Config{Mode: "x", Security: "y", Token: "a b", Image: "a b", Memory: 1, CPU: -1, Provisioning: 1})
	for _, part := range []string{"DATAROBOT_ENDPOINT", "DATAROBOT_API_TOKEN", "workload-mode", "workload-security-context", "workload-image", "workload-memory", "workload-cpu", "provisioning", "instance"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not said: %v", part, err)
		}
	}
	for _, cpu := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e9} {
		if _, err := New(Config{Endpoint: "https://app.example.com", Token: "t", Instance: "i", CPU: cpu}); err == nil || !strings.Contains(err.Error(), "workload-cpu") {
			t.Errorf("%v cores: %v", cpu, err)
		}
	}
	if _, err := New(Config{Endpoint: "https://app.example.com", Instance: "i"}); err == nil || !strings.Contains(err.Error(), "set DATAROBOT_API_TOKEN") {
		t.Errorf("no token: %v", err)
	}
}

func TestErrorBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"message": "Invalid API key"}`:                                                                       "Invalid API key",
		`{"detail": "Requested replicas (4) exceeds the maximum allowed (3)."}`:                                "Requested replicas (4) exceeds the maximum allowed (3).",
		`{"detail": [{"loc": ["body","name"], "msg": "too long", "type": "x", "input": {"a": 1}, "ctx": {}}]}`: "body.name: too long",
		`{"detail": [{"path": "artifactId", "message": "Artifact not found", "code": "invalid"}]}`:             "artifactId: Artifact not found",
		`{"detail": ["Cannot replace with the same artifact", "and more"]}`:                                    "Cannot replace with the same artifact; and more",
		`{"detail": {"message": "one object"}}`:                                                                "one object",
		`<html><head><TITLE>502 Bad Gateway</TITLE></head></html>`:                                             "a page, not the API: 502 Bad Gateway",
		`<html>`:                  "a page, not the API",
		`gone` + "\x1b[31m\n\xff": "gone [31m",
		``:                        "no body",
		`{"code": "MISSING_USE_CASE", "message": "which?"}`: "MISSING_USE_CASE: which?",
		`{"detail": 5}`: `{"detail": 5}`,
	} {
		code, detail := errorBody([]byte(body))
		if code != "" {
			detail = code + ": " + detail
		}
		if detail != want {
			t.Errorf("%s: %q, want %q", body, detail, want)
		}
	}
}

// Which answers are asked for again, and how often.
func TestRetries(t *testing.T) {
	for status, want := range map[int]int{400: 1, 401: 1, 403: 1, 404: 1, 409: 1, 422: 1, 408: 3, 425: 3, 429: 3, 500: 3, 502: 3, 503: 3, 504: 3} {
		n := 0
		c := against(t, func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(status) })
		err := c.do(t.Context(), call{method: http.MethodGet, path: "x/", out: new(any), attempts: 3})
		var e *APIError
		if !errors.As(err, &e) || e.Status != status || n != want || e.Retryable != (want > 1) {
			t.Errorf("%d: %d requests, %v", status, n, err)
		}
	}
	var times []time.Time
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		times = append(times, time.Now())
		if len(times) == 1 {
			w.Header().Set("Retry-After", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(`{}`))
	})
	if err := c.do(t.Context(), call{method: http.MethodGet, path: "x/", out: new(any), attempts: 2}); err != nil {
		t.Fatal(err)
	}
	if d := times[1].Sub(times[0]); d < 20*time.Second/speed {
		t.Errorf("asked again after %v, Retry-After was %v", d, 20*time.Second/speed)
	}
	for value, want := range map[string]time.Duration{"": 0, "5": 5 * time.Second, "-1": 0, "99999": maxPause, "x": 0, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): maxPause} {
		if got := retryAfter(value, time.Now()); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
	for attempt := range 40 {
		if d := backoff(attempt, nil); d <= 0 || d > lastWait+time.Millisecond {
			t.Errorf("attempt %d: %v", attempt, d)
		}
	}
}

// A redirect keeps all of the request, and never leaves the origin.
func TestRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the token went elsewhere: %s %s", r.Method, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		method, to string
		status     int
		ok         bool
	}{
		"308 of a POST":        {"POST", "/api/v2/there/", 308, true},
		"307 of a POST":        {"POST", "/api/v2/there/", 307, true},
		"302 of a POST":        {"POST", "/api/v2/there/", 302, false},
		"303 of a POST":        {"POST", "/api/v2/there/", 303, false},
		"301 of a GET":         {"GET", "/api/v2/there/", 301, true},
		"308 of a DELETE":      {"DELETE", "there/", 308, true},
		"to another origin":    {"POST", elsewhere.URL + "/api/v2/there/", 308, false},
		"to a user's origin":   {"GET", "http://a@127.0.0.1/", 308, false},
		"to another scheme":    {"GET", "https://127.0.0.1/", 308, false},
		"for ever":             {"GET", "/api/v2/here/", 308, false},
		"without an address":   {"GET", "", 308, false},
		"304 leads nowhere":    {"GET", "/api/v2/there/", 300, false},
		"to //another origin":  {"GET", strings.TrimPrefix(elsewhere.URL, "http:") + "/there/", 308, false},
		"with a broken target": {"GET", "http://[::1", 308, false},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			cl := against(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/there/") {
					body := make([]byte, 100)
					n, _ := r.Body.Read(body)
					got = r.Method + " " + r.Header.Get("Authorization") + " " + string(body[:n])
					_, _ = w.Write([]byte(`{}`))
					return
				}
				if c.to != "" {
					w.Header().Set("Location", c.to)
				}
				w.WriteHeader(c.status)
			})
			r := call{method: c.method, path: "here/", out: new(any)}
			want := c.method + " Bearer " + testToken + " "
			if c.method == "POST" {
				r.in, want = map[string]int{"a": 1}, want+`{"a":1}`
			}
			err := cl.do(t.Context(), r)
			if c.ok && (err != nil || got != want) || !c.ok && (err == nil || got != "") {
				t.Errorf("%v, %q, want %q", err, got, want)
			}
			if err != nil && strings.Contains(err.Error(), testToken) {
				t.Errorf("the token is in %v", err)
			}
		})
	}
}

// A server that echoes what it was sent can't put the token into an error.
func TestTokenIsNotRepeated(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"detail": "bad " + r.Header.Get("Authorization")})
	})
	err := c.do(t.Context(), call{method: http.MethodGet, path: "x/", out: new(any)})
	if err == nil || strings.Contains(err.Error(), testToken) || !strings.Contains(err.Error(), "[token]") {
		t.Errorf("%v", err)
	}
}

func TestBounds(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"id":"` + strings.Repeat("x", 5000) + `"}`))
	})
	var e *APIError
	if err := c.do(t.Context(), call{method: http.MethodGet, path: "x/", out: new(any), max: 4000}); !errors.As(err, &e) || e.Code != "size" || e.Retryable {
		t.Errorf("%v", err)
	}
	hung := against(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	hung.limit = 50 * time.Millisecond
	if err := hung.do(t.Context(), call{method: http.MethodGet, path: "x/", out: new(any)}); !retryable(err) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hung.do(ctx, call{method: http.MethodGet, path: "x/", out: new(any), attempts: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// The security context as it is sent, in each mode.
func TestSecurityContext(t *testing.T) {
	want := `{"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}`
	if b, err := json.Marshal(DefaultSecurityContext().wire()); err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	empty := SecurityContext{Capabilities: &Capabilities{Add: []string{}}, SeccompProfile: &SeccompProfile{Type: "RuntimeDefault"}}
	if b, _ := json.Marshal(empty.wire()); strings.Contains(string(b), "capabilities") {
		t.Errorf("%s", b)
	}
	for name, c := range map[string]struct {
		mode  SecurityMode
		flags map[string]bool
		sent  bool
	}{
		"required":                {SecurityRequired, nil, true},
		"required, not entitled":  {SecurityRequired, map[string]bool{securityEntitlement: false}, true},
		"off":                     {SecurityOff, nil, false},
		"preferred and entitled":  {SecurityPrefer, nil, true},
		"preferred, not entitled": {SecurityPrefer, map[string]bool{securityEntitlement: false}, false},
		"preferred, not known":    {SecurityPrefer, map[string]bool{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, c2 *Config) { c2.Security, e.Cluster.Flags = c.mode, c.flags })
			tn := b.w.tenants[onlyKey(b.w)]
			if sent := b.w.securityContext(t.Context(), tn) != nil; sent != c.sent {
				t.Errorf("sent %v, want %v", sent, c.sent)
			}
			refused := c.mode == SecurityRequired && !c.flags[securityEntitlement] && c.flags != nil
			r, err := b.open().Run(t.Context(), sandbox.Request{Code: "40 + 2"})
			if refused != errors.Is(err, sandbox.ErrInfra) || !refused && r.Status != sandbox.StatusOK {
				t.Errorf("%+v, %v", r, err)
			}
			if !c.sent && c.mode == SecurityPrefer && !strings.Contains(b.log.String(), "without a security context") {
				t.Error("the log does not say so")
			}
		})
	}
}
