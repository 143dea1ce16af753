"""Values as JSON, and what is done with those that have none."""

import unittest

from driver import Case

NOTHING = object()


class Values(Case):
    def test_table(self):
        self.ok("import sys, enum, collections, decimal, datetime\n"
                "class Bad:\n    def __repr__(self): raise ValueError\n"
                "class Odd:\n    def __repr__(self): return 5\n"
                "class Exiting:\n    def __repr__(self): sys.exit(3)\n"
                "class Text(str):\n    def __str__(self): return 'lie'\n    def __len__(self): return 0\n"
                "class Repr:\n    def __repr__(self): return Text('shown')\n"
                "class Mine(list):\n    def __iter__(self): 1/0\n"
                "class Level(enum.IntEnum):\n    LOW = 1\n"
                "class Proxy:\n    __class__ = property(lambda self: 1/0)\n    def __repr__(self): return 'proxy'\n")
        for code, output in (
            ("True", True),
            ("0", 0),
            ("-5", -5),
            ("1.5", 1.5),
            ("1e16", 1e16),
            ("-0.0", -0.0),
            ("float('nan')", "NaN"),
            ("float('inf')", "Infinity"),
            ("[-float('inf')]", ["-Infinity"]),
            ("2**53", 2**53),
            ("-2**53", -(2**53)),
            ("2**53 + 1", str(2**53 + 1)),
            ("-10**30", str(-(10**30))),
            ("'ü\\n\"\\0\\ud800'", 'ü\n"\0\ud800'),
            ("[1, (2, 3), {'a': None}]", [1, [2, 3], {"a": None}]),
            ("{}", {}),
            ("[]", []),
            ("{1: 2}", "{1: 2}"),
            ("[{1: 2}]", ["{1: 2}"]),
            ("{3}", "{3}"),
            ("b'x'", "b'x'"),
            ("1j", "1j"),
            ("range(3)", "range(0, 3)"),
            ("decimal.Decimal('1.10')", "Decimal('1.10')"),
            ("[datetime.date(2024, 1, 2)]", ["datetime.date(2024, 1, 2)"]),
            ("Level.LOW", 1),
            ("collections.OrderedDict(a=1)", {"a": 1}),
            ("collections.Counter('aab')", {"a": 2, "b": 1}),
            ("collections.namedtuple('T', 'x')(1)", [1]),
            ("Text('truth')", "truth"),
            ("{Text('key'): 1}", {"key": 1}),
            ("Repr()", "shown"),
            ("Mine([1])", [1]),
            ("...", "Ellipsis"),
            ("int", "<class 'int'>"),
            ("a = []; a.append(a); a", "[[...]]"),
            ("d = {}; d['d'] = d; d", "{'d': {...}}"),
            ("s = [1]; [s, s]", [[1], [1]]),
        ):
            with self.subTest(code=code):
                self.assertEqual(output, self.value(code))
        for code, start, note in (
            ("Bad()", "<Bad object at 0x", "repr() of Bad raised ValueError"),
            ("[Odd()]", NOTHING, "repr() of Odd raised TypeError"),
            ("Proxy()", NOTHING, None),
        ):
            with self.subTest(code=code):
                result = self.ok(code)
                if start is not NOTHING:
                    self.assertTrue(result["output"].startswith(start))
                if note:
                    self.assertIn(note, result["notes"][0])
        result = self.kernel.run("Exiting()")
        self.assertEqual(("error", 3), (result["status"], result["exit_code"]), "a repr that exits ends the call")

    def test_bounds(self):
        for code, most, note in (
            ("'x' * 3_000_000", 200_000, "3000000 characters was cut"),
            ("['x' * 2_000_000]", 41_000, "1 MiB"),
            ("list(range(2_000_000))", 41_000, "1 MiB"),
            ("tuple(range(500_000))", 41_000, "1 MiB"),
            ("set(range(100_000))", 41_000, "cut"),
            ("{i: i for i in range(100_000)}", 41_000, "cut"),
            ("b'x' * 10_000_000", 41_000, None),
            ("{'k': 'y' * 1_000_000, 'l': 'z' * 1_000_000}", 41_000, "1 MiB"),
            ("r = 1\nfor _ in range(60): r = [r]\nr", 41_000, "more than 50 deep"),
            ("r = 1\nfor _ in range(100_000): r = [r]\nr", 41_000, "repr() of list raised RecursionError"),
            ("type('R', (), {'__repr__': lambda self: 'q' * 10**7})()", 41_000, "repr of R was cut"),
        ):
            with self.subTest(code=code):
                result = self.ok(code)
                self.assertLess(len(result["output"]), most)
                if note:
                    self.assertIn(note, result["notes"][0])
        self.assertTrue(self.value("'a' + 'x' * 3_000_000 + 'z'").endswith("xz"))
        self.assertIn("499999)", self.value("tuple(range(500_000))"))
        self.ok("r = None")

    def test_many_digits(self):
        result = self.ok("10 ** 5000")
        if result["notes"]:
            self.assertRegex(result["output"], r"^<int of about 500\d digits>$")
        else:
            self.assertEqual(str(len(result["output"])), "5001")

    def test_like_numpy(self):
        self.ok("class scalar:\n    shape = ()\n    def __init__(self, v): self.v = v\n    def item(self): return self.v\n"
                "class array:\n    def __init__(self, v): self.v, self.shape, self.size = v, (len(v),), len(v)\n    def tolist(self): return self.v\n"
                "    def __repr__(self): return 'array(...)'\n"
                "scalar.__module__ = array.__module__ = 'numpy'")
        self.assertEqual([5, 2.5, [1, "NaN"], "array(...)"], self.value(
            "big = array([]); big.size = 10**6\n[scalar(5), scalar(2.5), array([1, float('nan')]), big]"
        ))

    def test_numpy(self):
        if "Error" in self.kernel.run("import numpy as np")["error"]:
            self.skipTest("no numpy for this interpreter")
        self.assertEqual([1, 1.5, True, "x", [[1, 2]], "NaN"], self.value(
            "[np.int64(1), np.float32(1.5), np.bool_(True), np.str_('x'), np.array([[1, 2]]), np.float64('nan')]"))


if __name__ == "__main__":
    unittest.main()
