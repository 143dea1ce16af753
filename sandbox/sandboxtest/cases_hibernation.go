package sandboxtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// hibernationPrograms: what a session is after it has cost nothing for a while.
func hibernationPrograms() []program {
	needs := []Ability{Hibernation}
	return []program{
		{name: "names, and what they share", needs: needs, do: hibernated},
		{name: "one that ran nothing", needs: needs, do: func(t *testing.T, g *guest) {
			hibernate(t, g)
			after(t, g, "1", sandbox.StateNew, "1")
		}},
		{name: "reset instead of a call", needs: needs, do: func(t *testing.T, g *guest) {
			after(t, g, "x = 1", sandbox.StateNew, "")
			hibernate(t, g)
			if err := g.s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			after(t, g, "'x' in globals()", sandbox.StateNew, "false")
		}},
		{name: "shed", needs: needs, do: func(t *testing.T, g *guest) {
			after(t, g, "x = 1; open('f', 'w').write('kept')", sandbox.StateNew, "4")
			if err := g.s.(sandbox.Hibernator).Shed("there was no room"); err != nil {
				t.Fatal(err)
			}
			res := after(t, g, "'x' in globals(), open('f').read()", sandbox.StateLost, `[false,"kept"]`)
			if !slices.ContainsFunc(res.Notes, func(n string) bool { return strings.Contains(n, "there was no room") }) {
				t.Errorf("the reason is not told: %q", res.Notes)
			}
		}},
		{name: "given up", needs: needs, do: func(t *testing.T, g *guest) {
			after(t, g, "class Slow:\n    def __reduce__(self):\n        import time\n        time.sleep(60)\nSlow.__module__ = 'builtins'\nx, slow = 1, Slow()", sandbox.StateNew, "")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := g.s.(sandbox.Hibernator).Hibernate(ctx); err == nil {
				t.Error("it fell asleep although it was to stop")
			}
			after(t, g, "x", sandbox.StateKept, "1")
		}},
		{name: "closed while asleep", needs: needs, do: func(t *testing.T, g *guest) {
			after(t, g, "x = 1", sandbox.StateNew, "")
			hibernate(t, g)
			if err := g.s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := g.s.(sandbox.Hibernator).Hibernate(t.Context()); err == nil {
				t.Error("a closed session falls asleep")
			}
		}},
	}
}

func hibernated(t *testing.T, g *guest) {
	after(t, g, "import math as m\nshared = [1]; a = {'s': shared}; b = (shared,)\ngen = (i for i in b); file = open('f', 'w'); n = file.write('kept'); file.flush()", sandbox.StateNew, "")
	hibernate(t, g)
	hibernate(t, g) // nothing is left to do
	res := after(t, g, "(a['s'] is b[0] is shared, m.floor(2.5), n, open('f').read(), 'gen' in globals())", sandbox.StateRestored, `[true,2,4,"kept",false]`)
	for _, name := range []string{"gen", "file"} {
		if !slices.ContainsFunc(res.Notes, func(n string) bool { return strings.Contains(n, "not kept: "+name) }) {
			t.Errorf("%s is not named: %q", name, res.Notes)
		}
	}
	res = after(t, g, "shared.append(2); a", sandbox.StateKept, `{"s":[1,2]}`)
	if len(res.Notes) > 0 {
		t.Errorf("told twice: %q", res.Notes)
	}
}

func hibernate(t *testing.T, g *guest) {
	t.Helper()
	if err := g.s.(sandbox.Hibernator).Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func after(t *testing.T, g *guest, code string, state sandbox.State, output string) sandbox.Result {
	t.Helper()
	res, _ := g.call(t, sandbox.Request{Code: code})
	if !res.Success() || res.State != state || string(res.Output) != output {
		t.Fatalf("%s\ngot %s, %s, %s; want %s, %s\n%s%q", code, res.Status, res.State, res.Output, state, output, res.Error, res.Notes)
	}
	return res
}
