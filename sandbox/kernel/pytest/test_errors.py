"""Uncaught exceptions as text."""

import sys
import unittest

from driver import Case


class Errors(Case):
    def test_users_frames_alone(self):
        self.ok("def f(n):\n    return 1 / n")
        error = self.fails("x = 1\nf(0)")
        lines = error.splitlines()
        self.assertEqual("Traceback (most recent call last):", lines[0])
        self.assertRegex(lines[1], r'^  File "<call \d+>", line 2, in <module>$')
        self.assertEqual("    f(0)", lines[2])
        self.assertIn("-->     return 1 / n".replace("    ", "", 1), lines, "the line that failed")
        self.assertEqual("ZeroDivisionError: division by zero", lines[-1])
        for word in ("worker", "interrupts", "guard", "execute", "exec(", "eval("):
            self.assertNotIn(word, error)

    def test_library_frames(self):
        error = self.fails("import json\njson.loads('{')", "\n--> json.loads('{')", "library frames, the last: json/decoder.py:", "JSONDecodeError")
        self.assertLess(len(error.splitlines()), 7)
        error = self.fails("import functools\nfunctools.reduce(lambda a, b: 1 / 0, [1, 2])", "--> functools.reduce(")
        error = self.fails("import contextlib\nwith contextlib.ExitStack() as s:\n    s.callback(lambda: 1 / 0)", "-->     s.callback(lambda: 1 / 0)".replace("    ", ""), "  ... ", "contextlib.py")

    def test_compiled_frames(self):
        error = self.fails("exec(compile('\\n\\n1/0', 'pandas/_libs/index.pyx', 'exec'))", "\n--> exec(compile(", "  ... pandas/_libs/index.pyx:3 in <module>")
        self.assertEqual(1, error.count("  File "), error)

    def test_chains(self):
        error = self.fails("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('outer') from e",
                           "ZeroDivisionError", "direct cause", "ValueError: outer")
        self.assertNotIn("worker", error)
        error = self.fails("try:\n    {}['k']\nexcept KeyError:\n    no_such_name", "KeyError", "During handling", "NameError")
        self.assertNotIn("guard", error)
        self.fails("e = ValueError(0)\nfor i in range(3000):\n    n = ValueError(i); n.__cause__ = e; e = n\nraise e", "ValueError")
        self.fails("a = ValueError('a'); b = ValueError('b'); a.__cause__ = b; b.__cause__ = a\nraise a", "ValueError: a")

    @unittest.skipIf(sys.version_info < (3, 11), "no groups before 3.11")
    def test_groups(self):
        error = self.fails("def g():\n    raise KeyError('inner')\ntry:\n    g()\nexcept Exception as e:\n    raise ExceptionGroup('many', [e, ValueError('v')])",
                           "ExceptionGroup: many (2 sub-exceptions)", "KeyError: 'inner'", "ValueError: v")
        self.assertNotIn("worker", error)

    def test_recursion(self):
        error = self.fails("def r(n): return r(n + 1)\nr(0)", "RecursionError")
        self.assertLess(len(error), 10_000)
        self.assertEqual(1, self.value("1"))
        error = self.fails("import sys\nsys.setrecursionlimit(20000)\ndef a(n): return b(n) if n else 1/0\ndef b(n): return c(n - 1)\ndef c(n): return a(n)\n"
                           "try:\n    a(3000)\nfinally:\n    sys.setrecursionlimit(1000)", "frames left out", "ZeroDivisionError")
        self.assertLess(len(error.splitlines()), 140)

    def test_hostile(self):
        self.ok("class S(Exception):\n    def __str__(self): raise ValueError\n"
                "class N(Exception):\n    def __str__(self): return 5\n"
                "class X(Exception):\n    def __str__(self): import sys; sys.exit(9)\n"
                "class G(Exception):\n    __class__ = property(lambda self: 1/0)\n"
                "class M(type):\n    @property\n    def __module__(self): 1/0\n    def __str__(self): 1/0\n    def __getattribute__(self, n): 1/0\n"
                "class Q(Exception, metaclass=M): pass\n"
                "class B(BaseException): pass")
        for code, text in (
            ("raise S('x')", "S"),
            ("raise N('x')", "N"),
            ("raise X('x')", "X"),
            ("raise G('x')", "G"),
            ("raise Q('x')", ""),
            ("raise B('base')", "B: base"),
            ("raise ValueError('\\ud800 \\0')", "ValueError"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt"),
            ("raise GeneratorExit", "GeneratorExit"),
            ("raise StopIteration(3)", "StopIteration: 3"),
            ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
            ("assert 1 == 2, 'why'", "AssertionError: why"),
            ("raise 5", "TypeError"),
        ):
            with self.subTest(code=code):
                self.fails(code, text)

    def test_huge_message(self):
        error = self.fails("raise ValueError('a' * 50_000_000 + 'z')", "ValueError: aaa", "left out", "aaz")
        self.assertLess(len(error), 25_000)

    def test_memory(self):
        result = self.kernel.run("raise MemoryError")
        self.assertEqual(("error", True), (result["status"], result["oom"]))
        self.assertFalse(self.kernel.run("1/0")["oom"])

    def test_memory_for_real(self):
        code = ("import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
                "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
                "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))")
        if not sys.platform.startswith("linux"):
            self.skipTest("RLIMIT_AS is Linux's")
        self.ok(code)
        try:
            for hog in (
                "x = []\nwhile True: x.append(bytearray(1 << 20))",
                "x = None\nx = []\nwhile True: x.append([])",
                "x = None\ndef hog():\n    y = []\n    while True: y.append(['abc' * 1000])\nhog()",
                "x = b'x' * (1 << 40)",
            ):
                with self.subTest(hog=hog):
                    result = self.kernel.run(hog)
                    self.assertEqual(("error", True), (result["status"], result["oom"]), result)
                    self.assertIn("MemoryError", result["error"])
        finally:
            self.ok("x = None\nresource.setrlimit(resource.RLIMIT_AS, (soft, hard))")

    def test_threads_speak_on_stderr(self):
        self.ok("import threading\ndef t(): raise ValueError('in a thread')\nx = threading.Thread(target=t); x.start(); x.join()")
        self.assertIn("ValueError: in a thread", self.kernel.said(2))


if __name__ == "__main__":
    unittest.main()
