package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "rewrite golden files")

func newTools(t *testing.T, fake *sandboxtest.Fake, change func(*Config)) *Tools {
	t.Helper()
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close() })
	cfg := Config{
		Sessions: sessions, Python: "3.12.1", Packages: []string{"numpy 2.1.0", "pandas 2.2.3"}, Preloaded: []string{"numpy", "pandas"}, Mounts: []string{"/data (read-only)"}, Version: "1.0",
		Caller: func(context.Context) sandbox.Caller {
			return sandbox.Caller{Principal: "me", Connection: "test"}
		},
	}
	if change != nil {
		change(&cfg)
	}
	tools, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func call(t *testing.T, tools *Tools, name, args string) (report, string) {
	t.Helper()
	answer, _ := tools.Call(t.Context(), name, json.RawMessage(args))
	return answer.StructuredContent.(report), answer.Content[0].(mcp.TextContent).Text
}

// Where clients may have no connection, a model is told to give ids back.
func TestHandlesAreDescribed(t *testing.T) {
	s := newTools(t, &sandboxtest.Fake{}, func(c *Config) { c.Handles, c.Workspace = true, Folder }).Server()
	b, err := json.Marshal(s.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"pass a result's `session_id` with the next call to go on there; without it that may start in a fresh one. After 30 min without a call it is hibernated",
		"Without it: this connection's own, or, where it has none, a fresh one",
		"/workspace, the session's own.",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q is missing in %s", want, b)
		}
	}
	if strings.Contains(string(b), "${") {
		t.Error("a place was not filled")
	}
}

// TestToolsList is the golden copy of what every client is told. Run with
// -update after a change that is meant.
func TestToolsList(t *testing.T) {
	const golden = "testdata/tools_list.json"
	s := newTools(t, &sandboxtest.Fake{}, withCommands(t, allowlist.Options{})).Server()
	response := s.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	b, err := json.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
}

// TestInputSchemasArePortable: strict clients refuse unions and references in
// what they must fill in.
func TestInputSchemasArePortable(t *testing.T) {
	for _, tool := range newTools(t, &sandboxtest.Fake{}, withCommands(t, allowlist.Options{})).defs {
		var walk func(v any)
		walk = func(v any) {
			m, ok := v.(map[string]any)
			if !ok {
				return
			}
			for _, word := range []string{"anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "if", "patternProperties"} {
				if _, ok := m[word]; ok {
					t.Errorf("%s: %s", tool.Name, word)
				}
			}
			if kind, ok := m["type"]; ok {
				if _, ok := kind.(string); !ok {
					t.Errorf("%s: type %v", tool.Name, kind)
				}
			}
			for _, inner := range m {
				walk(inner)
			}
		}
		var doc map[string]any
		if err := json.Unmarshal(tool.RawInputSchema, &doc); err != nil {
			t.Fatal(err)
		}
		walk(doc)
		if doc["additionalProperties"] != false {
			t.Errorf("%s takes unknown arguments", tool.Name)
		}
	}
}

func TestExecutePython(t *testing.T) {
	fake := &sandboxtest.Fake{}
	tools := newTools(t, fake, nil)
	first, text := call(t, tools, executePython, `{"code": "x = 1", "inputs": {"n": 12345678901234567890}, "timeout_s": 2.5}`)
	if !first.Success || first.State != sandbox.StateNew || first.SessionID == "" || first.ExitCode != 0 || text != "(no output)" {
		t.Errorf("%+v\n%s", first, text)
	}
	second, _ := call(t, tools, executePython, `{"code": "x"}`)
	if second.State != sandbox.StateKept || second.SessionID != first.SessionID {
		t.Errorf("%+v", second)
	}
	other, text := call(t, tools, executePython, `{"code": "x", "session_id": "new"}`)
	if other.State != sandbox.StateNew || other.SessionID == first.SessionID || !strings.Contains(text, "session_id: "+other.SessionID) {
		t.Errorf("%+v\n%s", other, text)
	}
	runs := fake.Events(sandboxtest.EventRun)
	if got := runs[0].Request; got.Timeout != 2500*time.Millisecond || string(got.Inputs["n"].(json.RawMessage)) != "12345678901234567890" || got.Progress != nil {
		t.Errorf("%+v", got)
	}
	if got := runs[1].Request; got.Timeout != 30*time.Second || got.Inputs != nil {
		t.Errorf("%+v", got)
	}
	unknown, _ := call(t, tools, executePython, `{"code": "x", "session_id": "nobody's"}`)
	if unknown.Status != sandbox.StatusInvalid || unknown.ExitCode != 2 || unknown.SessionID != "" || !strings.Contains(*unknown.Error, "unknown session") {
		t.Errorf("%+v", unknown)
	}
}

func TestResetSession(t *testing.T) {
	fake := &sandboxtest.Fake{}
	tools := newTools(t, fake, nil)
	first, _ := call(t, tools, executePython, `{"code": "x = 1"}`)
	reset, text := call(t, tools, resetSession, ``)
	if !reset.Success || reset.State != sandbox.StateNew || reset.SessionID != first.SessionID || !strings.Contains(text, "forgotten") {
		t.Errorf("%+v\n%s", reset, text)
	}
	if again, _ := call(t, tools, executePython, `{"code": "x"}`); again.State != sandbox.StateNew || again.SessionID != first.SessionID {
		t.Errorf("%+v", again)
	}
	closed, _ := call(t, tools, resetSession, `{"close": true}`)
	if !closed.Success || closed.State != sandbox.StateNone || len(fake.Live()) != 0 {
		t.Errorf("%+v, live %v", closed, fake.Live())
	}
	wrong, _ := call(t, tools, resetSession, `{"close": "yes", "sesion": 1}`)
	if wrong.Status != sandbox.StatusInvalid || !strings.Contains(*wrong.Error, "`close` must be true or false") || !strings.Contains(*wrong.Error, `"sesion"`) {
		t.Errorf("%+v", wrong)
	}
}

type panicKey struct{}

// TestPanicAndLog: a handler that panics answers, and the log has the stack; neither
// code nor output is ever there.
func TestPanicAndLog(t *testing.T) {
	var log bytes.Buffer
	fake := &sandboxtest.Fake{Script: func(_ context.Context, _ string, n int, req sandbox.Request) (sandbox.Result, error) {
		if n == 2 {
			return sandbox.Result{}, errors.New("the cause, for the log")
		}
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "PRINTED", Output: json.RawMessage(`"VALUE"`)}, nil
	}}
	tools := newTools(t, fake, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		whole := c.Caller
		c.Caller = func(ctx context.Context) sandbox.Caller {
			if ctx.Value(panicKey{}) != nil {
				panic("at the disco")
			}
			return whole(ctx)
		}
	})
	call(t, tools, executePython, `{"code": "SOURCE"}`)
	broken, text := call(t, tools, executePython, `{"code": "SOURCE"}`)
	if broken.Status != sandbox.StatusInfra || strings.Contains(text, "cause, for") {
		t.Errorf("%+v\n%s", broken, text)
	}
	answer, exit := tools.Call(context.WithValue(t.Context(), panicKey{}, 1), executePython, json.RawMessage(`{"code": "SOURCE"}`))
	if !answer.IsError || exit != 125 {
		t.Errorf("%+v, exit code %d", answer, exit)
	}
	for _, word := range []string{"at the disco", "the cause, for the log", "status=ok", "status=infra", "session="} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the log lacks %q", word)
		}
	}
	for _, word := range []string{"SOURCE", "PRINTED", "VALUE"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("the log holds %q", word)
		}
	}
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{Timeout: -1}); err == nil || !strings.Contains(err.Error(), "no sessions") || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v", err)
	}
	tools := newTools(t, &sandboxtest.Fake{}, func(c *Config) {
		c.Timeout, c.MaxTimeout = 5*time.Second, 90*time.Second
		c.Packages = nil
		c.Workspace = Shared
	})
	for _, want := range []string{"Time limit: 5 s", "at most 90 s", "standard library alone", "the user's directory, writable"} {
		if !strings.Contains(tools.defs[0].Description, want) {
			t.Errorf("%q lacks %q", tools.defs[0].Description, want)
		}
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("p%d 1", i))
	}
	got := packages(append(many, "pip 24", "NumPy 2.0.1"))
	if !strings.HasPrefix(got, " besides the standard library: NumPy 2.0, p0 1, ") || !strings.HasSuffix(got, ", and 49 more") || strings.Contains(got, "pip") {
		t.Error(got)
	}
	if !strings.Contains(string(tools.defs[0].RawInputSchema), `"maximum": 90,`) {
		t.Errorf("%s", tools.defs[0].RawInputSchema)
	}
}
