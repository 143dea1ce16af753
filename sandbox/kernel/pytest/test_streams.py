"""Standard streams: nothing lost, nothing broken for the next call."""

import json
import os
import sys
import tempfile
import unittest

from driver import Case, Kernel


class Streams(Case):
    def test_text(self):
        for code, out, err in (
            ("print('hi')", "hi\n", ""),
            ("import sys; print('e', file=sys.stderr)", "", "e\n"),
            ("print('\\ud83d')", "\\ud83d\n", ""),
            ("print('äß\U0001f378')", "äß\U0001f378\n", ""),
            ("import os; os.write(1, b'\\xff\\xfe\\x80');", "\ufffd\ufffd\ufffd", ""),
            ("sys.stdout.buffer.write(b'raw');", "raw", ""),
            ("print('no newline', end='')", "no newline", ""),
            ("print('a\\r\\nb')", "a\r\nb\n", ""),
            ("sys.stdout.writelines(['x', 'y'])", "xy", ""),
            ("os.system('echo child; echo oops >&2');", "child\n", "oops\n"),
            ("[sys.stdout.fileno(), sys.stderr.fileno(), sys.stdin.fileno(), sys.stdout.encoding, sys.stdout.isatty()];", "", ""),
        ):
            with self.subTest(code=code):
                self.ok(code)
                self.assertEqual((out, err), (self.kernel.said(), self.kernel.said(2)))

    def test_big(self):
        identity = self.kernel.request("print('x' * 10_000_000, end='')")
        self.kernel.result(identity)
        self.assertEqual(10_000_000, len(self.kernel.said()))

    def test_replaced_and_broken(self):
        for code in (
            "import io; sys.stdout = io.StringIO(); print('swallowed')",
            "sys.stdout.close()",
            "sys.stderr.close(); sys.stdin.close()",
            "sys.stdout = None",
            "del sys.stdout, sys.stderr",
            "sys.__stdout__.close()",
            "os.close(1)",
            "os.close(0); os.close(1); os.close(2)",
            "f = os.open('/dev/null', os.O_WRONLY); os.dup2(f, 1); os.dup2(f, 2); os.close(f)",
            "sys.stdout.detach()",
            "class W:\n    def write(self, s): 1/0\n    def flush(self): 1/0\nsys.stdout = sys.stderr = W()",
            "sys.displayhook = sys.excepthook = None",
            "sys.stdout.reconfigure(encoding='ascii', errors='strict')",
        ):
            with self.subTest(code=code):
                self.kernel.run("import sys, os\n" + code)
                self.kernel.said()
                self.ok("print('ä back'); print('too', file=sys.stderr)")
                self.assertEqual(("ä back\n", "too\n"), (self.kernel.said(), self.kernel.said(2)))
                self.assertIn("EOFError", self.kernel.run("input()")["error"])

    def test_foreign_buffer_is_flushed(self):
        self.ok("import sys\nsys.stdout = open(1, 'w', closefd=False); print('held back')")
        self.assertEqual("held back\n", self.kernel.said())

    def test_nothing_lost(self):
        for end in ("os._exit(3)", "os.kill(os.getpid(), 9)", "import ctypes; ctypes.string_at(0)"):
            with self.subTest(end=end), Kernel() as kernel:
                kernel.request("import os\nprint('line'); print('dots...', end='')\n" + end)
                died = kernel.event("died")
                self.assertFalse(died["asked"])
                self.assertEqual("line\ndots...", kernel.said())
                kernel.event("worker")

    def test_lines_of_threads_stay_whole(self):
        self.ok("import threading\ndef t(i):\n    for _ in range(200): print('a whole line of', i)\n    print('end', end='')\n"
                "ts = [threading.Thread(target=t, args=[i]) for i in range(4)]\nfor t in ts: t.start()\nfor t in ts: t.join()")
        lines = self.kernel.said().splitlines()
        self.assertEqual(800, len([line for line in lines if line in ["a whole line of %d" % i for i in range(4)]]) + sum(
            line.startswith("end") and line.endswith(("0", "1", "2", "3")) for line in lines))
        self.ok("import time\nlast = threading.Thread(target=time.sleep, args=[0.2]); last.start()\nprint('part', end='')")
        self.assertEqual("part", self.kernel.said())
        self.ok("last.join()")

    def test_c_streams(self):
        self.ok("import ctypes; ctypes.CDLL(None).printf(b'from C');")
        self.assertEqual("from C", self.kernel.said())

    def test_lines_of_children_stay_whole(self):
        self.ok("import os\nfor i in range(4):\n    if os.fork() == 0:\n        for _ in range(200): print('a whole line of', i)\n        sys.stdout.flush(); os._exit(0)\nfor i in range(4): os.wait();")
        self.assertEqual({"a whole line of %d" % i for i in range(4)}, set(self.kernel.said().splitlines()))


class Patched(unittest.TestCase):
    def test_monkey_patches(self):
        """The kernel's own needs are met before user code runs."""
        for code in (
            "import os, posix\nos.write = posix.write = os.read = posix.read = None",
            "import json\njson.dumps = json.loads = None",
            "import builtins\nbuiltins.len = builtins.isinstance = builtins.print = builtins.getattr = builtins.type = None",
            "import builtins\nfor n in list(vars(builtins)):\n    if n not in ('__import__', '__build_class__'): delattr(builtins, n)",
            "import sys\nsys.modules.clear()",
            "import sys\nsys.meta_path.clear(); sys.path.clear(); sys.path_hooks.clear()",
            "import traceback, linecache\ntraceback.TracebackException = linecache.getline = linecache.checkcache = None",
            "import sys\nsys.settrace(lambda *a: 1/0)",
            "import sys\nsys.setprofile(lambda *a: 1/0)",
            "import sys\nsys.setrecursionlimit(60)",
            "import signal, time, _signal\nsignal.signal = time.perf_counter = _signal.signal = _signal.pthread_sigmask = None",
            "import sys\nfor n in list(vars(sys)):\n    if n not in ('modules', 'stdout', 'stderr', 'meta_path', 'path'): delattr(sys, n)",
            "import _ctypes, select, posix, time\nfor m in (_ctypes, select, posix, time):\n    for n in list(vars(m)): delattr(m, n)",
            "import gc\ngc.disable(); gc.set_threshold(1); gc.collect()",
            "import sys, types\nsys.modules['__main__'] = types.ModuleType('x')",
            "globals().clear()",
            "__builtins__ = {}",
            "import os\nos.chdir('/'); os.environ.clear()",
            "import warnings\nwarnings.simplefilter('error')",
            "import threading\nthreading.current_thread = None",
        ):
            with self.subTest(code=code), Kernel() as kernel:
                kernel.run(code)
                result = kernel.run("[2, 'two', {'k': 1.5}]")
                self.assertEqual([2, "two", {"k": 1.5}], result["output"], result)
                result = kernel.run("1 / 0")
                self.assertIn("ZeroDivisionError", result["error"])

    def test_channel_closed(self):
        """A worker that can no longer answer is replaced, and said to be dead."""
        for code in (
            "import os; os.closerange(3, 4096)",
            "import os\nfor fd in range(3, 4096):\n    try: os.dup2(0, fd)\n    except OSError: pass",
        ):
            with self.subTest(code=code), Kernel() as kernel:
                kernel.request(code)
                self.assertFalse(kernel.event("died")["asked"])
                self.assertEqual(2, kernel.event("worker")["generation"])
                self.assertEqual(1, kernel.run("1")["output"])

    def test_no_descriptors_left(self):
        code = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\nfds = []\ntry:\n    while True: fds.append(os.dup(0))\nexcept OSError: pass"
        with Kernel() as kernel:
            kernel.run(code)
            self.assertEqual({"a": 1}, kernel.run("{'a': 1}")["output"])
            self.assertIn("ZeroDivisionError", kernel.run("1/0")["error"])
            self.assertIn("OSError", kernel.run("open('/dev/null')")["error"])
            self.assertEqual(5, kernel.run("for fd in fds: os.close(fd)\n5")["output"])

    def test_descriptors(self):
        with Kernel() as kernel:
            fds = kernel.run("import os\nsorted(int(n) for n in os.listdir('/proc/self/fd'))")["output"]
            self.assertEqual([0, 1, 2], fds[:3])
            own = [fd for fd in fds if fd > 10]
            self.assertLessEqual(len(own), 7, "two of the channel, three copies, two in reserve")
            self.assertEqual([False] * len(own), kernel.run("[os.get_inheritable(fd) for fd in %r]" % own)["output"])
            kernel.run("import subprocess\nsubprocess.run(['ls', '/proc/self/fd'], close_fds=False);")
            self.assertEqual([], [fd for fd in own if str(fd) in kernel.said().split()])

    def test_workdir(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("json", "pickle", "mine"):
                with open(os.path.join(folder, name + ".py"), "w") as file:
                    file.write("here = True\n")
            with Kernel(workdir=folder) as kernel:
                self.assertEqual(os.path.realpath(folder), os.path.realpath(kernel.run("import os; os.getcwd()")["output"]))
                self.assertTrue(kernel.run("import mine; mine.here")["output"])
                self.assertFalse(kernel.run("import json, pickle; hasattr(json, 'here') or hasattr(pickle, 'here')")["output"])
                self.assertEqual(folder, kernel.run("import sys; sys.path[-1]")["output"])
                self.assertEqual(1, kernel.run("sys.path.count(%s)" % json.dumps(folder))["output"])
                kernel.run("os.chdir('/')")
                self.assertEqual("/", kernel.run("os.getcwd()")["output"])


if __name__ == "__main__":
    unittest.main()
