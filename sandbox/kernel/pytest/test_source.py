"""Code of every kind of text, and finding it again."""

import unittest

from driver import Case, Kernel


class Text(Case):
    def test_accepted(self):
        for code, output in (
            ("\ufeffx = 1\nx", 1),
            ("x = 1\r\nx + 1\r\n", 2),
            ("x = 1\rx + 2", 3),
            ("if True:\n\tx = 4\nx", 4),
            ("    x = 5\n    x", 5),
            ("\tx = 6\n\tif x:\n\t\tx += 1\n\tx", 7),
            ("\n\n  # comment\n    x = 8\n# at the margin\n\n    x", 8),
            ("    x = '''a\n  b\n    c'''\n    x", "a\n  b\n    c"),
            ("    from __future__ import annotations\n    def f(a: no_such_name): pass\n    f.__annotations__['a']", "no_such_name"),
            ("    x = 9;\n    x;", None),
            ("'\U0001f378'", "\U0001f378"),
            ("'\ud83c\udf78'", "\U0001f378"),
            ("'\\ud83d'", "\ud83d"),
            ("x = 'a\u2028b\x0bc\x0c'\nlen(x)", 6),
            ("π = 3\nπ", 3),
            ("x = 1 \\\n  + 1\nx", 2),
            ("@staticmethod\ndef f(): pass\n10", 10),
            ("# -*- coding: latin-1 -*-\n'ä'", "ä"),
            ("class A:\n    def f(self):\n\n        return 11\n\nA().f()", 11),
        ):
            with self.subTest(code=code):
                self.assertEqual(output, self.value(code))

    def test_refused(self):
        for code, *texts in (
            ("x = 'a\0b'", "NUL"),
            ("x = 1\ny = '\ud83d'", "line 2", "U+D83D"),
            ("x = (", "SyntaxError"),
            ("x = 1\n  y = 2", "IndentationError", "line 2"),
            ("  x = 1\ny = 2", "IndentationError", "line 1"),
            ("    x = 1\n    y = = 2", "SyntaxError", "line 2", "y = = 2"),
            ("return 1", "SyntaxError", "return", "line 1"),
            ("x = 1\ndef f():\n    nonlocal q", "SyntaxError", "line 3", "nonlocal q"),
            ("(" * 5000 + ")" * 5000, "Error"),
            ("x = " + "-" * 100000 + "1", "Error"),
        ):
            with self.subTest(code=code[:50]):
                error = self.fails(code, *texts)
                self.assertNotIn("Traceback", error, "compiling is not a frame of the user's")
                self.assertNotIn("source.py", error)

    def test_caret(self):
        error = self.fails("x = 1\nfoo bar", 'File "<call ', "line 2", "    foo bar\n", "^")
        self.assertTrue(error.splitlines()[-1].startswith("SyntaxError"))

    def test_warnings_of_the_compiler(self):
        self.kernel.said(2)
        self.ok("x = '\\d'")
        self.assertLessEqual(self.kernel.said(2).count("Warning"), 1)

    def test_flags_are_a_calls_own(self):
        self.ok("from __future__ import annotations\ndef f(a: int): pass")
        self.assertEqual("int", self.value("f.__annotations__['a']"))
        self.assertEqual("<class 'int'>", self.value("def g(a: int): pass\nstr(g.__annotations__['a'])"))

    def test_large(self):
        self.assertEqual(20000, self.value("x = 0\n" + "x += 1\n" * 20000 + "x"))


class Found(Case):
    """What needs the text after the call."""

    def test_inspect(self):
        self.ok("import inspect, functools\n\ndef f(a,\n      b=2):\n    return a\n\nclass A:\n    x = 1\n    def m(self):\n        return 2\n"
                "class B:\n    pass\ng = lambda: 3\nclass Outer:\n    class Inner:\n        y = 2")
        for thing, text in (
            ("f", "def f(a,\n      b=2):\n    return a\n"),
            ("A.m", "    def m(self):\n        return 2\n"),
            ("A", "class A:\n    x = 1\n    def m(self):\n        return 2\n"),
            ("B", "class B:\n    pass\n"),
            ("g", "g = lambda: 3\n"),
            ("Outer.Inner", "    class Inner:\n        y = 2\n"),
        ):
            with self.subTest(thing=thing):
                self.assertEqual(text, self.value("inspect.getsource(%s)" % thing))
        self.ok("class B:\n    z = 5")
        self.assertEqual("class B:\n    z = 5\n", self.value("inspect.getsource(B)").rstrip("\n") + "\n")
        self.assertEqual(3, self.value("inspect.getsourcelines(f)[1]"))
        self.fails("inspect.getsource(type('Made', (), {}))", "Error")  # which one: by version

    def test_types(self):
        self.assertEqual({"a": "<class 'int'>", "b": "<class '__main__.P'>"}, self.value(
            "from __future__ import annotations\nimport typing, dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    a: int\n    b: P = None\n"
            "{k: str(v) for k, v in typing.get_type_hints(P).items()}"
        ))
        self.assertEqual([True, 7], self.value("q = pickle.loads(pickle.dumps(P(7)))\n[type(q) is P, q.a]"))
        self.assertEqual([1, 2], self.value("import collections\nT = collections.namedtuple('T', 'a b')\npickle.loads(pickle.dumps(T(1, 2)))"))
        self.assertEqual("<enum 'Color'>", self.value("import enum\nclass Color(enum.Enum):\n    RED = 1\nstr(type(pickle.loads(pickle.dumps(Color.RED))))"))

    def test_after_clearcache(self):
        self.ok("def boom():\n    raise ValueError('x')  # the line\nimport linecache")
        self.ok("linecache.clearcache()")
        self.assertIn("# the line", self.fails("boom()"))

    def test_sources_are_bounded(self):
        with Kernel() as kernel:
            kernel.run("import linecache")
            for _ in range(5):
                kernel.run("x = '%s'" % ("a" * (4 << 20)))
            self.assertLessEqual(kernel.run("sum(len(k) and v[0] for k, v in linecache.cache.items() if k.startswith('<call'))")["output"], 16 << 20)


if __name__ == "__main__":
    unittest.main()
