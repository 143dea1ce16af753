"""Figures, pictures and tables of the packages themselves; run by an interpreter that has them."""

import unittest

from driver import Case, Kernel
import test_checkpoints


def size(data):
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


class Figures(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        result = cls.kernel.run("import matplotlib.pyplot as plt, numpy as np", timeout=120)
        assert result["status"] == "ok", result

    def show(self, code, status="ok"):
        result = self.kernel.run(code, timeout=120)
        self.assertEqual(status, result["status"], result)
        return result, self.kernel.displays()

    def test_order_and_staleness(self):
        self.assertEqual(3, len(self.show("plt.plot([1, 2]); plt.figure(); plt.bar([1], [2]); plt.figure(); plt.plot([3]);")[1]))
        self.assertEqual([], self.show("1")[1], "never twice")
        self.assertEqual([], self.show("plt.figure();")[1], "nothing was drawn")
        first, last = self.show("plt.figure(7, figsize=(8, 2)); plt.plot([1]); plt.figure(3, figsize=(3, 2)); plt.plot([1]); plt.figure(7);")[1]
        self.assertGreater(size(first[1])[0], size(last[1])[0], "the order of creation, not of numbers or of use")
        self.assertEqual([], self.value("plt.get_fignums()"))

    def test_show_at_its_moment(self):
        _, seen = self.show("plt.figure(figsize=(8, 2)); plt.plot([1]); plt.show()\nplt.figure(figsize=(3, 2)); plt.plot([2]);")
        self.assertEqual(2, len(seen))
        _, seen = self.show("f = plt.figure(); plt.plot([1]); plt.show(); plt.show()\ndisplay(f)\nf")
        self.assertEqual(1, len(seen), "as it was")
        _, seen = self.show("plt.plot([1]); plt.show(block=False); plt.plot([2]); plt.pause(0.001);")
        self.assertEqual(1, len(seen))
        _, seen = self.show("f.axes[0].set_title('changed')\nf")
        self.assertEqual(1, len(seen), "a figure of an earlier call that has changed")
        _, seen = self.show("f, ax = plt.subplots(); ax.plot([1]); display(f); ax.plot([2, 3]);")
        self.assertEqual(2, len(seen), "changed after it was shown")
        self.assertEqual(1, len(self.show("f, ax = plt.subplots(); ax.plot([1]); f.show();")[1]))

    def test_values_of_drawing(self):
        for code in ("plt.plot([1, 2])", "plt.title('t')", "ax = plt.gca(); ax.plot([1]); ax", "f, a = plt.subplots(2, 2); a", "f, ax = plt.subplots(); ax.plot([1]); f"):
            with self.subTest(code=code):
                result, seen = self.show(code)
                self.assertEqual((None, 1), (result["output"], len(seen)))

    def test_endings(self):
        result, seen = self.show("plt.plot([1])\n1/0", "error")
        self.assertEqual(1, len(seen))
        self.assertIn("ZeroDivisionError", result["error"])
        identity = self.kernel.request("plt.plot([1])\nprint('ready')\nwhile True: pass")
        self.kernel.wait_text(b"ready")
        self.kernel.control("interrupt")
        self.assertEqual("interrupted", self.kernel.result(identity)["status"])
        self.assertEqual(1, len(self.kernel.displays()))
        result, seen = self.show("plt.plot([1]); plt.title('$\\\\badmath{$')", "error")
        self.assertIn("badmath", result["error"])
        self.assertEqual([], self.show("1")[1], "what can't be drawn does not come again")

    def test_one_that_fails_costs_no_other(self):
        bad = "plt.figure(); plt.plot([1]); plt.title('$badmath{$'); plt.figure(); plt.plot([2])"
        for ending in ("", "; plt.show()", "; plt.show(block=False)"):
            with self.subTest(ending=ending):
                result, seen = self.show("plt.figure(); plt.plot([0]); " + bad + ending, "error")
                self.assertEqual(2, len(seen), "the figures before it and after it")
                self.assertIn("badmath", result["error"])
                self.assertLess(len(result["error"].splitlines()), 15, result["error"])
                self.assertEqual([], self.show("1")[1], "none is left for the next call")

    def test_interrupted_drawing(self):
        slow = "class Slow(type(plt.figure())):\n    def savefig(self, *a, **k):\n        print('drawing', flush=True)\n        while True: pass"
        self.ok(slow + "\nplt.close('all')")
        identity = self.kernel.request("plt.figure(FigureClass=Slow); plt.plot([1]); plt.figure(); plt.plot([2]);")
        self.kernel.wait_text(b"drawing")
        self.kernel.control("interrupt")
        result = self.kernel.result(identity)
        self.assertEqual("interrupted", result["status"], result)
        self.assertIn("1 open figure(s) were not drawn", str(result["notes"]))
        self.assertEqual([], self.show("1")[1], "none is left for the next call")

    def test_large(self):
        _, ((_, data, original, about),) = self.show("f = plt.figure(figsize=(16, 5)); plt.plot(np.random.default_rng(0).normal(size=3000).cumsum());")
        self.assertEqual((b"", ""), (original, about))
        self.assertLess(len(data), 200_000)
        _, ((mime, data, original, about),) = self.show("f = plt.figure(figsize=(50, 30)); plt.plot([1]);")
        self.assertEqual("image/png", mime)
        self.assertLessEqual(max(size(data)), 2000)
        self.assertGreater(max(size(original)), 3500)
        self.assertIn("scaled down from", about)
        _, ((mime, data, original, about),) = self.show("f = plt.figure(figsize=(400, 4)); plt.plot([1]);")
        self.assertIn("dpi", about)
        self.assertLessEqual(max(size(data)), 2000)
        self.assertTrue(data)
        from_noise = "plt.figure(figsize=(15, 15)); plt.axis('off'); plt.imshow(np.random.default_rng(0).integers(0, 255, (1500, 1500, 3), 'uint8'));"
        _, ((mime, data, original, about),) = self.show(from_noise)
        self.assertLessEqual(len(data), 2 << 20)
        self.assertGreater(len(original), 2 << 20)

    def test_pixels_are_what_was_drawn(self):
        self.ok("import io; f, ax = plt.subplots(); ax.plot([1, 3, 2]); b = io.BytesIO(); f.savefig(b, format='png', bbox_inches='tight')")
        drawn = bytes.fromhex(self.value("b.getvalue().hex()"))
        (mime, data, _, _), = self.kernel.displays()
        self.assertEqual((mime, drawn), ("image/png", data))

    def test_no_backend_is_tried(self):
        with Kernel() as kernel:
            result = kernel.run("import os; os.environ.pop('MPLBACKEND', 0)\nimport matplotlib, sys; matplotlib.use('Agg'); import matplotlib.pyplot as plt; plt.plot([1]); plt.show()\n[matplotlib.get_backend().lower(), 'tkinter' in sys.modules]", timeout=120)
            self.assertEqual(["agg", False], result["output"])
            self.assertEqual(1, len(kernel.displays()))
            self.assertEqual("", kernel.said(2))

    def test_takeover(self):
        with test_checkpoints.Saved() as kernel:
            kernel.run("import matplotlib.pyplot as plt; f = plt.figure(); plt.plot([1]);", timeout=120)
            kernel.pause()
            self.assertEqual(1, len(kernel.displays()))
            kernel.fall()
            kernel.run("plt.plot([2]);", timeout=120)
            self.assertEqual(1, len(kernel.displays()), "the new figure alone")
            kernel.run("f", timeout=120)
            self.assertEqual([], kernel.displays(), "it is as it was shown")

    def test_pillow(self):
        self.ok("from PIL import Image")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"):
            with self.subTest(mode=mode):
                _, ((mime, data, original, _),) = self.show("Image.new(%r, (30, 20))" % mode)
                self.assertEqual(("image/png", (30, 20), b""), (mime, size(data), original))
        _, ((mime, data, original, about),) = self.show("Image.effect_noise((3000, 1000), 80).convert('RGB')")
        self.assertLessEqual(len(data), 2 << 20)
        self.assertEqual((3000, 1000), size(original))
        self.assertIn("scaled down from 3000 x 1000", about)
        _, ((_, data, original, about),) = self.show("Image.new('L', (9000, 9000))")
        self.assertEqual((2000, 2000), size(data))
        self.assertEqual(b"", original)
        self.assertIn("save()", about)
        self.assertEqual(1, len(self.show("Image.new('L', (9, 9)).show()")[1]))
        self.assertEqual(10, len(self.show("for i in range(10): display(Image.new('L', (9, i + 1)))")[1]))


class Tables(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        result = cls.kernel.run("import pandas as pd, polars as pl, numpy as np", timeout=120)
        assert result["status"] == "ok", result

    def told(self, code):
        value = self.value(code)
        self.kernel.displays()
        return value.split("\n")

    def test_small(self):
        self.assertEqual(
            ["DataFrame, 2 rows x 2 columns", "types: int64, str", "   a  b", "0  1  x", "1  2  y"],
            self.told("pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"))
        self.assertEqual(["Series 'n' of 2 values, float64", "0    1.5", "1    NaN"], self.told("pd.Series([1.5, None], name='n')"))
        self.assertEqual(["DataFrame, 5 rows x 0 columns"], self.told("pd.DataFrame(index=range(5))"))
        self.assertEqual(["DataFrame, 0 rows x 1 column: a (int64)"], self.told("pd.DataFrame({'a': [1]})[:0]"))
        self.assertEqual(["Series of 0 values, object"], self.told("pd.Series([], dtype=object)"))

    def test_polars(self):
        lines = self.told("pl.DataFrame({'a': [1, None], 'b': ['x', 'y'], 'c': [0.1, 2.0]})")
        self.assertEqual("DataFrame, 2 rows x 3 columns", lines[0])
        self.assertEqual([["a", "b", "c"], ["Int64", "String", "Float64"], ["1", "x", "0.1"], ["null", "y", "2"]], [line.split() for line in lines[1:]])
        lines = self.told("pl.DataFrame({'c%d' % i: range(1000) for i in range(30)})")
        self.assertLess(sum(map(len, lines)), 4500)
        self.assertEqual("DataFrame, 1000 rows x 30 columns", lines[0])
        self.assertIn("...", lines)
        self.assertEqual("999", lines[-1].split()[0])
        self.assertEqual(r"x\ny", self.told(r"pl.DataFrame({'a': ['x\ny']})")[3].strip(), "a row is a line")
        self.assertEqual("Series 'x' of 3 values, Int64", self.told("pl.Series('x', [1, 2, 3])")[0])

    def test_both_ends(self):
        lines = self.told("pd.DataFrame({'n': range(100)})")
        self.assertEqual(["0", "24", "...", "75", "99"], [lines[i].split()[0] for i in (3, 27, 28, 29, 53)])
        self.assertEqual(54, len(lines))
        lines = self.told("pd.DataFrame(np.zeros((3, 100), int))")
        self.assertEqual("0 1 2 3 4 5 6 7 8 9 ... 90 91 92 93 94 95 96 97 98 99".split(), lines[2].split())
        lines = self.told("pd.Series(range(100))")
        self.assertEqual(52, len(lines))

    def test_wide_and_long_cells(self):
        for code in (
            "pd.DataFrame({'t': ['x' * 10**6] * 3})",
            "pd.DataFrame({'column %d' % i: ['words and words ' * 3] * 60 for i in range(40)})",
            "pd.DataFrame({'o': [list(range(10**5))] * 60})",
            "pd.DataFrame({'c' * 3000: [1]})",
            "pd.DataFrame({('a', i): [1] * 99 for i in range(50)})",
            "pd.DataFrame({'a': [1] * 99}, index=pd.MultiIndex.from_product([range(9), range(11)]))",
            "pd.DataFrame({'c': pd.Categorical(['x' * 500] * 9), 'd': pd.Timestamp('2024-01-01'), 'e': pd.NA})",
            "pd.Series(['x' * 10**6] * 3, name='y' * 10**5)",
            "pd.DataFrame([[1, 2]], columns=['same', 'same'])",
            "pl.DataFrame({'t': ['x' * 10**6] * 300})",
            "pl.DataFrame({'t': [list(range(1000))] * 300})",
            "pd.DataFrame({'a': range(99)}, index=['i' * 10**5] * 99)",
            "pd.DataFrame({'a': range(99)}, index=pd.MultiIndex.from_tuples([('i' * 3000, 'j' * 3000)] * 99))",
            "pd.DataFrame(np.zeros((3, 20)), columns=pd.MultiIndex.from_tuples([('i' * 3000, 'j%d' % i * 3000) for i in range(20)], names=['k' * 5000, None]))",
            "df = pd.DataFrame([[1] * 20] * 2); df.index.name = 'n' * 5000; df.columns.name = 'm' * 5000\ndf",
            "pd.DataFrame([[1] * 20] * 2, columns=[tuple(range(3000))] * 20)",
            "pl.DataFrame({'c' * 1000 + str(i): [1] for i in range(20)})",
            "pl.DataFrame({'a': [{'x' * 1000 + str(i): 1 for i in range(20)}]})",
            "pl.DataFrame({'a': []}, schema={'a': pl.Struct({'x' * 1000 + str(i): pl.Int64 for i in range(20)})})",
            "pl.Series('s', [], dtype=pl.Enum(['x' * 1000 + str(i) for i in range(20)]))",
        ):
            with self.subTest(code=code):
                self.assertLess(len("\n".join(self.told(code))), 8_500)
        for code in ("pl.Series('s', [], dtype=pl.Enum(['x' * 1000]))", "df = pd.DataFrame([[1]]); df.index.name = 'n' * 5000\ndf", "pd.DataFrame({('i' * 3000, 'j' * 3000): [1]})"):
            with self.subTest(code=code):
                self.assertLess(len("\n".join(self.told(code))), 500)

    def test_options_are_left_alone(self):
        self.assertEqual([True, "0.33"], self.value(
            "before = {n: pd.get_option(n) for n in ('display.max_rows', 'display.max_colwidth', 'display.width')}\n"
            "pd.set_option('display.float_format', '{:.2f}'.format)\ndisplay(pd.DataFrame({'a': [1/3]}))\n"
            "[before == {n: pd.get_option(n) for n in before}, pd.get_option('display.float_format')(1/3)]"))
        self.assertIn("0.33", self.kernel.said())
        self.ok("pd.reset_option('display.float_format')")

    def test_million_rows(self):
        self.ok("big = pd.DataFrame(np.random.default_rng(0).random((1_000_000, 8)), columns=list('abcdefgh')); big['text'] = 'some words of text'")
        self.told("big")
        self.kernel.displays()
        result = self.kernel.run("import time; t = time.perf_counter(); display(big); time.perf_counter() - t")
        self.assertLess(result["output"], 0.1)
        for code in (
            "big", "big.set_index('text')",
            "pd.DataFrame(np.zeros((1_000_000, 5)), columns=['a long name of column %d' % i for i in range(5)])",
            "pl.DataFrame({'c%d' % i: ['some words, again and again, of a text'] * 1_000_000 for i in range(20)})",
            "pd.DataFrame({'c': range(1_000_000)}, index=['k' * 1000] * 1_000_000)",
        ):
            with self.subTest(code=code):
                self.assertLessEqual(len("\n".join(self.told(code))), 4096)

    def test_others(self):
        self.assertIn("GroupBy", self.value("pd.DataFrame({'a': [1]}).groupby('a')"))
        self.assertEqual(["float64 array of shape (2000, 1)"], self.told("np.zeros((2000, 1))")[:1])
        self.assertEqual([[0, 1], [2, 3]], self.value("np.arange(4).reshape(2, 2)"))
        self.assertEqual("2024-01-01T00:00:00", self.value("pd.Timestamp('2024-01-01').isoformat()"))
        self.assertEqual(9007199254740993, int(self.value("np.int64(2**53 + 1)")))
        self.assertEqual("18446744073709551615", self.value("np.uint64(2**64 - 1)"))
        self.assertIsNone(self.value("pd.DataFrame({'a': [1]});"))
        self.assertEqual("text/html", self.kernel.run("pd.DataFrame({'a': [1]})") and self.kernel.displays()[0][0])


if __name__ == "__main__":
    unittest.main()
