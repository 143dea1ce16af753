"""What code shows, told from its reply: how it asks for it, and in what bounds."""

import sys
import unittest

from driver import Case
import test_checkpoints

PNG = ("import zlib, struct\n"
       "def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n"
       "def png(w, h): return (b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, 8, 0, 0, 0, 0))\n"
       "    + chunk(b'IDAT', zlib.compress(b'\\0' * (w + 1) * h)) + chunk(b'IEND', b''))\n"
       "class Show:\n"
       "    def __init__(self, **looks):\n"
       "        self.looks = looks\n"
       "    def __repr__(self): return 'shown'\n"
       "for n in 'png jpeg svg html markdown latex json'.split():\n"
       "    setattr(Show, '_repr_%s_' % n, lambda self, n=n: self.looks.get(n))\n")


class Displays(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kernel.run(PNG)

    def show(self, code, status="ok"):
        result = self.kernel.run(code)
        self.assertEqual(status, result["status"], result)
        return result, self.kernel.displays()

    def test_looks(self):
        for code, want, output in (
            ("Show(png=png(3, 2))", [("image/png", True, False)], None),
            ("Show(png=(png(3, 2), {'width': 3}), html='<b>')", [("image/png", True, False)], None),
            ("Show(html='<b>')", [("text/html", False, True)], "shown"),
            ("Show(svg='<svg/>')", [("image/svg+xml", False, True)], None),
            ("Show(markdown='*x*')", [("text/markdown", True, False)], "shown"),
            ("Show(latex='$x$')", [("text/latex", True, False)], "shown"),
            ("Show(json={'a': [1]})", [("application/json", True, False)], None),
            ("Show()", [], "shown"),
            ("Show", [], "<class '__main__.Show'>"),
            ("display(Show(png=png(3, 2)), Show(html='<i>'))", [("image/png", True, False), ("text/html", False, True)], None),
            ("display({'text/html': '<p>', 'text/plain': 'p'}, raw=True)", [("text/html", False, True)], None),
            ("Show(png=png(3, 2));", [], None),
            ("x = Show(png=png(3, 2))", [], None),
        ):
            with self.subTest(code=code):
                result, seen = self.show(code)
                self.assertEqual(want, [(mime, bool(data), bool(original)) for mime, data, original, _ in seen])
                self.assertEqual(output, result["output"])
        self.kernel.said()
        self.show("display('text', 42, [1])")
        self.assertEqual("text\n42\n[1]\n", self.kernel.said())

    def test_numbers_that_json_has_not(self):
        self.ok("import math\nclass Nest:\n    def __repr__(self): return 'nest'\n    def _repr_json_(self):\n        d = {}; d['d'] = d\n        return d")
        _, seen = self.show("Show(json={'a': math.nan, 'b': [math.inf, -math.inf, 1.5], 'c': 'NaN', math.nan: 1})")
        self.assertEqual(b'{"a": "NaN", "b": ["Infinity", "-Infinity", 1.5], "c": "NaN", "NaN": 1}', seen[0][1])
        _, seen = self.show("display({'application/vnd.vegalite.v5+json': {'values': [1.5, math.nan]}}, raw=True)")
        self.assertEqual(b'{"values": [1.5, null]}', seen[0][2])
        self.assertIn("could not be found out (ValueError)", self.show("Nest()")[0]["notes"][0])

    def test_raw_bundles_that_show_nothing(self):
        for code, said in (
            ("display({}, raw=True)", "the dict is empty"),
            ("display({'application/x-odd': 'x', 'image/tiff': b'x'}, raw=True)", "nothing can be shown of application/x-odd, image/tiff; what can be"),
            ("display({'image/png': 5}, raw=True)", "nothing can be shown of image/png"),
            ("display({'text/markdown': 5}, raw=True)", "nothing can be shown of text/markdown"),
            ("display({'x/y': 5, 'text/plain': 'said'}, raw=True)", ""),
            ("display({'text/html': '<b>'}, raw=True)", ""),
        ):
            with self.subTest(code=code):
                notes = self.show(code)[0]["notes"]
                self.assertEqual(bool(said), bool(notes), notes)
                self.assertIn(said, "".join(notes))

    def test_surrogates(self):
        self.kernel.said()
        _, seen = self.show("display(Show(html='\\ud800<b>', markdown='x'), Show(markdown='\\ud83d'), '\\ud800')")
        self.assertEqual([b"?<b>", b"?"], [data or original for _, data, original, _ in seen])
        self.assertEqual("shown\nshown\n\\ud800\n", self.kernel.said())

    def test_bundle(self):
        self.ok("class Bundle:\n    def __init__(self, *b): self.b = b\n    def _repr_mimebundle_(self, include=None, exclude=None): return self.b if len(self.b) > 1 else self.b[0]")
        for code, want in (
            ("Bundle({'image/png': png(2, 2), 'text/plain': 'x'})", ["image/png"]),
            ("import base64; Bundle({'image/png': base64.b64encode(png(2, 2)).decode()}, {})", ["image/png"]),
            ("Bundle({'application/vnd.vegalite.v5+json': {'mark': 'bar'}, 'text/plain': 'x'})", ["application/vnd.vegalite.v5+json"]),
            ("Bundle({'text/plain': 'x'})", []),
            ("Bundle(None)", []),
            ("Bundle({5: 6, 'text/html': '<b>'})", ["text/html"]),
        ):
            with self.subTest(code=code):
                self.assertEqual(want, [mime for mime, _, _, _ in self.show(code)[1]])
        _, seen = self.show("Bundle({'application/vnd.vegalite.v5+json': {'mark': 'bar'}})")
        self.assertIn("JSON for a browser", seen[0][3])
        self.assertEqual(b'{"mark": "bar"}', seen[0][2])

    def test_faults_of_looks(self):
        self.ok("import sys\nclass Raises:\n    def _repr_png_(self): 1/0\n    def __repr__(self): return 'r'\n"
                "class Any:\n    def __getattr__(self, n): return lambda *a, **k: 'any'\n    def __repr__(self): return 'a'\n"
                "class Meta(type):\n    def __getattr__(cls, n): raise ValueError\nclass Odd(metaclass=Meta):\n    def __repr__(self): return 'o'\n"
                "class Leaves:\n    def _repr_png_(self): sys.exit(4)\n")
        for code, output in (("Raises()", "r"), ("Any()", "a"), ("Odd()", "o"), ("Show(png='not base64!')", "shown")):
            with self.subTest(code=code):
                result, seen = self.show(code)
                self.assertEqual((output, []), (result["output"], seen))
        self.assertEqual(4, self.kernel.run("Leaves()")["exit_code"])

    def test_bounds(self):
        _, seen = self.show("for i in range(12): display(Show(png=png(i + 1, 1)))")
        self.assertEqual(8, sum(bool(data) for _, data, _, _ in seen))
        self.assertEqual(12, len(seen), "the others are kept")
        self.assertIn("8 images at most", seen[-1][3])
        result, seen = self.show("for i in range(100): display(Show(html='<p>%d' % i))")
        self.assertEqual(32, len(seen))
        self.assertIn("68 more display(s)", result["notes"][0])
        _, seen = self.show("Show(markdown='m' * 100_000)")
        self.assertTrue(len(seen[0][1]) < 21_000 and len(seen[0][2]) == 100_000, seen[0][3])
        _, seen = self.show("Show(html='h' * (17 << 20))")
        self.assertEqual((b"", b""), seen[0][1:3])
        self.assertIn("16 MiB", seen[0][3])
        result, seen = self.show("for i in range(9): display(Show(html='h' * (4 << 20)))")
        self.assertEqual(8, len(seen))

    def test_shown_before_the_end(self):
        result, seen = self.show("display(Show(png=png(1, 1)))\n1/0", "error")
        self.assertEqual(1, len(seen))
        self.assertIn("ZeroDivisionError", result["error"])
        identity = self.kernel.request("display(Show(png=png(1, 1)))\nprint('ready')\nwhile True: pass")
        self.kernel.wait_text(b"ready")
        self.kernel.control("interrupt")
        self.assertEqual("interrupted", self.kernel.result(identity)["status"])
        self.assertEqual(1, len(self.kernel.displays()))

    def test_interrupts_leave_whole_frames(self):
        # An alarm that raises, every millisecond, while megabytes are shown.
        if sys.platform == "win32":
            self.skipTest("no alarms")
        self.ok("import signal\nclass Ring(Exception): pass\ndef ring(*_): raise Ring\nold = signal.signal(signal.SIGALRM, ring)")
        result = self.kernel.run(
            "html = 'h' * (1 << 20)\nrings = 0\nfor i in range(25):\n    signal.setitimer(signal.ITIMER_REAL, 0.0005 * i + 0.0001)\n"
            "    try:\n        display(Show(html=html))\n        signal.pause()\n    except Ring:\n        rings += 1\nrings")
        self.assertEqual(("ok", 25), (result["status"], result["output"]))
        whole = [head for head in self.kernel.shown if len(head["data"]) == head["original"]]
        self.assertGreater(len(self.kernel.shown), 5)
        self.assertTrue(all(set(head["data"]) <= {ord("h")} for head in self.kernel.shown))
        self.assertLessEqual(len(whole), len(self.kernel.shown))
        self.kernel.shown = []
        self.ok("signal.setitimer(signal.ITIMER_REAL, 0)\n_ = signal.signal(signal.SIGALRM, old)")

    def test_threads_and_children(self):
        _, seen = self.show("import threading\nt = threading.Thread(target=lambda: display(Show(png=png(1, 1)))); t.start(); t.join()")
        self.assertEqual(1, len(seen))
        self.show("import time\nt = threading.Thread(target=lambda: (time.sleep(0.2), display(Show(png=png(1, 1)), 5))); t.start()")
        self.assertEqual([], self.show("t.join()\nimport os")[1][1:], "at most what fell into this call")
        self.kernel.said()
        _, seen = self.show("pid = os.fork()\nif pid == 0:\n    display(Show(png=png(1, 1)))\n    os._exit(0)\n_ = os.waitpid(pid, 0)")
        self.assertEqual(([], "shown\n"), (seen, self.kernel.said()))

    @unittest.skipUnless(sys.platform.startswith("linux"), "checkpoints are for Linux")
    def test_takeover(self):
        with test_checkpoints.Saved() as kernel:
            kernel.run(PNG + "display(Show(png=png(2, 2)))")
            kernel.pause()
            kernel.displays()
            kernel.fall("display(Show(png=png(3, 3)))\nimport os; os._exit(9)")
            self.assertEqual(1, len(kernel.displays()), "what the lost worker had shown")
            kernel.run("Show(png=png(4, 4))")
            self.assertEqual(1, len(kernel.displays()), "and what the one shows that took over")

    def test_display_is_a_builtin(self):
        self.assertEqual("<function display>", self.value("import pickle\nrepr(pickle.loads(pickle.dumps(display)))")[:17] + ">")
        self.assertEqual(5, self.value("display = 5\ndisplay"))
        self.ok("del display\ndisplay()")


if __name__ == "__main__":
    unittest.main()
