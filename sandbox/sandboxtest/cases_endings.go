package sandboxtest

import (
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// leftover is in the command line or the name of every process that a program
// leaves behind, and leftovers lists them from inside.
const (
	leftover  = "98765.25"
	leftovers = `
import os
def _left():
    out = []
    for d in os.listdir('/proc'):
        if not d.isdigit() or int(d) == os.getpid():
            continue
        try:
            what = open('/proc/%s/cmdline' % d).read() + open('/proc/%s/comm' % d).read()
            state = open('/proc/%s/stat' % d).read().rsplit(')', 1)[1].split()[0]
        except OSError:
            continue
        if '98765' in what and state != 'Z':
            out.append([int(d), what])
    return out
_left()`
	// named lets the forks of a program give themselves a name that leftovers knows.
	named = "import ctypes\ndef named(): ctypes.CDLL(None).prctl(15, b'f98765', 0, 0, 0)\n"
)

// The limit of what never ends.
const brief = time.Second

// endingPrograms: the interpreter ends, or its time does.
func endingPrograms() []program {
	const timeout = sandbox.StatusTimeout
	// after is what the call after a time-out must find: nothing left.
	after := step{code: leftovers, output: "[]", needsTracing: true}
	ends := func(name string, s step, needs ...Ability) program {
		s.timeout, s.status, s.alone = brief, timeout, true
		s.code = "print('before')\n" + s.code
		if s.stdout == "" {
			s.stdout = "before\n"
		}
		p := program{name: name, needs: needs, fresh: true, steps: []step{{code: "before = 1"}, s, after}}
		if !s.may { // interruptible: all variables are kept
			p.steps = append(p.steps, step{code: "before", output: "1"})
		}
		return p
	}
	return []program{
		{name: "os._exit", fresh: true, steps: []step{
			{code: "x = 1\nimport os"},
			{code: "print('before', flush=True)\nos._exit(3)", status: sandbox.StatusCrash, exit: 3, stdout: "before\n", loses: true},
			{code: "40 + 2", output: "42"},
		}},
		{name: "os._exit(0) is no success", fresh: true, steps: []step{
			{code: "import os\nos._exit(0)", any: true, loses: true, check: crashed},
		}},
		{name: "segmentation fault", needs: []Ability{Native}, fresh: true, steps: []step{
			{code: "import ctypes\nprint('before', flush=True)\nctypes.string_at(0)", status: sandbox.StatusCrash, exit: 139, stdout: "before\n", stderr: anything, loses: true},
		}},
		{name: "abort", fresh: true, steps: []step{
			{code: "import os\nos.abort()", status: sandbox.StatusCrash, exit: 134, stderr: anything, loses: true},
		}},
		{name: "SIGKILL of itself", fresh: true, steps: []step{
			{code: "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", status: sandbox.StatusCrash, exit: 137, loses: true},
		}},
		{name: "SIGTERM of itself", fresh: true, steps: []step{
			{code: "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(1)", any: true},
		}},
		{name: "death between the calls", do: deathBetween},
		{name: "an exec of another program", needs: []Ability{Processes}, fresh: true, steps: []step{
			{code: "import os\nos.execv('/bin/sh', ['sh', '-c', 'exit 9'])", any: true, loses: true, check: crashed},
		}},

		ends("loop", step{code: "while True: pass"}),
		ends("sleep", step{code: "import time\ntime.sleep(1000)"}),
		ends("await", step{code: "import asyncio\nawait asyncio.Event().wait()"}),
		ends("await in asyncio.run", step{code: "import asyncio\nasync def f(): await asyncio.Event().wait()\nasyncio.run(f())"}),
		ends("busy coroutine", step{code: "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0)\nawait f()"}),
		ends("input from a pipe", step{code: "import os\nr, w = os.pipe()\nos.read(r, 1)"}),
		ends("a lock", step{code: "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()"}),
		ends("C that never looks up", step{code: "9**9**9", may: true}),
		ends("catastrophic expression", step{code: "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", may: true}),
		ends("native sleep", step{code: "import ctypes\nwhile True: ctypes.CDLL(None).sleep(1000)", may: true}, Native),
		ends("SIGINT ignored", step{code: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", may: true}),
		ends("SIGINT handled away", step{code: "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\nwhile True: pass", may: true}),
		ends("SIGINT blocked", step{code: "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass", may: true}),
		ends("exceptions swallowed", step{code: "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException:\n        pass", may: true}),
		ends("a finally that never ends", step{code: "import time\ntry:\n    time.sleep(1000)\nfinally:\n    while True: pass", may: true}),
		ends("os.system", step{code: "import os\nos.system('sleep " + leftover + "')", may: true}, Processes),
		ends("subprocess", step{code: "import subprocess\nsubprocess.run(['sleep', '" + leftover + "'])", may: true}, Processes),
		ends("a grandchild with setsid that holds stdout", step{code: "import subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep " + leftover + " & sleep " + leftover + "'], start_new_session=True)\ntime.sleep(1000)"}, Processes),
		ends("a double-forked daemon", step{code: named + "import os, time\nif os.fork() == 0:\n    named()\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)\ntime.sleep(1000)", stderr: anything}, Processes, Native),
		ends("children that ignore everything", step{code: named + "import os, signal, time\nfor _ in range(3):\n    if os.fork() == 0:\n        named()\n        for s in range(1, 65):\n            try: signal.signal(s, signal.SIG_IGN)\n            except (OSError, ValueError): pass\n        while True: time.sleep(1)\ntime.sleep(1000)", stderr: anything}, Processes, Native),
		ends("a pool", step{code: "import multiprocessing as mp, time\nwith mp.Pool(2) as p: p.map(time.sleep, [1000, 1000])", stdout: anything, stderr: anything, may: true}, Processes, Semaphores),
		ends("busy threads", step{code: "import threading\ndef busy():\n    while True: pass\nts = [threading.Thread(target=busy, daemon=True) for _ in range(3)]\n[t.start() for t in ts]\nts[0].join()", may: true}),
		ends("stopped by itself", step{code: "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", may: true}),
		ends("output without end", step{code: "while True: print('y')", stdout: anything, may: true}),
		ends("a traced loop", step{code: "import sys\nsys.settrace(lambda *a: None)\nwhile True: pass", may: true}),
		{name: "time limits of one call do not hold for the next", fresh: true, steps: []step{
			{code: "import time\ntime.sleep(0.2)\n1", timeout: 10 * time.Second, output: "1"},
			{code: "time.sleep(0.4)\n2", output: "2"},
			{code: "try:\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('cleaned up')\n    raise", timeout: brief, status: timeout, stdout: "cleaned up\n"},
			{code: "time.sleep(1.2)\n3", output: "3"},
			{code: "1/0", status: failed, errs: []string{"ZeroDivisionError"}},
		}},
	}
}

// deathBetween: whoever calls next is told, and gets an answer.
func deathBetween(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 1\nimport threading, time, os\ndef die():\n    time.sleep(0.3)\n    os._exit(4)\nthreading.Thread(target=die).start()"})
	time.Sleep(time.Second)
	r, _ := g.call(t, sandbox.Request{Code: "'x' in globals()"})
	lost := r.State == sandbox.StateLost && string(r.Output) == "false"
	restored := r.State == sandbox.StateRestored && string(r.Output) == "true"
	if r.Status != sandbox.StatusOK || !lost && !restored {
		t.Errorf("status %s, state %s, the variable is there: %s; %s", r.Status, r.State, r.Output, r.Error)
	}
	if len(r.Notes) == 0 {
		t.Error("no note tells that the interpreter ended")
	}
	g.ran = true
	g.step(t, 1, step{code: "40 + 2", output: "42"})
}
