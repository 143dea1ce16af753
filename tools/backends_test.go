package tools

import (
	"context"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// The choice is there where there is one, and only then.
func TestBackendArgument(t *testing.T) {
	for _, offered := range [][]string{nil, {sandbox.BackendWorkload}, {sandbox.BackendWorkload, sandbox.BackendLocal}, {sandbox.BackendLocal, sandbox.BackendWorkload}} {
		var asked string
		fake := &sandboxtest.Fake{Script: func(_ context.Context, _ string, _ int, req sandbox.Request) (sandbox.Result, error) {
			asked = req.Backend
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
		}}
		tools := newTools(t, fake, func(c *Config) { c.Backends, c.Remote = offered, Remote{Image: "registry.example/x", Stateless: true} })
		var schema, text string
		for _, d := range tools.defs {
			if d.Name == executePython {
				schema, text = string(d.RawInputSchema), d.Description
				if remote := len(offered) > 0; *d.Annotations.OpenWorldHint != remote {
					t.Errorf("%v: open world %v", offered, !remote)
				}
			}
		}
		choice := len(offered) > 1
		if strings.Contains(schema, `"backend"`) != choice || strings.Contains(schema+text, "${") {
			t.Errorf("%v: %s\n%s", offered, schema, text)
		}
		if remote := len(offered) > 0; strings.Contains(text, "registry.example/x") != remote || strings.Contains(text, "Nothing is remembered") != remote {
			t.Errorf("%v: %s", offered, text)
		}
		if local := choice || len(offered) == 0; strings.Contains(text, "/workspace") != local {
			t.Errorf("%v: %s", offered, text)
		}
		r, _ := call(t, tools, executePython, `{"code":"1","backend":"local"}`)
		if r.Success != choice || choice && asked != sandbox.BackendLocal {
			t.Errorf("%v: %+v, asked for %q", offered, r, asked)
		}
		for _, bad := range []string{`"cloud"`, `5`, `""`} {
			if r, _ := call(t, tools, executePython, `{"code":"1","backend":`+bad+`}`); r.Success {
				t.Errorf("%v: %s is taken", offered, bad)
			}
		}
	}
}

// A fault is told of where it was, also one that came before there was a session.
func TestBackendOfFaults(t *testing.T) {
	fault := &sandbox.Error{Status: sandbox.StatusInfra, Layer: "workload", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		offered         []string
		arguments, want string
	}{
		{nil, `{"code":"1"}`, sandbox.BackendLocal},
		{[]string{sandbox.BackendWorkload}, `{"code":"1"}`, sandbox.BackendWorkload},
		{[]string{sandbox.BackendWorkload}, `{"code":"1","timeout_s":0}`, sandbox.BackendWorkload},
		{[]string{sandbox.BackendWorkload, sandbox.BackendLocal}, `{"code":"1"}`, sandbox.BackendWorkload},
		{[]string{sandbox.BackendWorkload, sandbox.BackendLocal}, `{"code":"1","backend":"local"}`, sandbox.BackendLocal},
		{[]string{sandbox.BackendWorkload, sandbox.BackendLocal}, `{"code":"1","backend":"cloud"}`, sandbox.BackendWorkload},
	} {
		fake := &sandboxtest.Fake{Opening: func(context.Context, sandbox.Spec) error { return fault }}
		tools := newTools(t, fake, func(cfg *Config) { cfg.Backends, cfg.Remote = c.offered, Remote{Image: "x"} })
		if r, _ := call(t, tools, executePython, c.arguments); r.Success || r.Backend != c.want {
			t.Errorf("%v %s: %+v, want the backend %s", c.offered, c.arguments, r, c.want)
		}
	}
	fake := &sandboxtest.Fake{}
	tools := newTools(t, fake, func(cfg *Config) { cfg.Backends = []string{sandbox.BackendWorkload} })
	if r, _ := call(t, tools, resetSession, `{}`); r.Backend != sandbox.BackendWorkload {
		t.Errorf("reset: %+v", r)
	}
}
