"""Hibernation: what is saved, what is named, what comes back, and what happens when it can't."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from driver import Kernel


def importable(name):
    return subprocess.run([sys.executable, "-I", "-c", "import " + name], stderr=subprocess.DEVNULL).returncode == 0


LIBRARY = next((name for name in ("cloudpickle", "dill") if importable(name)), None)


class Snapshot(unittest.TestCase):
    def carry(self, code, change=lambda table, data: (table, data), **options):
        """Run code, save, and restore into another kernel, which the caller closes; (kernel, saved, restored)."""
        with Kernel(**options) as first:
            result = first.run(code, timeout=60)
            self.assertEqual(("ok", ""), (result["status"], result["error"]))
            saved, data = first.save()
            self.assertEqual(("ok", ""), (saved["status"], saved["error"]))
        table, data = change(saved["output"], data)
        second = Kernel(**options)
        self.addCleanup(second.close)
        return second, saved, second.restore(table, data)

    def value(self, kernel, code):
        result = kernel.run(code)
        self.assertEqual(("ok", ""), (result["status"], result["error"]), code)
        return result["output"]

    def test_nothing(self):
        kernel, saved, restored = self.carry("")
        self.assertEqual([], saved["notes"] + restored["notes"])
        self.assertEqual("ok", restored["status"])

    def test_random_numbers_are_the_users_only_where_seeded(self):
        draw = "[random.random() for _ in range(3)]"
        for seed, same in (("", False), ("random.seed(3); ", True), ("random.seed(3); random.seed(); ", False)):
            with Kernel() as first:
                self.value(first, "import random; " + seed + "random.random()")
                saved, data = first.save()
                drawn = self.value(first, draw)
            second = Kernel()
            self.addCleanup(second.close)
            second.restore(saved["output"], data)
            self.assertEqual(same, self.value(second, draw) == drawn, seed)
            again, data = second.save()  # the note of a seed comes along
            drawn = self.value(second, draw)
            third = Kernel()
            self.addCleanup(third.close)
            third.restore(again["output"], data)
            self.assertEqual(same, self.value(third, draw) == drawn, seed)

    def test_data_and_what_is_shared(self):
        kernel, saved, restored = self.carry(
            "import decimal, collections as c\n"
            "shared = [1]; a = {'s': shared}; b = (shared, a)\n"
            "loop = []; loop.append(loop)\n"
            "d = decimal.Decimal('1.5'); counts = c.Counter('aab'); s = {1, 2}; r = range(3); _private = 1; ü = 'ü'\n"
            "text = 'x' * 1000000; blob = bytearray(b'y' * 1000000); big = 1 << 10000\n"
        )
        self.assertEqual([], saved["notes"] + restored["notes"])
        self.assertEqual(restored["output"]["names"], restored["output"]["back"])
        self.assertEqual(
            [True, True, True, "1.5", 2, 2, [0, 1, 2], 1, "ü", 1000000, 1000000, True],
            self.value(kernel, "[a['s'] is b[0] is shared, b[1] is a, loop[0] is loop, str(d), counts['a'], len(s), list(r),"
                               " _private, ü, len(text), blob.count(b'y'), big == 1 << 10000]"),
        )

    def test_what_cannot_be_saved_is_named_and_does_no_harm(self):
        kernel, saved, restored = self.carry(
            "import threading\nbefore = {'k': [1]}\ngen = (i for i in before)\nmixed = [before, {'z': [2]}, gen]\n"
            "after = [before, before['k']]; lock = threading.Lock(); file = open(%r); out = __import__('sys').stdout\n"
            "class Odd:\n    def __reduce__(self): raise SystemExit(3)\nOdd.__module__ = 'builtins'; odd = Odd()\ndel Odd" % __file__
        )
        notes = "\n".join(saved["notes"])
        for name in ("gen", "mixed", "file", "odd") + (() if LIBRARY == "dill" else ("lock",)):
            self.assertRegex(notes, r"not kept: [^\n]*\b%s\b" % name)
        for name in ("before", "after", "out", "threading"):
            self.assertNotRegex(notes, r"not kept: [^\n(]*\b%s\b" % name)
        self.assertEqual(
            [True, True, True, False],
            self.value(kernel, "import sys\n[after[0] is before, after[1] is before['k'], out is sys.stdout, 'gen' in globals()]"),
        )

    def test_what_raises_no_ordinary_exception_fails_alone(self):
        kinds = ("KeyboardInterrupt", "asyncio.CancelledError", "BaseException")
        code = "import asyncio, sys, types\nbefore = [1]\n"
        for number, kind in enumerate(kinds):
            code += (
                "class Odd:\n    def __reduce__(self): raise %s('no')\nOdd.__module__ = 'builtins'; unsaved%d = Odd()\n"
                "class Odd:\n    def __reduce__(self): return exec, (\"import asyncio; raise %s('no')\",)\n"
                "Odd.__module__ = 'builtins'; unread%d = Odd()\n" % (kind, number, kind, number)
            )
        with tempfile.TemporaryDirectory() as folder:
            code += (
                "del Odd\nsys.path.insert(0, %r)\nfile = %r\nopen(file, 'w').close()\nimport odd_module\n"
                "with open(file, 'w') as out: _ = out.write('raise KeyboardInterrupt(1) # changed since')\ndel out, _\nafter = before"
                % (folder, os.path.join(folder, "odd_module.py"))
            )
            kernel, saved, restored = self.carry(code)
        self.assertEqual(("ok", ""), (restored["status"], restored["error"]))
        told = "\n".join(saved["notes"]), "\n".join(restored["notes"])
        for number, kind in enumerate(kinds):
            name = kind.rpartition(".")[2]
            self.assertRegex(told[0], r"(?m)^not kept: unsaved%d \(.*%s: no\)" % (number, name))
            self.assertRegex(told[1], r"(?m)^not restored: unread%d \(.*%s: no\)" % (number, name))
        self.assertRegex(told[1], r"(?m)^not restored: odd_module \(KeyboardInterrupt: 1\)")
        self.assertEqual([[1], True], self.value(kernel, "[before, after is before]"))

    def test_modules(self):
        kernel, saved, restored = self.carry("import os, math as m, xml.etree.ElementTree, json.decoder as jd\nfrom os import path as p")
        self.assertEqual([], saved["notes"] + restored["notes"])
        self.assertEqual(["xml.etree.ElementTree", True], self.value(kernel, "[xml.etree.ElementTree.__name__, p is os.path and m.pi > 3 and bool(jd.JSONDecoder)]"))

    def test_settings(self):
        folder = os.path.realpath(tempfile.mkdtemp())
        os.mkdir(os.path.join(folder, "sub"))
        kernel, saved, restored = self.carry(
            "import os, sys, random\nos.environ['NEW'] = 'n'; del os.environ['OLD']\nos.chdir('sub')\n"
            "sys.path.insert(0, '/front'); sys.path.append('/back')\nrandom.seed(5); random.random(); state = random.getstate()",
            workdir=folder, env=dict(os.environ, OLD="o"),
        )
        self.assertEqual(
            ["n", False, os.path.join(folder, "sub"), "/front", "/back", True],
            self.value(kernel, "[os.environ['NEW'], 'OLD' in os.environ, os.getcwd(), sys.path[0], sys.path[-1], random.getstate() == state]"),
        )
        os.rmdir(os.path.join(folder, "sub"))

        kernel, saved, restored = self.carry(
            "import os; os.mkdir('sub'); os.chdir('sub')", lambda *both: os.rmdir(os.path.join(folder, "sub")) or both, workdir=folder)
        self.assertIn("working directory", restored["notes"][0])

    def test_what_ends_with_the_interpreter(self):
        scratch = tempfile.mkdtemp()
        with Kernel() as kernel:
            kernel.run("import threading, time, subprocess, asyncio\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
                       "subprocess.Popen(['sleep', '60']).pid\nasyncio.ensure_future(asyncio.sleep(60)); await asyncio.sleep(0)\n"
                       "open(%r, 'w')" % os.path.join(scratch, "file"))
            saved, _ = kernel.save(scratch=[scratch, "/nonexistent"])
            self.assertEqual(
                ["not kept: 1 thread, 1 unfinished asyncio task, 1 child process", "not kept: what lay in %s: file" % scratch],
                saved["notes"][-2:],
            )
            self.assertEqual("ok", kernel.run("1")["status"], "and goes on")

    @unittest.skipUnless(LIBRARY == "cloudpickle", "needs cloudpickle")  # dill saves such a class by its name
    def test_enum(self):
        kernel, saved, restored = self.carry("import enum\nclass E(enum.Enum):\n    A = 1\ne = E.A")
        self.assertEqual([], saved["notes"] + restored["notes"])
        self.assertTrue(self.value(kernel, "e is E.A"))

    CODE = (
        "import dataclasses, collections, enum, functools\n@dataclasses.dataclass\nclass P:\n    x: int\n    def double(self): return 2 * self.x + counter\n"
        "p = P(3); ps = [p]; N = collections.namedtuple('N', 'a b'); n = N(1, p)\ncounter = 0\n"
        "def bump(by=1):\n    global counter\n    counter += by\n    return counter\n"
        "def outer(k):\n    def inner(m): return k + m + counter\n    return inner\nclosure = outer(10); f = lambda: p.x; part = functools.partial(bump, 5)\n"
        "gen = (i for i in ps)\ndef uses_gen(): return gen\n"
    )

    @unittest.skipUnless(LIBRARY, "neither cloudpickle nor dill is installed")
    def test_functions_and_classes(self):
        kernel, saved, restored = self.carry(self.CODE)
        self.assertEqual(LIBRARY, saved["output"]["library"])
        self.assertEqual(1, len(saved["notes"]), saved["notes"])
        self.assertIn("gen", saved["notes"][0])
        self.assertEqual([], restored["notes"])
        self.assertEqual(
            [1, 1, 12, 6, True, True, True, 3, 6],
            self.value(kernel, "[bump(), counter, closure(1), p.double() - 1, ps[0] is p is n.b, type(p) is P, isinstance(n, N), f(), part()]"),
        )
        self.assertEqual([6, "module"], self.value(kernel, "[counter, type(__builtins__).__name__]"))
        self.assertIn("global counter", self.value(kernel, "import inspect\ninspect.getsource(bump)"))
        failed = kernel.run("bump('x')")
        self.assertIn("counter += by", failed["error"], "tracebacks show the old source")
        self.assertIn("'gen' is not defined", kernel.run("uses_gen()")["error"])
        saved, data = kernel.save()  # and again
        self.assertEqual("ok", saved["status"])

    @unittest.skipIf(LIBRARY, "cloudpickle or dill is installed")
    def test_functions_and_classes_without_a_library(self):
        kernel, saved, restored = self.carry(self.CODE)
        self.assertIsNone(saved["output"]["library"])
        note = saved["notes"][0]
        for name in ("P", "p", "ps", "bump", "closure", "f", "part"):
            self.assertRegex(note, r"\b%s\b" % name)
        self.assertIn(sys.executable + " -m pip install cloudpickle", note)
        self.assertEqual([0, False], self.value(kernel, "[counter, 'bump' in globals()]"))

    def test_too_much(self):
        with Kernel() as kernel:
            kernel.run("x = 'x' * 100000")
            saved, data = kernel.save(limit=50000)
            self.assertEqual(("error", "the variables take more than 50000 bytes when they are saved"), (saved["status"], saved["error"]))
            self.assertEqual("ok", kernel.save(limit=200000)[0]["status"])
            kernel.run("globals().update(('n%d' % i, i) for i in range(20000))")
            self.assertIn("more than 10000 variables", kernel.save()[0]["error"])
            self.assertEqual(100000, self.value(kernel, "len(x)"))

    def test_odd_names(self):
        with Kernel() as kernel:
            kernel.run("globals().update({'': 1, 'a b': 2, '\\ud800': 3, 'x' * 2000: 4, '\"': 5}); globals()[7] = 7")
            saved, data = kernel.save()
            self.assertEqual("ok", saved["status"])
            with Kernel() as second:
                self.assertEqual("ok", second.restore(saved["output"], data)["status"])
                self.assertEqual([2, 5], self.value(second, "[globals()['a b'], globals()['\"']]"))

    def test_interrupted(self):
        with Kernel() as kernel:
            kernel.run("import time\nclass Slow:\n    def __reduce__(self): print('ready'); time.sleep(60)\nSlow.__module__ = 'builtins'; slow = Slow(); x = 1")
            kernel.frame(b"R", {"op": "save", "id": "s", "limit": 1 << 20})
            kernel.wait_text(b"ready")
            kernel.control("interrupt", wait=False)
            while True:
                kind, body = kernel.raw_next()
                if kind == b"W":
                    break
            self.assertEqual("interrupted", json.loads(body)["status"])
            self.assertEqual(1, self.value(kernel, "x"))
            # In the middle of many frames, none of which may be cut in two.
            kernel.run("del slow, Slow; big = [('%09d' % i) * 10 for i in range(500000)]")
            for _ in range(3):
                kernel.frame(b"R", {"op": "save", "id": "s", "limit": 1 << 30})
                kinds = [kernel.raw_next()[0] for _ in range(5)]
                kernel.control("interrupt", wait=False)
                while kinds[-1] != b"W":
                    kind, body = kernel.raw_next()
                    kinds.append(kind)
                self.assertEqual("interrupted", json.loads(body)["status"])
            self.assertEqual(500000, self.value(kernel, "len(big)"))

    def test_parts_that_cannot_be_read(self):
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "goes.py"), "w") as file:
            file.write("class Thing:\n    def __init__(self, x): self.x = x\n")

        def remove(table, data):
            os.remove(os.path.join(folder, "goes.py"))
            return table, data

        kernel, saved, restored = self.carry(
            "import sys; sys.dont_write_bytecode = True\nimport goes, math\nfirst = {'key': [1]}\ninner = ['inner']\n"
            "thing = [inner, goes.Thing(1), ['late']]\nlate = thing[2]\nsecond = [first, 'key', ('inner', math.floor)]\nthird = [inner]; fourth = [first['key'], 2.5]",
            remove, workdir=folder,
        )
        notes = "\n".join(restored["notes"])
        for name in ("goes", "thing", "late"):
            self.assertRegex(notes, r"not restored: [^\n(]*\b%s\b" % name)
        self.assertEqual([True, True], self.value(kernel, "[second[0] is first, fourth[0] is first['key']]"))
        self.assertEqual([["inner"]], self.value(kernel, "third"))
        self.assertLess(restored["output"]["back"], restored["output"]["names"])

    def test_left_out(self):
        """What the server wants to be left out is not loaded, nor imported, and costs no other."""
        code = (
            "import math, json\nimport os.path\nfirst = [1]\n"
            "class Deadly:\n    def __reduce__(self): return os._exit, (7,)\nDeadly.__module__ = 'builtins'\n"
            "deadly = [Deadly(), 'shared', first]; del Deadly\nlast = ['shared', first]\n"
        )
        with Kernel() as first:
            self.value(first, code)
            saved, data = first.save()
        told = []
        with Kernel() as second:
            kinds = []
            second.frame(b"R", {"op": "restore", "id": "r", "table": saved["output"]})
            while kinds[-1:] != [b"S"]:
                kind, body = second.raw_next()
                kinds.append(kind)
                if kind == b"N":
                    told.append((int.from_bytes(body[:4], "big"), body[4:].decode()))
                elif kind == b"P":
                    second.frame(b"D", data)
                    second.frame(b"D", b"")
            self.assertEqual("died", json.loads(body)["event"])
        self.assertEqual("deadly", told[-1][1])
        self.assertEqual(["json", "math", "os", "os.path"], sorted(name for _, name in told[:4]))
        index = dict((name, index) for index, name in told)
        with Kernel() as third:
            without = [{"index": index["deadly"], "reason": "it bites"}, {"index": index["json"], "reason": "not today"}]
            restored = third.restore(saved["output"], data, without=without)
            self.assertEqual(["not restored: json (not today)", "not restored: deadly (it bites)"], restored["notes"])
            self.assertEqual([["shared", [1]], True, False, False], self.value(third, "[last, last[1] is first, 'deadly' in globals(), 'json' in globals()]"))
            self.assertEqual(2, restored["output"]["names"] - restored["output"]["back"])

    def test_damage(self):
        code = "x = {'a': [1, 2, 3]}; y = 'y' * 100000; z = (x, y)"

        def table_with(**fields):
            return lambda table, data: (dict(table, **fields), data)

        for name, change in (
            ("cut", lambda table, data: (table, data[:50000])),
            ("empty", lambda table, data: (table, b"")),
            ("no table", lambda table, data: (None, data)),
            ("lists", lambda table, data: ([[]], data)),
            ("more parts", table_with(parts=[["name", "x", 0, 1 << 40]])),
            ("python", table_with(python="3")),
            ("version", table_with(python=[2, 7], library="cloudpickle")),
        ):
            with self.subTest(name=name):
                _, _, restored = self.carry(code, change)
                self.assertEqual("error", restored["status"], restored)
                self.assertTrue(restored["error"])
        for name, change in (
            ("bytes", lambda table, data: (table, bytes(b ^ 0x55 for b in data))),
            ("total", table_with(total=3)),
            ("parts", table_with(parts=[["name", "x", 0, -5]])),
        ):
            with self.subTest(name=name):
                kernel, _, restored = self.carry(code, change)
                self.assertIn(restored["status"], ("ok", "error"), restored)
                self.assertEqual(2, self.value(kernel, "1 + 1"), "it lives")

    def test_another_version(self):
        kernel, _, restored = self.carry("x = 1", lambda table, data: (dict(table, python=[3, 8]), data))
        self.assertIn("saved by Python 3.8", restored["notes"][0])
        self.assertEqual(1, self.value(kernel, "x"))


if __name__ == "__main__":
    unittest.main()
