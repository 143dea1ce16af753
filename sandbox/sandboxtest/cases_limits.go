package sandboxtest

import (
	"fmt"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// limitPrograms: memory beyond the limit, tasks beyond the limit. The escape
// table has more of them, which need a wall.
func limitPrograms() []program {
	oom := func(name, code string, needs ...Ability) program {
		return program{name: name, needs: append(needs, MemoryLimit), do: func(t *testing.T, g *guest) {
			g.step(t, 0, step{code: "big = None"})
			g.step(t, 1, step{
				code: fmt.Sprintf("limit = %d\n%s", g.has.Limits.Memory, code), timeout: 60 * time.Second,
				status: sandbox.StatusOOM, exit: 137, stdout: anything, stderr: anything, may: true,
			})
			g.step(t, 2, step{code: "big = None\nsum(range(10))", output: "45"})
		}}
	}
	return []program{
		oom("one block", "big = b'1' * (limit * 2)"),
		oom("little by little", "big = []\nwhile True: big.append(b'1' * (1 << 20))"),
		oom("small objects", "big = []\nwhile True: big.append([0] * 1000)"),
		oom("doubling", "big = 'x'\nwhile True: big += big"),
		oom("shared mappings", "import mmap\nbig = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)\n    m.write(b'1' * (8 << 20))\n    big.append(m)"),
		oom("a child process", "import os, signal\npid = os.fork()\nif pid == 0:\n    try:\n        big = []\n        while True: big.append(b'1' * (1 << 20))\n    except MemoryError:\n        os._exit(77)\n"+
			"s = os.waitpid(pid, 0)[1]\nif os.waitstatus_to_exitcode(s) in (77, -9): raise MemoryError('the child')", Processes),
		{name: "memory that is caught is no fault", needs: []Ability{MemoryLimit}, do: func(t *testing.T, g *guest) {
			g.step(t, 0, step{code: fmt.Sprintf("try:\n    x = bytearray(%d)\n    r = 'allocated'\nexcept MemoryError:\n    r = 'refused'", g.has.Limits.Memory*4), may: true, any: true})
			g.step(t, 1, step{code: "40 + 2", output: "42"})
		}},
		{name: "fork bomb", needs: []Ability{Processes, Native, TaskLimit}, fresh: true, steps: []step{
			{code: named + "import os\nprint('before', flush=True)\nwhile True:\n    try:\n        if os.fork() == 0: named()\n    except OSError: pass", timeout: 1500 * time.Millisecond, any: true},
			{code: leftovers, output: "[]", needsTracing: true},
		}},
		{name: "tasks", needs: []Ability{Processes, TaskLimit}, do: func(t *testing.T, g *guest) {
			g.step(t, 0, step{
				code: fmt.Sprintf("import os, signal, time\nkids, n = [], 0\ntry:\n    while n < %d:\n        pid = os.fork()\n        if pid == 0:\n            time.sleep(60)\n            os._exit(0)\n        kids.append(pid)\n        n += 1\nexcept OSError:\n    pass\n"+
					"for k in kids: os.kill(k, signal.SIGKILL)\nfor k in kids: os.waitpid(k, 0)\nn", g.has.Limits.Tasks+50),
				timeout: 30 * time.Second, output: anything, stderr: anything, check: func(t *testing.T, r sandbox.Result) {
					var n int
					if _, err := fmt.Sscan(string(r.Output), &n); err != nil || n < 2 || n > g.has.Limits.Tasks {
						t.Errorf("%s processes beside the limit of %d", r.Output, g.has.Limits.Tasks)
					}
				},
			})
			g.step(t, 1, step{code: "import subprocess\nsubprocess.run(['true']).returncode", output: "0"})
		}},
	}
}

// crashed wants the end of the interpreter to be called that.
func crashed(t *testing.T, r sandbox.Result) {
	t.Helper()
	if r.Status != sandbox.StatusCrash {
		t.Errorf("status %s, though the interpreter ended: %s", r.Status, r.Error)
	}
}
