"""What is done ahead of the first call, and that no call can see it."""

import os
import tempfile
import unittest

from driver import Kernel


class Warmth(unittest.TestCase):
    def warm(self, kernel, *modules, **fields):
        kernel.ids += 1
        identity = "%x" % kernel.ids
        kernel.frame(b"R", dict({"op": "warm", "id": identity, "modules": list(modules)}, **fields))
        return kernel.result(identity)

    def test_imported_and_not_bound(self):
        with Kernel() as kernel:
            result = self.warm(kernel, "json.tool", "wave")
            self.assertEqual(("ok", ""), (result["status"], result["error"]))
            before = kernel.run("sorted(name for name in globals() if name[:2] != '__')")["output"]
            self.assertEqual(["inputs"], before)
            self.assertEqual([True, True], kernel.run("import sys; ['json.tool' in sys.modules, 'wave' in sys.modules]")["output"])
            self.assertEqual("<call 3>", kernel.run("sys._getframe().f_code.co_filename")["output"], "it counts as no call")

    def test_failures(self):
        folder = tempfile.mkdtemp()
        for name, source in (
            ("broken", "raise ValueError('a\\n b')"), ("leaving", "import sys; sys.exit(3)"), ("rude", "class E(BaseException):\n    def __str__(self): return 1/0\nraise E"),
        ):
            with open(os.path.join(folder, name + ".py"), "w") as file:
                file.write(source)
        with Kernel(flags=("-S",), env=dict(os.environ, PYTHONPATH=folder)) as kernel:
            for module, said in (
                ("missing.part", "missing.part: ModuleNotFoundError: No module named 'missing'"),
                ("broken", "broken: ValueError: a b"),
                ("leaving", "leaving: it is a program, and ends the interpreter that imports it (SystemExit)"),
                ("rude", "rude: E"),
            ):
                result = self.warm(kernel, module, "wave")
                self.assertEqual(("error", said), (result["status"], result["error"]))
            self.assertEqual(4, kernel.run("2 + 2")["output"])

    def test_the_workspace_is_left_alone(self):
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "theirs.py"), "w") as file:
            file.write("print('ran')")
        with Kernel(workdir=folder) as kernel:
            self.assertIn("No module named 'theirs'", self.warm(kernel, "theirs")["error"])
            self.assertEqual([True, True], kernel.run("import os, sys; [os.path.samefile('.', %r), sys.path[-1] == %r]" % (folder, folder))["output"])
            self.assertEqual("theirs", kernel.run("import theirs; theirs.__name__")["output"])

    def test_too_late_or_malformed(self):
        with Kernel() as kernel:
            for modules in (None, "wave", [1]):
                self.assertEqual("refused", self.warm(kernel, modules=modules)["event"])
            kernel.run("x = 1")
            self.assertIn("too late", self.warm(kernel, "wave")["error"])
            self.assertEqual(1, kernel.run("x")["output"])

    def test_checkpoints(self):
        with Kernel("--checkpoint", "always") as kernel:
            self.assertEqual("ok", self.warm(kernel, "wave")["status"])
            kernel.run("x = 1")
            kernel.event("checkpoint")
            kernel.request("import os; os._exit(3)")
            self.assertEqual(1, kernel.event("worker")["restored"])
            self.assertEqual([1, True], kernel.run("import sys; [x, 'wave' in sys.modules]")["output"])


if __name__ == "__main__":
    unittest.main()
