package sandboxtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// hostilePrograms: code that wrecks its own interpreter, by mistake or on
// purpose. Those of the escape table that need no wall come last.
func hostilePrograms() []program {
	fine := []step{
		{code: "import sys\nsys.stdout.write('hi\\n')\n40 + 2", stdout: "hi\n", output: "42"},
		{code: "before", output: "1"},
		// Without its source line, where the code broke the library that finds it.
		{code: "1/0", status: failed, errs: []string{"ZeroDivisionError"}, not: kernelFrames},
	}
	// survives: the next calls work as if nothing had been.
	survives := func(name, code string) program {
		steps := []step{{code: "before = 1"}, {code: code, output: anything, stdout: anything, stderr: anything}}
		return program{name: name, fresh: true, steps: append(steps, fine...)}
	}
	// falls: the call may end badly, the next one works, and the state is the truth.
	// The damage may be in the checkpoint too, and end the interpreter at any later call: Reset is
	// the way out that must always be there.
	falls := func(name, code string) program {
		return program{name: name, fresh: true, steps: []step{{code: code, timeout: 5 * time.Second, any: true}, {code: "sum(range(10))", reset: true, output: "45"}}}
	}
	// What goes on after the call hits the interpreter between the calls, and is over before
	// the next one, whose code it would interrupt.
	lingers := func(name, code string) program {
		return program{name: name, do: func(t *testing.T, g *guest) {
			g.step(t, 0, step{code: code, timeout: 5 * time.Second, any: true, between: 500 * time.Millisecond})
			g.step(t, 1, step{code: "sum(range(10))", output: "45", may: true})
		}}
	}
	programs := []program{
		survives("json replaced", "import json\njson.dumps = json.loads = lambda *a, **k: 'lie'"),
		survives("os replaced", "import os\nos.write = os.read = os.fork = os.waitpid = os.dup2 = os.close = lambda *a, **k: 0"),
		survives("builtins replaced", "import builtins\nfor n in ('print', 'repr', 'len', 'exec', 'eval', 'compile', 'open', 'isinstance', 'type', 'str'):\n    setattr(builtins, n, lambda *a, **k: 'lie')"),
		survives("the display hook replaced", "import sys\nsys.displayhook = sys.excepthook = lambda *a: 'lie'"),
		survives("traceback and ast replaced", "import traceback, ast, linecache\ntraceback.format_exception = traceback.TracebackException = traceback.print_exc = lambda *a, **k: 'lie'\nast.parse = lambda *a, **k: 'lie'\nlinecache.getline = linecache.getlines = lambda *a: 'lie'"),
		survives("streams replaced", "import sys, io\nsys.stdout = io.StringIO()\nsys.stderr = None\nsys.stdin = None"),
		survives("streams closed", "import sys\nsys.stdout.close()\nsys.stderr.close()"),
		survives("streams deleted", "import sys\ndel sys.stdout, sys.stderr"),
		survives("modules emptied", "import sys\nfor m in ('json', 'os', 'traceback', 'ast', 'signal', 'threading', 'asyncio', 'io'):\n    sys.modules[m] = None"),
		survives("a main of another's", "import sys, types\nsys.modules['__main__'] = types.ModuleType('__main__')"),
		survives("path and hooks emptied", "import sys\nsys.path[:] = []\nsys.meta_path[:] = []\nsys.path_hooks[:] = []"),
		survives("traced", "import sys, threading\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nthreading.settrace(lambda *a: None)"),
		survives("the recursion limit lowered", "import sys\nsys.setrecursionlimit(60)"),
		survives("signals ignored", "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass"),
		survives("a wakeup descriptor", "import signal, os\nr, w = os.pipe()\nos.set_blocking(w, False)\nsignal.set_wakeup_fd(w)\nNone"),
		survives("collection off", "import gc\ngc.disable()\ngc.set_threshold(1)\ngc.freeze()"),
		survives("another directory, which is gone", "import os, tempfile\nd = tempfile.mkdtemp()\nos.chdir(d)\nos.rmdir(d)"),
		survives("names of the kernel's taken", "inputs = _return = None\n__name__ = 'x'\n__file__ = 5"),
		survives("a SIGPIPE, a SIGCHLD", "import signal, os\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.kill(os.getpid(), signal.SIGPIPE)"),
		survives("an alarm for later", "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\nNone"),
		survives("exit handlers", "import atexit, time\natexit.register(time.sleep, 1000)\natexit._clear()\natexit.register(time.sleep, 1000)\nNone"),
		survives("the environment emptied", "import os\nos.environ.clear()"),
		survives("a huge warning", "import warnings\nwarnings.warn('w' * 1_000_000)"),
		{name: "globals emptied", fresh: true, steps: []step{{code: "globals().clear()"}, {code: "40 + 2", output: "42"}, {code: "import math\nmath.floor(2.5)", output: "2"}}},
		{name: "descriptor 1 closed", fresh: true, steps: []step{
			{code: "import os\nos.close(1)\nos.close(2)", output: anything, stdout: anything, stderr: anything},
			{code: "40 + 2", output: "42", stdout: anything, stderr: anything},
			{code: "print('again')", reset: true, stdout: "again\n"},
		}},
		{name: "descriptor 1 pointed elsewhere", fresh: true, steps: []step{
			{code: "import os\nf = os.open('elsewhere', os.O_CREAT | os.O_RDWR)\nos.dup2(f, 1)\nprint('there')\n0", output: "0", stdout: anything},
			{code: "40 + 2", output: "42"},
			{code: "print('again')", reset: true, stdout: "again\n"},
		}},
		falls("rubbish in every descriptor", "import os\nfor fd in range(3, 300):\n    try:\n        os.set_blocking(fd, False)\n        os.write(fd, b'\\x00\\xff rubbish {}[] \\n' * 50)\n        os.set_blocking(fd, True)\n    except OSError: pass"),
		falls("every descriptor closed", "import os\nos.closerange(3, 1024)"),
		falls("every descriptor made one", "import os\nfor fd in range(3, 300):\n    try:\n        os.fstat(fd)\n        os.dup2(0, fd)\n    except OSError: pass"),
		falls("every descriptor read", "import os\nfor fd in range(3, 300):\n    try:\n        os.set_blocking(fd, False)\n        os.read(fd, 1 << 16)\n    except OSError: pass"),
		falls("a wild write", "import ctypes\nctypes.memset(id(None), 0xff, 8)"),
		falls("types broken", "import ctypes, gc\nfor t in (int, dict, str):\n    gc.get_referents(t.__dict__)[0].clear()"),
		falls("a deep C stack", "import ctypes\n@ctypes.CFUNCTYPE(None)\ndef f(): f()\nimport sys\nsys.setrecursionlimit(10**6)\nf()"),
		falls("threads that outlive the call", "import threading\ndef busy():\n    while True: pass\nfor _ in range(2): threading.Thread(target=busy).start()"),
		lingers("SIGINT storm", storm),
		lingers("an asynchronous exception in the main thread", "import ctypes, threading, time\ndef late():\n    for _ in range(20):\n        time.sleep(0.01)\n        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(ValueError))\nthreading.Thread(target=late).start()"),
	}
	for _, p := range Probes() {
		switch {
		case !strings.HasPrefix(p.ID, "PX-"):
			continue
		case slices.Contains([]string{"PX-12", "PX-14", "PX-15", "PX-17", "PX-18", "PX-22"}, p.ID): // for these it takes a wall
			continue
		}
		programs = append(programs, program{name: p.ID, do: func(t *testing.T, g *guest) {
			env := EscapeEnv{CanaryValue: "canary-" + strings.ReplaceAll(t.Name(), "/", "-")}
			opened := g.s
			got, detail := wreck(t, func(*testing.T) sandbox.Session { return opened }, nil, p, env)
			verdict(t, p, got, detail, "")
		}})
	}
	return programs
}

// storm sends signals for a while.
const storm = "import os, signal, threading, time\ndef storm():\n    for _ in range(200):\n        os.kill(os.getpid(), signal.SIGINT)\n        time.sleep(0.001)\nthreading.Thread(target=storm).start()"
