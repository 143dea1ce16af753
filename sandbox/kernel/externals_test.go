package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// interpreter starts a real one, without any wall, and talks to it.
func interpreter(t testing.TB, python string, options ...string) *Client {
	t.Helper()
	dir := t.TempDir()
	for name, source := range Sources() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inside, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, outside, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, append([]string{"-I", "-S", filepath.Join(dir, "main.py"), "--in", "3", "--out", "4"}, options...)...)
	cmd.ExtraFiles = []*os.File{inside, outside}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inside.Close()
	outside.Close()
	c := NewClient(Config{In: to, Out: from})
	t.Cleanup(func() {
		c.Close() // ends it
		_ = cmd.Wait()
	})
	return c
}

// demo has a tool of each kind. hangs is told of each call of "hang", and of its end.
func demo(hangs chan string) sandbox.Functions {
	large := sandbox.ExternalResult{Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalData, Data: make([]byte, 3<<18)}}} // a mebibyte as base64
	return sandbox.Functions{
		"demo": {
			"echo": {
				Description: "Gives back what it gets.\nAll of it.",
				Output:      json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"more":{"type":"array","items":{"type":"object","properties":{"k":{"enum":["a"]}}}}},"required":["n"]}`),
				Input:       json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","description":"A number."},"state":{"enum":["open","closed"],"default":"open"},"tags":{"type":"array","items":{"type":"string"}}},"required":["n"],"additionalProperties":false}`),
				Call: func(_ context.Context, arguments json.RawMessage) (any, error) {
					return arguments, nil
				},
			},
			"pic-ture": {Call: func(context.Context, json.RawMessage) (any, error) {
				return sandbox.ExternalResult{Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalData, Data: []byte("PNG"), MIME: "image/png"}}}, nil
			}},
			"fail": {Call: func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("out of paper") }},
			"down": {Call: func(context.Context, json.RawMessage) (any, error) {
				return nil, &sandbox.ExternalError{Fault: sandbox.ExternalUnavailable, Text: "the server crashed", Err: errors.New("secret")}
			}},
			"late": {Call: func(context.Context, json.RawMessage) (any, error) {
				return nil, &sandbox.ExternalError{Fault: sandbox.ExternalLate, Text: "no answer within 1m0s"}
			}},
			"odd": {
				Input: json.RawMessage(`{"type":"object","properties":{"a-b":{"type":"string"},"a_b":{"type":"string"},"arguments":{},"s":{"type":"integer"},"loop":{"anyOf":[{"$ref":"#/properties/loop"},{"$ref":"#/properties/loop"},{"$ref":"#/properties/loop"}]},"both":{"allOf":[{"$ref":"#/properties/both"},{"$ref":"#/properties/both"},{"$ref":"#/properties/both"}]}},"required":["a-b","s"],"additionalProperties":true}`),
				Call:  func(context.Context, json.RawMessage) (any, error) { return json.RawMessage(`"done"`), nil },
			},
			"digits": {Call: func(context.Context, json.RawMessage) (any, error) {
				return json.RawMessage(strings.Repeat("1", 5000)), nil
			}},
			"large": {Call: func(context.Context, json.RawMessage) (any, error) { return large, nil }},
			"hang": {Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
				hangs <- "called"
				<-ctx.Done()
				hangs <- "cancelled"
				return nil, ctx.Err()
			}},
			"hung": {Call: func(context.Context, json.RawMessage) (any, error) { return <-hangs, nil }}, // once it does
		},
		"my-server": {"read-text": {Call: func(context.Context, json.RawMessage) (any, error) {
			return sandbox.ExternalResult{Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalText, Text: "one"}, {Kind: sandbox.ExternalText, Text: "two"}}}, nil
		}}},
	}
}

// cell is one call of a session, and what it must come to.
type cell struct {
	code   string
	output string
	errs   string // a part of the error; "" = it ends well
	calls  string // the names of what was called, those that failed with a !
	notes  string // a part of the notes
}

func (c cell) run(t *testing.T, client *Client, req sandbox.Request) {
	t.Helper()
	req.Code = c.code
	res, err := client.Run(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %v", c.code, err)
	}
	var calls []string
	for _, call := range res.Calls {
		name := call.Name
		if !call.OK {
			name += "!"
		}
		calls = append(calls, name)
	}
	if res.Success() != (c.errs == "") || !strings.Contains(res.Error, c.errs) || c.errs == "" && string(res.Output) != c.output ||
		strings.Join(calls, " ") != c.calls || !strings.Contains(strings.Join(res.Notes, "\n"), c.notes) {
		t.Errorf("%s\n%s: %s, error %s, calls %q, notes %q; want %+v", c.code, res.Status, res.Output, res.Error, calls, res.Notes, c)
	}
}

// What code can do with tools, in one session for each version of Python.
func TestExternalsInPython(t *testing.T) {
	cells := []cell{
		{code: "externals.demo.echo(n=1)", output: `{"n":1}`, calls: "demo.echo"},
		{code: "[externals['demo']['echo'](i, tags=('a',))['n'] for i in range(3)]", output: "[0,1,2]", calls: "demo.echo demo.echo demo.echo"},
		{code: "externals.my_server.read_text()", output: `["one","two"]`, calls: "my-server.read-text"},
		{code: "b = externals.demo.pic_ture()\n[b == b'PNG', b.mime]", output: `[true,"image/png"]`, calls: "demo.pic-ture"},
		{code: "try:\n    externals.demo.fail()\nexcept ToolError as e:\n    r = [str(e), e.kind]\nr", output: `["demo.fail: out of paper","tool"]`, calls: "demo.fail!"},
		{code: "externals.demo.down()", errs: "ToolError: demo.down: the server crashed", calls: "demo.down!"},
		{code: "externals.demo.late()", errs: "ToolError: demo.late: no answer within 1m0s", calls: "demo.late!"},
		{code: "externals.demo.ecko", errs: "externals.demo has no 'ecko' (did you mean 'echo'?)"},
		{code: "externals.nowhere", errs: "externals has no 'nowhere'"},
		{code: "externals.demo.echo()", errs: "TypeError: externals.demo.echo() misses argument 'n'"},
		{code: "externals.demo.echo(n=1, tag=[])", errs: "has no argument 'tag' (did you mean 'tags'?)"},
		{code: "externals.demo.echo(n='1')", errs: "TypeError: externals.demo.echo() argument 'n' must be int, not '1' (str)"},
		{code: "externals.demo.echo(1, tags=['a', 2])", errs: "argument 'tags[1]' must be str, not 2 (int)"},
		{code: "externals.demo.echo(1, state='shut')", errs: "ValueError: externals.demo.echo() argument 'state' must be one of 'open', 'closed'"},
		{code: "externals.demo.echo(1, tags=[object()])", errs: "argument 'tags' can't be given as JSON"},
		{code: "externals.demo.fail(x=float('nan'))", errs: "argument 'x' can't be given as JSON"},
		{code: "externals.demo.echo(1, tags=['x' * (5 << 20)])", errs: "arguments are 5242"},
		{code: "import inspect\nstr(inspect.signature(externals.demo.echo)).replace('typing.', '').replace('List', 'list')",
			output: `"(n: int, state: Literal['open', 'closed'] = 'open', tags: list[str] = None) -> dict"`},
		{code: "import pydoc\ns = [pydoc.plain(pydoc.render_doc(x)) for x in (externals, externals.demo, externals.demo.echo)]\n" +
			"['my_server' in s[0], \"state: 'open' | 'closed' = 'open'\" in s[1], 'All of it.' in s[2] and 'n: A number.' in s[2]]", output: "[true,true,true]"},
		{code: "str(inspect.signature(externals.demo.odd)).replace('typing.', '')",
			output: `"(s: int, a_b: str = None, arguments: Any = None, loop: Any = None, both: Any = None, **arguments_)"`},
		// Schemas that refer to themselves are not followed to the end.
		{code: "externals.demo.odd(loop=1, both=[1], s=1, **{'a-b': 'x'})", output: `"done"`, calls: "demo.odd"},
		{code: "externals.demo.digits() % 10", output: "1", calls: "demo.digits"},
		{code: "[repr(x) for x in externals.search('gives back')], dir(externals.my_server)",
			output: `[["demo.echo(n: int, state: 'open' | 'closed' = 'open', tags: list[str] = None) -> {n: int, more?: list[{k?: 'a'}]}  # Gives back what it gets."],["read_text"]]`},
		{code: "import asyncio\nr = await asyncio.gather(*[externals.aio.demo.echo(i) for i in range(20)])\n[x['n'] for x in r] == list(range(20))",
			output: "true", calls: strings.TrimSpace(strings.Repeat("demo.echo ", 20))},
		{code: "async def f():\n    return await externals.aio.demo.echo(7)\nimport threading\nr = []\nt = threading.Thread(target=lambda: r.append(asyncio.run(f())))\nt.start(); t.join()\nr",
			output: `[{"n":7}]`, calls: "demo.echo"},
		{code: "task = asyncio.ensure_future(externals.aio.demo.hang())\nr = [await externals.aio.demo.hung()]\ntask.cancel()\nr + [await externals.aio.demo.hung(), task.cancelled()]", output: `["called","cancelled",true]`, calls: "demo.hung demo.hang! demo.hung"},
		{code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p:\n    r = list(p.map(lambda i: externals.demo.echo(i)['n'], range(50)))\nr == list(range(50))",
			output: "true", calls: strings.TrimSpace(strings.Repeat("demo.echo ", 50))},
		{code: "externals = 5\nexternals", output: "5"},
		{code: "del externals\nimport pickle\nsaved = [externals, externals.demo, externals.demo.echo, externals.aio.demo.echo]\n[repr(x) == repr(y) for x, y in zip(saved, pickle.loads(pickle.dumps(saved)))]", output: "[true,true,true,true]"},
		{code: "n = 0\nfor i in range(120):\n    try:\n        externals.demo.echo(i)\n    except ToolError as e:\n        n += e.kind == 'denied'\nn", output: "20",
			calls: strings.TrimSpace(strings.Repeat("demo.echo ", 100)), notes: "20 more call(s) of external tools were refused"},
		{code: "import os\np = os.fork()\nif not p:\n    try:\n        externals.demo.echo(1)\n    except ToolError as e:\n        os._exit(7)\n    os._exit(1)\nos.waitpid(p, 0)[1] >> 8, externals.demo.echo(2)['n']", output: "[7,2]", calls: "demo.echo"},
		// A thread that goes on asking after its call has ended is refused.
		{code: "e = None\ndef on():\n    global e\n    try:\n        while True: externals.demo.hang()\n    except ToolError as error:\n        e = error.kind\nt = threading.Thread(target=on)\nt.start()\nexternals.demo.hung()", output: `"called"`, calls: "demo.hang! demo.hung"},
		{code: "t.join()\ne", output: `"ended"`},
		{code: "try:\n    raise ValueError\nexcept ValueError:\n    x = [externals.demo.large() for _ in range(3)]\nsum(map(len, x))", output: "2359296", calls: "demo.large demo.large demo.large"},
	}
	tried := map[string]bool{}
	for _, python := range pythons(t) {
		version, err := exec.Command(python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if err != nil || tried[string(version)] {
			continue
		}
		tried[string(version)] = true
		t.Run(strings.TrimSpace(string(version)), func(t *testing.T) {
			t.Parallel()
			client := interpreter(t, python, "--checkpoint", "always")
			tools := demo(make(chan string, 100))
			for _, c := range cells {
				c.run(t, client, sandbox.Request{Externals: tools})
			}
			cell{code: "externals.demo", errs: "No tools outside the sandbox are configured here."}.run(t, client, sandbox.Request{})
		})
	}
}
