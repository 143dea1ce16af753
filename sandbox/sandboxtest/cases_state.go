package sandboxtest

import (
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// statePrograms: what is remembered, what goes in and what comes out.
func statePrograms() []program {
	return []program{
		{name: "remembers", fresh: true, steps: []step{
			{code: "x = 41"},
			{code: "x + 1", output: "42"},
			{code: "def f(n):\n    return n * x\nclass C:\n    y = 7\nimport math"},
			{code: "f(2) + C.y + math.floor(0.5)", output: "89"},
			{code: "x = 1\nf(2)", output: "2"},
		}},
		{name: "the first state is new", fresh: true, steps: []step{{code: "1", output: "1"}}},
		{name: "a first call that raises leaves what it did", fresh: true, steps: []step{
			{code: "x = 41\n1/0", status: sandbox.StatusError, errs: []string{"ZeroDivisionError"}},
			{code: "x", output: "41"},
		}},
		{name: "last expression", steps: []step{
			{code: "41 + 1", output: "42"},
			{code: "None"},
			{code: "x = 5"},
			{code: "x;"},
			{code: "x", output: "5"},
			{code: "x # a comment;", output: "5"},
			{code: "'a;'", output: `"a;"`},
			{code: "def f():\n    return 3\nf()", output: "3"},
			{code: "f(); x", output: "5"},
			{code: "x; f()", output: "3"},
			{code: "if True:\n    x"},
			{code: "for i in range(3): i"},
			{code: "(x,\n x)", output: "[5, 5]"},
			{code: "x\n\n# trailing\n\n", output: "5"},
			{code: "'''doc'''", output: `"doc"`},
			{code: "print(1)", stdout: "1\n"},
			{code: "print(1)\n2", stdout: "1\n", output: "2"},
			{code: "lambda: 1", output: anything},
			{code: "y = z = 3"},
			{code: "(w := 8)", output: "8"},
			{code: "# nothing but a comment"},
			{code: "\n"},
			{code: "pass"},
			{code: "del x"},
			{code: "_ = 9"},
			{code: "_", output: "9"},
		}},
		{name: "inputs", fresh: true, steps: []step{
			{code: "inputs['n'] + 1", inputs: map[string]any{"n": 41}, output: "42"},
			{code: "inputs['n']", output: "41"}, // none given: the name is left alone
			{code: "inputs", inputs: map[string]any{}, output: "{}"},
			{code: "type(inputs).__name__", inputs: map[string]any{}, output: `"dict"`},
			{code: "[inputs['a'], inputs['b']['c'][1]]", inputs: map[string]any{"a": "é😀\x00\n", "b": map[string]any{"c": []any{1, nil, 2.5}}}, output: `["é😀\u0000\n", null]`},
			{code: "str(inputs['big']), type(inputs['big']).__name__", inputs: map[string]any{"big": jsonNumber("123456789012345678901234567890")}, output: `["123456789012345678901234567890", "int"]`},
			{code: "inputs['n'] == 9007199254740993", inputs: map[string]any{"n": int64(9007199254740993)}, output: "true"},
			{code: "[type(v).__name__ for v in inputs.values()]", inputs: map[string]any{"a": 1, "b": 1.5, "c": true, "d": nil, "e": "s", "f": []any{}}, output: `["int","float","bool","NoneType","str","list"]`},
			{code: "inputs = 5\ninputs", output: "5"},
			{code: "inputs['k']", inputs: map[string]any{"k": "'; import os; '\"\\"}, output: `"'; import os; '\"\\"`},
			{code: "len(inputs['s'])", inputs: map[string]any{"s": strings.Repeat("x", 1<<20)}, output: "1048576"},
		}},
		{name: "_return", fresh: true, steps: []step{
			{code: "_return = {'a': [1, 2.5, None, True]}", ret: `{"a":[1,2.5,null,true]}`},
			{code: "'_return' in globals()", output: "false"},
			{code: "1", output: "1"}, // nothing of an earlier one
			{code: "_return = 3\n4", ret: "3", output: "4"},
			{code: "_return = None"},
			{code: "_return = 5\n1/0", status: sandbox.StatusError, ret: anything, errs: []string{"ZeroDivisionError"}},
			{code: "0", output: "0"},
			{code: "def f():\n    global _return\n    _return = 'g'\nf()", ret: `"g"`},
		}},
		{name: "a real __main__", fresh: true, steps: []step{
			{code: "__name__", output: `"__main__"`},
			{code: "import sys, __main__\nx = 3\n[__main__.x, sys.modules['__main__'] is __main__, vars(__main__) is globals()]", output: "[3,true,true]"},
			{code: "class C: pass\nC.__module__", output: `"__main__"`},
			{code: "len(sys.argv) <= 1", output: "true"},
			{code: "[n for n in dir() if not n.startswith('__') and n not in ('sys', 'x', 'C', 'inputs')]", output: "[]"},
		}},
		{name: "source of every shape", alone: true, steps: []step{
			{code: "\tx = 1\n\tx + 1", output: "2"},
			{code: "    x = 1\n    if x:\n        x = 2\n    x", output: "2"},
			{code: "x = 1\r\nif x:\r\n    x = 3\r\nx\r\n", output: "3"},
			{code: "\ufeffx = 4\nx", output: "4"},
			{code: "s = '''a\n  b\n'''\ns", output: `"a\n  b\n"`},
			{code: "é = 'ü'; é", output: `"ü"`},
			{code: "'\\ud83c\\udf78' == '\\ud83c' + '\\udf78'", output: "true"},
			{code: "x = [\n1,\n2]\nx", output: "[1,2]"},
			{code: "from __future__ import annotations\ndef f(a: Undefined): return 6\nf(0)", output: "6"},
			{code: strings.Repeat("x = 1\n", 20000) + "x", output: "1"},
			{code: "x = (" + strings.Repeat("(", 50) + "1" + strings.Repeat(")", 50) + ")\nx", output: "1"},
			{code: "x = '\xff\xfe'", any: true},
			{code: "x = 1\x00", any: true},
			{code: strings.Repeat("(", 100000), any: true},
			{code: strings.Repeat("-", 100000) + "1", any: true},
		}},
		{name: "files in the workspace", fresh: true, do: func(t *testing.T, g *guest) {
			p := program{steps: []step{
				{code: "open('a.txt', 'w').write('hello')", output: "5"},
				{code: "open('a.txt').read()", output: `"hello"`},
				{code: "import os\nos.makedirs('d/e', exist_ok=True)\nopen('d/e/b.bin', 'wb').write(bytes(range(256)))\nsorted(os.listdir('.'))", output: `["a.txt","d"]`},
				{code: "import os, sys\n[os.path.exists('a.txt'), os.path.isabs(os.getcwd())]", reset: true, output: "[true,true]"},
				{code: "open('helper.py', 'w').write('value = 11')\nimport helper\nhelper.value", output: "11"},
			}}
			p.run(t, g)
			f, ok := g.s.(sandbox.Files)
			if !ok {
				return
			}
			for name, want := range map[string]int{"a.txt": 5, "d/e/b.bin": 256} {
				if b, err := f.Root().ReadFile(name); err != nil || len(b) != want {
					t.Errorf("the server sees %d bytes of %s, want %d: %v", len(b), name, want, err)
				}
			}
		}},
		{name: "a workspace that holds names of the library", fresh: true, steps: []step{
			{code: "for n in ('json', 'pickle', 'struct', 'ast', 'traceback', 'sitecustomize', 'usercustomize', 'threading', 'signal', 'selectors', 'asyncio', 'linecache'):\n" +
				"    open(n + '.py', 'w').write('print(\"poison\")\\nraise SystemExit(9)\\n')\n40 + 2", output: "42"},
			{code: "40 + 2", reset: true, output: "42"},
			{code: "1/0", status: sandbox.StatusError, errs: []string{"ZeroDivisionError", "1/0"}, not: []string{"poison"}},
			{code: "import json, pickle, asyncio, threading\nasync def f(): return json.dumps([1])\nawait f()", output: `"[1]"`, not: []string{"poison"}},
			{code: "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-c', 'import json; print(json.dumps(3))'], capture_output=True, text=True).stdout.strip()", output: `"3"`},
		}},
	}
}
