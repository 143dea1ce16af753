package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

func TestFunctions(t *testing.T) {
	f := sandbox.Functions{
		"b": {},
		"a": {
			"sum": {Description: "Adds.", Input: json.RawMessage(`{"type":"object"}`), Call: func(_ context.Context, arguments json.RawMessage) (any, error) {
				var in struct{ X, Y int }
				if err := json.Unmarshal(arguments, &in); err != nil {
					return nil, err
				}
				return map[string]int{"sum": in.X + in.Y}, nil
			}},
			"part": {Call: func(context.Context, json.RawMessage) (any, error) { return sandbox.ExternalResult{IsError: true}, nil }},
			"denied": {Call: func(context.Context, json.RawMessage) (any, error) {
				return nil, &sandbox.ExternalError{Fault: sandbox.ExternalDenied, Text: "no"}
			}},
			"odd": {Call: func(context.Context, json.RawMessage) (any, error) { return func() {}, nil }},
			"gone": {Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				return nil, errors.New("stopped")
			}},
		},
	}
	servers := f.Servers(t.Context())
	if len(servers) != 2 || servers[0].Name != "a" || strings.Join(servers[0].Tools, " ") != "denied gone odd part sum" {
		t.Errorf("servers: %+v", servers)
	}
	tools, err := f.Tools(t.Context(), "a")
	if err != nil || len(tools) != 5 || tools[4].Name != "sum" || tools[4].Description != "Adds." || string(tools[4].Input) != `{"type":"object"}` {
		t.Errorf("tools: %+v, %v", tools, err)
	}
	fault := func(err error) sandbox.ExternalFault {
		e, _ := errors.AsType[*sandbox.ExternalError](err)
		if e == nil {
			return ""
		}
		return e.Fault
	}
	if _, err := f.Tools(t.Context(), "c"); fault(err) != sandbox.ExternalUnknown {
		t.Errorf("tools of no server: %v", err)
	}
	r, err := f.Call(t.Context(), "a", "sum", json.RawMessage(`{"x":40,"y":2}`))
	if err != nil || string(r.Value) != `{"sum":42}` || r.IsError {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = f.Call(t.Context(), "a", "sum", json.RawMessage(`{"x":"y"}`))
	if err != nil || !r.IsError || len(r.Content) != 1 || !strings.Contains(r.Content[0].Text, "cannot unmarshal") {
		t.Errorf("the function's own error: %+v, %v", r, err)
	}
	if r, err = f.Call(t.Context(), "a", "part", nil); err != nil || !r.IsError {
		t.Errorf("%+v, %v", r, err)
	}
	for tool, want := range map[string]sandbox.ExternalFault{"denied": sandbox.ExternalDenied, "odd": sandbox.ExternalUnavailable, "none": sandbox.ExternalUnknown} {
		if _, err := f.Call(t.Context(), "a", tool, nil); fault(err) != want {
			t.Errorf("%s: %v", tool, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Call(ctx, "a", "gone", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestExternalsLimitsResolve(t *testing.T) {
	l, err := sandbox.ExternalsLimits{}.Resolve()
	if err != nil || l.Calls != 100 || l.Bytes != 64<<20 || l.Time.Minutes() != 10 || l.Timeout.Seconds() != 60 {
		t.Errorf("%+v, %v", l, err)
	}
	_, err = sandbox.ExternalsLimits{Calls: -1, Bytes: 1, Time: -1, Timeout: -1}.Resolve()
	if err == nil || len(strings.Split(err.Error(), "\n")) != 4 {
		t.Errorf("not all faults are told: %v", err)
	}
}
