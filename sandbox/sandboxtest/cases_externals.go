package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// externalPrograms: code that calls tools outside the wall.
func externalPrograms() []program {
	needs := []Ability{Externals}
	return []program{
		{name: "called, and stopped", needs: needs, do: externalCalls},
		{name: "forged and flooded", needs: needs, do: externalAttacks},
		{name: "kept while asleep", needs: []Ability{Externals, Hibernation}, do: func(t *testing.T, g *guest) {
			tools := newOutside()
			tools.call(t, g, "e, srv, echo = externals, externals.demo, externals.demo.echo\nblob = externals.demo.picture()\nechoed = echo(n=1)", "")
			hibernate(t, g)
			r := tools.call(t, g, "[e is externals, srv.echo(n=2)['n'], echo(n=3)['n'], blob == b'PNG', echoed]", `[true,2,3,true,{"n":1}]`)
			if r.State != sandbox.StateRestored || len(r.Calls) != 2 {
				t.Errorf("%+v", r)
			}
		}},
	}
}

// outside are tools as a library's user has them.
type outside struct {
	sandbox.Functions
	called atomic.Int64 // of them all
	hangs  chan string  // told of each call of hang, and of its end
}

func newOutside() *outside {
	o := &outside{hangs: make(chan string, 100)}
	tool := func(call func(ctx context.Context, arguments json.RawMessage) (any, error)) sandbox.Function {
		return sandbox.Function{Call: func(ctx context.Context, arguments json.RawMessage) (any, error) {
			o.called.Add(1)
			return call(ctx, arguments)
		}}
	}
	echo := tool(func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil })
	echo.Description = "Gives back what it gets."
	echo.Input = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	o.Functions = sandbox.Functions{"demo": {
		"echo": echo,
		"picture": tool(func(context.Context, json.RawMessage) (any, error) {
			return sandbox.ExternalResult{Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalData, Data: []byte("PNG"), MIME: "image/png"}}}, nil
		}),
		"fail": tool(func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("out of paper") }),
		"down": tool(func(context.Context, json.RawMessage) (any, error) {
			return nil, &sandbox.ExternalError{Fault: sandbox.ExternalUnavailable, Text: "it is down", Err: errors.New("SECRET")}
		}),
		"hang": tool(func(ctx context.Context, _ json.RawMessage) (any, error) {
			o.hangs <- "called"
			<-ctx.Done()
			o.hangs <- "cancelled"
			return nil, ctx.Err()
		}),
		"hung": tool(func(context.Context, json.RawMessage) (any, error) { return <-o.hangs, nil }),
	}}
	return o
}

// call is one call of the session, which must succeed.
func (o *outside) call(t *testing.T, g *guest, code, output string) sandbox.Result {
	t.Helper()
	r, _ := g.call(t, sandbox.Request{Code: code, Externals: o})
	if !r.Success() || string(r.Output) != output {
		t.Fatalf("%s\ngot %s, %s, %s; want %s", code, r.Status, r.Output, r.Error, output)
	}
	return r
}

func externalCalls(t *testing.T, g *guest) {
	tools := newOutside()
	r := tools.call(t, g, "x = 41\nr = [externals.demo.echo(n=i)['n'] for i in range(50)]\nsum(r)", "1225")
	if len(r.Calls) != 50 || r.Calls[49].Name != "demo.echo" || !r.Calls[49].OK || r.Calls[49].Duration <= 0 {
		t.Errorf("the calls are told as %+v", r.Calls)
	}
	r = tools.call(t, g, "import asyncio\nb = externals.demo.picture()\n"+
		"s = await asyncio.gather(*[externals.aio.demo.echo(n=i) for i in range(10)])\n"+
		"said = []\nfor f in (externals.demo.fail, externals.demo.down):\n    try:\n        f()\n    except ToolError as e:\n        said.append(str(e))\n"+
		"[b.mime, len(b), len(s), said]", `["image/png",3,10,["demo.fail: out of paper","demo.down: it is down"]]`)
	var failed []string
	for _, c := range r.Calls {
		if !c.OK {
			failed = append(failed, c.Name)
		}
	}
	if len(r.Calls) != 13 || !slices.Equal(failed, []string{"demo.fail", "demo.down"}) {
		t.Errorf("the calls are told as %+v", r.Calls)
	}

	// What waits for a tool is stopped at its limit, and the tool hears of it.
	r, _ = g.call(t, sandbox.Request{Code: "x += 1\nexternals.demo.hang()", Timeout: 2 * time.Second, Externals: tools})
	if r.Status != sandbox.StatusTimeout || r.State != sandbox.StateKept || len(r.Calls) != 1 || r.Calls[0].OK {
		t.Errorf("at the limit: %+v", r)
	}
	for _, want := range []string{"called", "cancelled"} {
		if got := <-tools.hangs; got != want {
			t.Errorf("the tool was %s, want %s", got, want)
		}
	}
	// What goes on after the call has ended is refused; the code of the next call is not.
	before := tools.called.Load()
	tools.call(t, g, "import threading\nkind = None\ndef on():\n    global kind\n    try:\n        while True: externals.demo.hang()\n    except ToolError as e:\n        kind = e.kind\nth = threading.Thread(target=on)\nth.start()\nexternals.demo.hung()", `"called"`)
	tools.call(t, g, "th.join()\n[x, kind, externals.demo.echo(n=1)['n']]", `[42,"ended",1]`)
	if n := tools.called.Load() - before; n != 3 {
		t.Errorf("%d calls came, want 3", n)
	}
	r, _ = g.call(t, sandbox.Request{Code: "externals.demo"})
	if r.Status != sandbox.StatusError || !strings.Contains(r.Error, "NameError") {
		t.Errorf("without externals: %+v", r)
	}
}

// forger writes frames of its own where the kernel writes its calls. cell is a call's
// number, which code may know.
const forger = `
import json, os
c = externals._toolbox.channel
def forge(op, id, data=b'', **fields):
    head = json.dumps(dict(op=op, cell=c.cell, id=id, taken=0, **fields)).encode() + b'\n'
    payload = head + data
    os.write(c.outlet, b'X' + len(payload).to_bytes(4, 'big') + payload)
`

// externalAttacks: what a forged frame asks for is refused, or ends the interpreter, which is
// the guest's own loss. What may not be called is not called.
func externalAttacks(t *testing.T, g *guest) {
	tools := newOutside()
	// A tool that is not there, by the very words of the kernel: an answer says so, and the session goes on.
	tools.call(t, g, "import json\n[json.loads(externals._toolbox.channel.ask(server, tool, b'{}'))['fault'] for server, tool in (('demo', 'rm'), ('other', 'echo'), ('demo', '../echo'))]", `["unknown","unknown","unknown"]`)
	if n := tools.called.Load(); n != 0 {
		t.Errorf("%d tools were called that there are not", n)
	}
	limits := sandbox.ExternalsLimits{Calls: 5}
	for name, code := range map[string]string{
		"a flood":           "for i in range(1, 100000): forge('call', i, b'{\"n\":1}', server='demo', tool='echo', size=7)",
		"100 MB announced":  "forge('call', 1, b'{', server='demo', tool='echo', size=100 << 20)",
		"another call's":    "c.cell += 1\nforge('call', 1, b'{\"n\":1}', server='demo', tool='echo', size=7)",
		"more than a frame": "os.write(c.outlet, b'X\\x7f\\xff\\xff\\xff')",
	} {
		before := tools.called.Load()
		r, took := g.call(t, sandbox.Request{Code: forger + code + "\nimport time\ntime.sleep(20)", Timeout: 10 * time.Second, Externals: tools, ExternalsLimits: limits})
		if r.Success() || took > 10*time.Second+late {
			t.Errorf("%s: %s after %v", name, r.Status, took)
		}
		t.Logf("%s: %s after %v, state %s, %.150s", name, r.Status, took.Round(time.Millisecond), r.State, r.Error)
		if n := tools.called.Load() - before; n > 5 {
			t.Errorf("%s: %d calls of 5 that are allowed", name, n)
		}
	}
	r := tools.call(t, g, "externals.demo.echo(n=40 + 2)['n']", "42")
	if len(r.Calls) != 1 {
		t.Errorf("the calls are told as %+v", r.Calls)
	}
}
