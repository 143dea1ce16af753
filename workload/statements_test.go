package workload

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// What the published client does, by the numbers of the list of it, as far as it
// is right. Where the platform's facts or common sense say otherwise, the
// statement is turned round, and its name says so.
//
// Not here: 1, externals (nothing of them is in a Request); 7, the entitlement
// (TestSecurityContext); 14 and 17 to 19, what is waited for, and 25 and 28, rows
// (TestRegressions: R6, R9 to R14, R4, R21); 34 and 37 to 42, figures, which are
// those of all backends (sandbox.Instruments); 36, cancelling (TestCancel,
// TestLostAnswers); 43 to 45, another product's tool and backends.
func TestStatements(t *testing.T) {
	w := &Workload{cfg: mustResolve(t, Config{Bare: true, Mode: ModeOneShot})}
	env := func(t *testing.T, req sandbox.Request) map[string]string {
		t.Helper()
		vars, _, err := w.variables(req)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, v := range vars {
			m[v.Name] = v.Value
		}
		return m
	}
	for name, do := range map[string]func(*testing.T){
		"2 code and inputs in base64": func(t *testing.T) {
			for _, inputs := range []map[string]any{nil, {}} {
				m := env(t, sandbox.Request{Code: "_return = 42", Inputs: inputs})
				if m["DR_SANDBOX_CODE_B64"] != "X3JldHVybiA9IDQy" || m["DR_SANDBOX_INPUTS_B64"] != "e30=" {
					t.Errorf("%v", m)
				}
			}
			b, _ := base64.StdEncoding.DecodeString(env(t, sandbox.Request{Code: "é", Inputs: map[string]any{"a": json.Number("123456789012345678901")}})["DR_SANDBOX_INPUTS_B64"])
			if string(b) != `{"a":123456789012345678901}` {
				t.Errorf("%s", b)
			}
		},
		"3 names": func(t *testing.T) {
			n := newNames()
			if !regexp.MustCompile(`^dr-sandbox-[0-9a-f]{12}$`).MatchString(n.workload) || n.artifact != "dr-sandbox-artifact-"+strings.TrimPrefix(n.workload, "dr-sandbox-") {
				t.Errorf("%+v", n)
			}
		},
		"4 whole seconds, at least one": func(t *testing.T) {
			for d, want := range map[time.Duration]string{42 * time.Second: "42", 50 * time.Millisecond: "1", 1900 * time.Millisecond: "1", 0: "30"} {
				if got := env(t, sandbox.Request{Code: "1", Timeout: d})["DR_SANDBOX_TIMEOUT_SECS"]; got != want {
					t.Errorf("%v: %s, want %s", d, got, want)
				}
			}
		},
		"5, 6, 8 the request": func(t *testing.T) {
			var body []byte
			var header http.Header
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ = io.ReadAll(r.Body)
				header = r.Header
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(`{"id":"x"}`))
			})
			req := w.newCreateRequest(names{"dr-sandbox-3f9c1a7be210", "dr-sandbox-artifact-3f9c1a7be210"}, "")
			req.container().SecurityContext = w.cfg.SecurityContext.wire()
			req.container().EnvironmentVars = []envVar{{"A", "b"}}
			if _, _, err := c.create(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			want := `{"name":"dr-sandbox-3f9c1a7be210","artifact":{"name":"dr-sandbox-artifact-3f9c1a7be210","type":"service","spec":{"containerGroups":[{"name":"default","containers":[{"name":"sandbox","imageUri":"registry.example/sandbox:1","primary":true,"port":8080,"environmentVars":[{"name":"A","value":"b"}],"securityContext":{"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}]}]}},"runtime":{"containerGroups":[{"name":"default","replicaCount":1,"containers":[{"name":"sandbox","resourceAllocation":{"cpu":1,"memory":536870912}}]}]}}`
			if string(body) != want {
				t.Errorf("\n%s, want\n%s", body, want)
			}
			for name, value := range map[string]string{"Authorization": "Bearer " + testToken, "Content-Type": "application/json", "Accept": "application/json", "X-Datarobot-Api-Key": ""} {
				if header.Get(name) != value {
					t.Errorf("%s: %q", name, header.Get(name))
				}
			}
		},
		"9 an answer without an id, and workloadId before id": func(t *testing.T) {
			var r workloadRecord
			if err := json.Unmarshal([]byte(`{"id":"a","workloadId":"b"}`), &r); err != nil || r.ID != "b" {
				t.Errorf("%+v, %v", r, err)
			}
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(`{"name":"x"}`))
					return
				}
				_, _ = w.Write([]byte(`{"data":[]}`))
			})
			if _, doubtful, err := c.create(t.Context(), createRequest{Name: "x"}); err == nil || !strings.Contains(err.Error(), "missing workload id") || !doubtful {
				t.Errorf("%v, %v", doubtful, err)
			}
		},
		"10 at once, then after 0.1 s, doubling to 2 s": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var looks []time.Duration
				start := time.Now()
				(&Workload{}).repeat(ctx, func() {
					if looks = append(looks, time.Since(start)); len(looks) == 8 {
						cancel()
					}
				})
				want := []time.Duration{0, sec(0.1), sec(0.3), sec(0.7), sec(1.5), sec(3.1), sec(5.1), sec(7.1)}
				if !slices.Equal(looks, want) {
					t.Errorf("%v, want %v", looks, want)
				}
			})
		},
		"11 turned round: terminated and suspended are final, interrupted moves": func(t *testing.T) {
			for status, want := range map[string]phase{"terminated": final, "suspended": final, "interrupted": moving, "errored": failed, "stopped": failed, "running": up, "new-one": moving, "succeeded": failed} {
				if got := phaseOf(status); got != want {
					t.Errorf("%s: %v", status, got)
				}
			}
			story{events: []event{becomes(3, "terminated")}}.play().infra(t, false).within(t, 3, 4)
		},
		"12 turned round: a record that can't be read ends nothing": func(t *testing.T) {
			story{events: []event{fails(1, false, 500), says(2, marker("1")), fails(3, false, 500)}}.play().is(t, sandbox.StatusOK, "1")
		},
		"13 two clocks": func(t *testing.T) {
			story{timeout: 5 * time.Second, events: []event{becomes(1, "launching")}}.play().infra(t, false).within(t, 300, 302)
			story{timeout: 5 * time.Second, events: []event{becomes(100, "running"), says(100, runnerLine)}}.play().is(t, sandbox.StatusTimeout, "").within(t, 110, 180)
		},
		"15, 16 when a run that failed is given up": func(t *testing.T) {
			story{events: []event{says(1, runnerLine), becomes(2, "errored")}}.play().infra(t, true).within(t, 32, 40)
			story{events: []event{becomes(2, "running"), becomes(3, "errored")}}.play().infra(t, true).within(t, 300, 400) // nothing has come yet
		},
		"20 a null marker and nothing else": func(t *testing.T) {
			story{events: []event{becomes(1, "running"), says(1, marker("null"))}}.play().is(t, sandbox.StatusOK, "").within(t, 15, 18)
			story{events: []event{becomes(1, "running"), says(1, marker("null")), exits(2, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "").within(t, 2, 3)
		},
		"21 the log can't be read": func(t *testing.T) {
			story{events: []event{fails(1, true, 500), fails(2, true, 404), says(3, marker("1")), exits(3, 0, "")}}.play().is(t, sandbox.StatusOK, "1")
		},
		"22 turned round: all pages, in order": func(t *testing.T) {
			n := 0
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				if r.URL.Query().Get("limit") != "1000" {
					t.Errorf("%s", r.URL.RawQuery)
				}
				switch r.URL.Query().Get("offset") {
				case "0":
					_, _ = w.Write([]byte(`{"data":[{"timestamp":"2026-06-11 14:04:16+00:00","level":"INFO","message":"3"},{"timestamp":"2026-06-11 14:04:15.5+00:00","level":"INFO","message":"2"}],"next":"?offset=2"}`))
				default:
					_, _ = w.Write([]byte(`{"data":[{"timestamp":"2026-06-11 14:04:15.5+00:00","level":"INFO","message":"2"},{"timestamp":"2026-06-11T14:04:14Z","level":"INFO","message":"1"}]}`))
				}
			})
			rows, cut, err := c.logs(t.Context(), "x")
			if text := readLog(rows, ""); err != nil || cut || strings.Join(text.stdout, "") != "123" || n != 2 {
				t.Errorf("%v %v %v, %d requests", text.stdout, cut, err, n)
			}
		},
		"22 turned round: a log without end, and output without end": func(t *testing.T) {
			n := 0
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				at, _ := strconv.Atoi(r.URL.Query().Get("offset"))
				rows := make([]map[string]string, logPageSize)
				for i := range rows {
					rows[i] = map[string]string{"message": strconv.Itoa(at+i) + strings.Repeat("x", 8000)}
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"data": rows, "next": "?offset=" + strconv.Itoa(at+logPageSize)})
			})
			rows, cut, err := c.logs(t.Context(), "x")
			if err != nil || !cut || n != 5 || len(rows) != 5*logPageSize {
				t.Errorf("%d rows in %d requests, cut %v, %v", len(rows), n, cut, err)
			}
			long := strings.Repeat("0123456789", 3000)
			e := story{events: []event{
				{0, func(v *vigil, _ time.Time) { v.cut = true }},
				says(1, long), rowAt(1, row{Level: "ERROR", Message: long}), says(1, marker("1")), exits(1, 0, "Completed"),
			}}.play().is(t, sandbox.StatusOK, "1")
			for _, count := range []sandbox.Count{e.res.Truncated.Stdout, e.res.Truncated.Stderr} {
				if count.Produced != 30_001 || count.Kept != 20_000 {
					t.Errorf("%+v", count)
				}
			}
			if len(e.res.Stdout) > 20_100 || len(e.res.Stderr) > 20_100 || len(e.res.Notes) != 1 {
				t.Errorf("%d and %d bytes, %q", len(e.res.Stdout), len(e.res.Stderr), e.res.Notes)
			}
		},
		"23, 24 severities and stack traces": func(t *testing.T) {
			var p logPage
			if err := json.Unmarshal([]byte(`{"data":[
				{"message":"none"},
				{"level":"debug","message":"d","stacktrace":"trace of d"},
				{"level":"warning","message":"w"},
				{"level":"fatal","message":"f"},
				{"level":"Critical","message":"c","stacktrace":"trace of c"},
				{"level":"ERROR","message":"e"}]}`), &p); err != nil {
				t.Fatal(err)
			}
			text := readLog(p.rows, "")
			if out, errs := strings.Join(text.stdout, "|"), strings.Join(text.stderr, "|"); out != "w|d|none" || errs != "e|c|trace of c|f|trace of d" {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
		},
		"26 the last line that starts with it, and turned round: no other character ends a line, no broken value is null": func(t *testing.T) {
			text := readLog([]row{{Message: marker("2")}, {Message: marker("1")}, {Message: "a\f" + marker("7") + "\u2028" + marker("8")}}, "")
			if string(text.value) != "2" || !slices.Equal(text.stdout, []string{"a\f" + marker("7") + "\u2028" + marker("8"), marker("1")}) {
				t.Errorf("%s, %q", text.value, text.stdout)
			}
			story{events: []event{says(1, marker("{bad")), exits(1, 0, "Completed")}}.play().infra(t, true)
		},
		"26, 27 the tail": func(t *testing.T) {
			rows := []row{{Level: "INFO", Message: "a"}}
			if text := readLog(rows, marker("1")); !text.marked || string(text.value) != "1" || strings.Join(text.stdout, "|") != "a" {
				t.Errorf("%+v", text)
			}
			if text := readLog([]row{{Message: marker("2")}}, marker("1")); string(text.value) != "2" {
				t.Errorf("%+v", text)
			}
			if text := readLog(nil, "only this"); strings.Join(text.stdout, "|") != "only this" {
				t.Errorf("%+v", text)
			}
		},
		"29 turned round: the code's time is its own": func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) { e.Cluster.Pull = time.Minute })
			r := b.run("import time\ntime.sleep(0.2)")
			if r.Duration < 200*time.Millisecond || r.Duration > 10*time.Second || r.Provisioning < time.Minute {
				t.Errorf("%v, after %v", r.Duration, r.Provisioning)
			}
		},
		"30 turned round: the exit code decides": func(t *testing.T) {
			story{events: []event{says(1, marker("5")), exits(1, 124, "Error")}}.play().is(t, sandbox.StatusTimeout, "5")
			story{events: []event{says(1, marker("5")), exits(1, 1, "Error")}}.play().is(t, sandbox.StatusError, "5")
			story{events: []event{says(1, runnerLine), exits(2, 137, "OOMKilled")}}.play().is(t, sandbox.StatusOOM, "").within(t, 2, 3)
			story{events: []event{says(1, runnerLine), becomes(2, "errored"), exits(2, 137, "Error")}}.play().infra(t, true)
			story{events: []event{says(1, runnerLine), becomes(2, "errored"), exits(2, 7, "Error")}}.play().is(t, sandbox.StatusCrash, "")
		},
		"31 turned round: words are no timeout where the exit code is known": func(t *testing.T) {
			story{events: []event{says(1, "sandbox exceeded timeout of 5s"), says(1, marker("5")), exits(1, 0, "Completed")}}.play().is(t, sandbox.StatusOK, "5")
		},
		"32 turned round: no success without a marker": func(t *testing.T) {
			story{events: []event{says(1, runnerLine), becomes(2, "succeeded"), exits(2, 0, "Completed")}}.play().infra(t, true)
		},
		"33 turned round: an exception is no success": func(t *testing.T) {
			e := story{events: []event{says(1, "Traceback (most recent call last):"), says(1, "  File x"), says(1, "ValueError: no"), says(1, marker("null")), exits(2, 1, "Error")}}.play().is(t, sandbox.StatusError, "")
			if !strings.Contains(e.res.Error, "ValueError: no") || e.res.ExitCode != 1 {
				t.Errorf("%+v", e.res)
			}
		},
		"35 a delete that must be asked for again": func(t *testing.T) {
			b := emulated(t, func(e *workloadtest.Config, _ *Config) { e.Cluster.DeleteRetries = 3 })
			b.run("1")
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); do(t) })
	}
}

func mustResolve(t *testing.T, c Config) Config {
	t.Helper()
	c.Endpoint, c.Token, c.Image, c.Instance = "https://app.example.com", testToken, "registry.example/sandbox:1", "test"
	c, _, err := c.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What a one-shot run can't do is refused before anything is asked of the platform.
func TestRefusals(t *testing.T) {
	for _, bare := range []bool{false, true} {
		b := emulated(t, func(_ *workloadtest.Config, c *Config) { c.Bare = bare })
		s := b.open()
		for name, req := range map[string]sandbox.Request{
			"no code":           {},
			"too much code":     {Code: "#" + incompressible(150_000)},
			"too many inputs":   {Code: "1", Inputs: map[string]any{"x": strings.Repeat("y", MaxEnv)}},
			"a negative limit":  {Code: "1", Timeout: -1},
			"inputs of no JSON": {Code: "1", Inputs: map[string]any{"x": func() {}}},
		} {
			_, err := s.Run(t.Context(), req)
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Status != sandbox.StatusInvalid || errors.Is(err, sandbox.ErrInfra) {
				t.Errorf("%s: %v", name, err)
			}
			if strings.HasPrefix(name, "too m") && !strings.Contains(err.Error(), "98286") {
				t.Errorf("%s: the limit is not said: %v", name, err)
			}
		}
		if n := posts(b.e); n != 0 {
			t.Errorf("%d requests to create", n)
		}
	}
}

// incompressible is text that no compression makes shorter than a half.
func incompressible(n int) string {
	var b strings.Builder
	x := uint64(88172645463325252)
	for b.Len() < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteString(base64.StdEncoding.EncodeToString([]byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24), byte(x >> 32), byte(x >> 40)}))
	}
	return b.String()[:n]
}

// The very limit works: one byte more would keep the container from starting.
func TestLargest(t *testing.T) {
	for _, bare := range []bool{false, true} {
		b := emulated(t, func(_ *workloadtest.Config, c *Config) { c.Bare = bare })
		inputs := map[string]any{"x": strings.Repeat("y", MaxEnv-len(`{"x":""}`))}
		code := "_return = len(inputs['x'])\n"
		if bare {
			code += "#" + incompressible(MaxEnv-len(code)-1)
		}
		r, err := b.open().Run(t.Context(), sandbox.Request{Code: code, Inputs: inputs})
		if err != nil || string(r.ReturnValue) != "98278" {
			t.Errorf("bare %v: %s %s %v", bare, r.ReturnValue, r.Error, err)
		}
	}
}

// The platform's own shapes are read: every recorded answer that is one of a call
// made here.
func TestRecordedAnswers(t *testing.T) {
	files, err := filepath.Glob("workloadtest/testdata/exchanges/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d exchanges: %v", len(files), err)
	}
	read := 0
	for _, file := range files {
		var x struct {
			Request  struct{ Method, Path string }
			Response struct {
				Status int
				Text   string
				Body   json.RawMessage
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &x)
		}
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(x.Request.Path, "?")
		path = strings.Trim(path, "/")
		name := filepath.Base(file)
		switch {
		case x.Response.Status >= 400:
			if _, detail := errorBody(append([]byte(x.Response.Text), x.Response.Body...)); detail == "" || detail == "no body" && len(x.Response.Body) > 0 {
				t.Errorf("%s: %q", name, detail)
			}
		case len(x.Response.Body) == 0:
			continue
		case strings.HasPrefix(path, "otel/") && x.Request.Method == http.MethodGet:
			var p logPage
			if err := json.Unmarshal(x.Response.Body, &p); err != nil || len(p.rows) != p.count {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
			for _, r := range p.rows {
				if r.Time.IsZero() && r.Message != "" && !strings.Contains(string(x.Response.Body), `"timestamp": "*`) {
					t.Errorf("%s: the time of %+v is not read", name, r)
				}
			}
		case strings.HasSuffix(path, "statusDetails"):
			var w wireSnapshot
			if err := json.Unmarshal(x.Response.Body, &w); err != nil || len(w.snapshot().Replicas) == 0 || w.snapshot().State == "" {
				t.Errorf("%s: %+v, %v", name, w.snapshot(), err)
			}
		case path == "workloads" && x.Request.Method == http.MethodPost, path == "workloads/{id}" && x.Request.Method == http.MethodGet:
			var r workloadRecord
			if err := json.Unmarshal(x.Response.Body, &r); err != nil || r.ID == "" || r.Status == "" || r.ArtifactID == "" {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		case path == "workloads" || path == "artifacts" || strings.HasSuffix(path, "/protons"):
			var l listing
			if err := json.Unmarshal(x.Response.Body, &l); err != nil || len(l.records) != l.count {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
		default:
			continue
		}
		read++
	}
	if read < 20 {
		t.Errorf("only %d of %d exchanges were read", read, len(files))
	}
}
