package sandboxtest

import (
	"testing"

	"mcp-sandbox/sandbox"
)

const failed = sandbox.StatusError

// kernelFrames are what no traceback may show: files of the kernel.
var kernelFrames = []string{"kernel", "supervisor", "worker.py", "exec(body", "eval(last", "/opt/", "runpy", "<frozen"}

// errorPrograms: exceptions, exits, and what they leave.
func errorPrograms() []program {
	return []program{
		{name: "output and traceback", steps: []step{
			{code: "import sys\nprint('before')\nprint('warned', file=sys.stderr)\ndef f():\n    return 1 / 0\nf()", status: failed, stdout: "before\n", stderr: "warned\n",
				errs: []string{"Traceback", "ZeroDivisionError: division by zero", "return 1 / 0", "line 5", "line 6", "in f"}, not: append([]string{`File "/`}, kernelFrames...)},
			{code: "f()", status: failed, errs: []string{"return 1 / 0", "in f"}, not: append([]string{`File "/`}, kernelFrames...)}, // source of an earlier call
		}},
		{name: "syntax", alone: true, steps: []step{
			{code: "x = (", status: failed, errs: []string{"SyntaxError"}, not: kernelFrames},
			{code: "print('not run')\ny = = 3", status: failed, errs: []string{"SyntaxError", "y = = 3", "line 2"}, not: append([]string{"not run\n"}, kernelFrames...)},
			{code: "if True:\nx", status: failed, errs: []string{"IndentationError"}, not: kernelFrames},
			{code: "return 5", status: failed, errs: []string{"SyntaxError"}, not: kernelFrames},
			{code: "break", status: failed, errs: []string{"SyntaxError"}, not: kernelFrames},
		}},
		{name: "exceptions of every kind", alone: true, steps: []step{
			{code: "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", status: failed, errs: []string{"ZeroDivisionError", "direct cause", "KeyError: 'k'"}, not: kernelFrames},
			{code: "raise KeyboardInterrupt", status: failed, errs: []string{"KeyboardInterrupt"}},
			{code: "raise BaseException('b')", status: failed, errs: []string{"BaseException"}},
			{code: "raise GeneratorExit", status: failed, errs: []string{"GeneratorExit"}},
			{code: "raise StopIteration(3)", status: failed, errs: []string{"StopIteration"}},
			{code: "class E(Exception):\n    def __str__(self):\n        raise RuntimeError('in str')\nraise E", status: failed, errs: []string{"E"}},
			{code: "def r():\n    return r()\nr()", status: failed, errs: []string{"RecursionError"}, not: kernelFrames},
			{code: "import json\njson.loads('{')", status: failed, errs: []string{"JSONDecodeError"}, not: []string{"supervisor", "worker.py"}},
			{code: "await_ = 1\nassert False, 'why'", status: failed, errs: []string{"AssertionError: why"}},
			{code: "import nothing_of_this_name", status: failed, errs: []string{"ModuleNotFoundError", "nothing_of_this_name"}, not: []string{"supervisor", "worker.py"}},
			{code: "undefined", status: failed, errs: []string{"NameError"}, not: kernelFrames},
			{code: "raise ValueError('line\\nline\\x00\\x1b[31m')", status: failed, errs: []string{"ValueError"}},
			{code: "raise 5", status: failed, errs: []string{"TypeError"}, not: kernelFrames},
		}},
		{name: "a huge message is bounded", steps: []step{
			{code: "raise ValueError('x' * 50_000_000)", status: failed, errs: []string{"ValueError"}, check: func(t *testing.T, r sandbox.Result) {
				if len(r.Error) > 1<<20 {
					t.Errorf("an error of %d bytes", len(r.Error))
				}
			}},
		}},
		{name: "sys.exit", steps: []step{
			{code: "mark = 5\nimport sys\nsys.exit()"},
			{code: "sys.exit(0)"},
			{code: "sys.exit(None)"},
			{code: "sys.exit(False)"},
			{code: "print('out')\nsys.exit(3)", status: failed, exit: 3, stdout: "out\n"},
			{code: "sys.exit('a message')", status: failed, exit: 1, errs: []string{"a message"}},
			{code: "raise SystemExit(4)", status: failed, exit: 4},
			{code: "def f():\n    sys.exit(5)\ntry:\n    f()\nfinally:\n    print('finally')", status: failed, exit: 5, stdout: "finally\n"},
			{code: "sys.exit(256)", any: true},
			{code: "sys.exit(-1)", any: true},
			{code: "sys.exit(10**100)", any: true},
			{code: "sys.exit([1])", any: true},
			{code: "mark", output: "5"},
		}},
		{name: "standard input is empty", alone: true, steps: []step{
			{code: "input()", status: failed, errs: []string{"EOFError"}},
			{code: "input('prompt> ')", status: failed, stdout: anything, errs: []string{"EOFError"}},
			{code: "import sys\nsys.stdin.read()", output: `""`},
			{code: "import os\nos.read(0, 10)", output: anything, check: part("b''")},
		}},
		{name: "standard input of children is empty", alone: true, needs: []Ability{Processes}, steps: []step{
			{code: "import subprocess\nsubprocess.run(['cat'], stdout=subprocess.PIPE, text=True).stdout", output: `""`},
			{code: "import os\nos.system('cat')", output: "0"},
		}},
	}
}
