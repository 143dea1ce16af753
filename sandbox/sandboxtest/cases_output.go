package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// outputPrograms: both streams, whole or cut, whoever writes them.
func outputPrograms() []program {
	lines := 0
	for i := range 1_000_000 {
		lines += len(fmt.Sprintln("line", i))
	}
	return []program{
		{name: "both streams", steps: []step{
			{code: "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c', end='')", stdout: "a\nc", stderr: "b\n"},
			{code: "print('é', '😀')", stdout: "é 😀\n"},
			{code: "sys.stdout.write('no newline')\nNone", stdout: "no newline"},
			{code: "sys.stdout.buffer.write(b'bytes\\n')\nNone", stdout: "bytes\n"},
			{code: "print('x', flush=True)\nprint('y')", stdout: "x\ny\n"},
			{code: "1"[:0] + "None"}, // nothing of an earlier call
			{code: "import warnings\nwarnings.warn('mind')", stderr: anything, check: func(t *testing.T, r sandbox.Result) {
				if !strings.Contains(r.Stderr, "mind") {
					t.Errorf("stderr is %q", r.Stderr)
				}
			}},
			{code: "import logging\nlogging.warning('logged')", stderr: anything, check: func(t *testing.T, r sandbox.Result) {
				if !strings.Contains(r.Stderr, "logged") {
					t.Errorf("stderr is %q", r.Stderr)
				}
			}},
		}},
		{name: "a million lines", steps: []step{
			{code: "for i in range(1_000_000): print('line', i)", timeout: 4 * time.Minute, stdout: anything, check: cut(int64(lines), "line 0\nline 1\n", "line 999999\n")},
		}},
		{name: "stderr alone", steps: []step{
			{code: "import sys\nsys.stderr.write('s' * 5_000_000 + 'end')\nNone", stderr: anything, check: func(t *testing.T, r sandbox.Result) {
				cutStream(t, "stderr", r.Stderr, r.Truncated.Stderr, 5_000_003, "sss", "send")
			}},
		}},
		{name: "64 MiB in one write", steps: []step{
			{code: "import os\nn = 64 << 20\nb = memoryview(b'a' + b'm' * (n - 2) + b'z')\nwhile b: b = b[os.write(1, b):]", stdout: anything, check: cut(64<<20, "amm", "mmz")},
			{code: "del b\nprint('n' * (64 << 20))", stdout: anything, check: cut(64<<20+1, "nnn", "nnn\n")},
		}},
		{name: "1 GiB", heavy: true, steps: []step{
			{code: "import os\nb = b'g' * (1 << 20)\nfor _ in range(1024):\n    v = memoryview(b)\n    while v: v = v[os.write(1, v):]", timeout: 2 * time.Minute, stdout: anything, check: cut(1<<30, "ggg", "ggg")},
		}},
		{name: "a line of 100 MB", heavy: true, steps: []step{
			{code: "print('l' * 100_000_000)", timeout: time.Minute, stdout: anything, check: cut(100_000_001, "lll", "lll\n")},
		}},
		{name: "output and then an error", steps: []step{
			{code: "for i in range(100_000): print('row', i)\n1/0", status: failed, stdout: anything, errs: []string{"ZeroDivisionError"}, check: func(t *testing.T, r sandbox.Result) {
				if !strings.HasPrefix(r.Stdout, "row 0\n") || !strings.HasSuffix(r.Stdout, "row 99999\n") {
					t.Errorf("head or tail is missing: %.40q … %q", r.Stdout, r.Stdout[max(0, len(r.Stdout)-40):])
				}
			}},
		}},
		{name: "bytes that are no text", steps: []step{
			{code: "import os\nos.write(1, b'\\xff\\xfe\\x80ok\\n')", output: "6", stdout: "\ufffd\ufffd\ufffdok\n"},
			{code: "os.write(2, b'\\xc3')", output: "1", stderr: "\ufffd"},
			{code: "os.write(1, b'a\\x00b')", output: "3", stdout: "a\x00b"},
			{code: "print('\\x1b[31mred\\x1b[0m\\x07\\r')", stdout: "\x1b[31mred\x1b[0m\a\r\n"},
			{code: "for b in '😀'.encode(): os.write(1, bytes([b]))", stdout: "😀"},
			{code: "os.write(1, ('😀' * 50_000).encode()[:-1])", output: "199999", stdout: anything, check: func(t *testing.T, r sandbox.Result) {
				if !utf8.ValidString(r.Stdout) || r.Truncated.Stdout.Produced != 199_999 {
					t.Errorf("%v, valid: %v", r.Truncated.Stdout, utf8.ValidString(r.Stdout))
				}
			}},
		}},
		{name: "of children and of C", needs: []Ability{Processes, Native}, steps: []step{
			{code: "import subprocess\nsubprocess.run(['sh', '-c', 'echo out; echo err >&2']).returncode", output: "0", stdout: "out\n", stderr: "err\n"},
			{code: "import os\nos.system('echo sys')", output: "0", stdout: "sys\n"},
			{code: "import ctypes\nctypes.CDLL(None).printf(b'from C %d\\n', 5)\nNone", stdout: "from C 5\n"},
			{code: "ctypes.CDLL(None).puts(b'puts')\nctypes.CDLL(None).write(2, b'raw\\n', 4)", output: "4", stdout: "puts\n", stderr: "raw\n"},
			{code: "print('first')\nos.system('echo second')\nprint('third')", stdout: "first\nsecond\nthird\n"},
		}},
		{name: "from the background, between calls", fresh: true, steps: []step{
			{code: "import threading, time\ndef late():\n    time.sleep(0.3)\n    print('late')\nth = threading.Thread(target=late)\nth.start()"},
			{code: "th.join()\nprint('now')", stdout: "late\nnow\n"},
		}},
		{name: "a child that holds the streams", needs: []Ability{Processes}, fresh: true, steps: []step{
			{code: "import subprocess\np = subprocess.Popen(['sleep', '" + leftover + "'], start_new_session=True)\nprint('done')", timeout: 15 * time.Second, stdout: "done\n", check: func(t *testing.T, r sandbox.Result) {
				if r.Duration > 8*time.Second {
					t.Errorf("the call waited %v for a process in the background", r.Duration)
				}
			}},
			{code: "p.poll() is None", output: "true"},
			{code: leftovers, needsTracing: true, reset: true, output: "[]"},
		}},
		{name: "Progress", needs: []Ability{Streaming}, do: progress},
	}
}

// cut wants a stdout of n bytes, of which head and tail are kept.
func cut(n int64, head, tail string) func(*testing.T, sandbox.Result) {
	return func(t *testing.T, r sandbox.Result) {
		t.Helper()
		cutStream(t, "stdout", r.Stdout, r.Truncated.Stdout, n, head, tail)
	}
}

func cutStream(t *testing.T, name, s string, c sandbox.Count, n int64, head, tail string) {
	t.Helper()
	if !strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) {
		t.Errorf("%s lacks its head or its tail: %.60q … %q", name, s, s[max(0, len(s)-60):])
	}
	if c.Produced != n || c.Kept <= 0 || c.Kept >= n || c.Kept > int64(len(s)) {
		t.Errorf("%s counts %+v of %d bytes, and is %d long", name, c, n, len(s))
	}
	if len(s) > 1<<20 {
		t.Errorf("%s is %d bytes long", name, len(s))
	}
}

// progress wants every piece of output, in order, while the code runs, and
// nothing after Run has returned.
func progress(t *testing.T, g *guest) {
	g.mark(t)
	var mu sync.Mutex
	var out, errOut bytes.Buffer
	var first time.Time
	var returned atomic.Bool
	var inside atomic.Int32
	start := time.Now()
	r, _ := g.call(t, sandbox.Request{
		Code: "import sys, time\nprint('first', flush=True)\ntime.sleep(1.5)\nprint('err', file=sys.stderr, flush=True)\nfor i in range(30000): print('line', i)",
		Progress: func(stream sandbox.Stream, piece []byte) {
			if inside.Add(1) != 1 {
				t.Error("Progress is called from two goroutines at a time")
			}
			defer inside.Add(-1)
			if returned.Load() {
				t.Error("Progress is called after Run has returned")
			}
			mu.Lock()
			defer mu.Unlock()
			if first.IsZero() {
				first = time.Now()
			}
			if stream == sandbox.Stderr {
				errOut.Write(piece)
			} else {
				out.Write(piece)
			}
		},
	})
	took := time.Since(start)
	returned.Store(true)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("first piece after %v of %v", first.Sub(start), took)
	if first.IsZero() || took-first.Sub(start) < time.Second {
		t.Error("the first line came no earlier than the result")
	}
	var want strings.Builder
	want.WriteString("first\n")
	for i := range 30000 {
		fmt.Fprintln(&want, "line", i)
	}
	if out.String() != want.String() || errOut.String() != "err\n" {
		t.Errorf("the pieces are %d and %d bytes together, want %d and 4", out.Len(), errOut.Len(), want.Len())
	}
	if r.Truncated.Stdout.Produced != int64(want.Len()) {
		t.Errorf("%d bytes counted, %d shown", r.Truncated.Stdout.Produced, want.Len())
	}
	// A Progress of one call sees nothing of the next.
	if r, err := g.s.Run(context.WithoutCancel(t.Context()), sandbox.Request{Code: "print('x')"}); err != nil || r.Stdout != "x\n" {
		t.Errorf("the next call: %v, %q", err, r.Stdout)
	}
}
