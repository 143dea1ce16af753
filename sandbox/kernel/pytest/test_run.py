"""What a call returns: values, inputs, _return, exits, state."""

import glob
import os
import py_compile
import tempfile
import unittest

from driver import MAIN, Case, Kernel


class Workdir(unittest.TestCase):
    def test_closed_and_opened_again(self):
        folder = os.path.join(tempfile.mkdtemp(), "workspace")
        with Kernel(workdir=folder) as kernel:  # it is not there yet
            self.assertNotEqual(folder, kernel.run("import os; os.getcwd()")["output"])
            os.mkdir(folder)
            self.assertEqual(os.path.realpath(folder), kernel.run("os.path.realpath(os.getcwd())")["output"])
            self.assertEqual("/", kernel.run("os.chdir('/'); os.getcwd()")["output"])
            self.assertEqual("/", kernel.run("os.getcwd()")["output"], "where the code goes it stays")


class Outputs(Case):
    def test_last_expression(self):
        for code, output in (
            ("2**10", 1024),
            ("None", None),
            ("", None),
            ("# nothing\n", None),
            ("x = 5", None),
            ("x = 5\nx", 5),
            ("x;", None),
            ("x; # quiet", None),
            ("x ;  ", None),
            ("1; 2", 2),
            ("'a;'", "a;"),
            ("'''a\n;'''", "a\n;"),
            ("(\n1 +\n2\n)", 3),
            ("(\n1 +\n2\n);", None),
            ("'ä' * 2; ", None),
            ("'ä' * 2", "ää"),
            ("def f():\n    return 7\nf()", 7),
            ("for i in range(3): i", None),
            ("if True:\n    8", None),
            ("'a string alone'", "a string alone"),
            ("x = y = 1\nx, y", [1, 1]),
            ("(z := 3)", 3),
            ("lambda: 0;", None),
            ("print('hello')", None),
        ):
            with self.subTest(code=code):
                self.assertEqual(output, self.value(code))
        self.kernel.said()

    def test_state_is_kept(self):
        self.ok("import math\ncounter = 1\ndef bump():\n    global counter\n    counter += 1\n    return counter")
        self.assertEqual(2, self.value("bump()"))
        self.assertEqual([2, 3], self.value("[counter, int(math.pi)]"))

    def test_fields(self):
        result = self.ok("1")
        self.assertEqual(
            {"event", "id", "status", "output", "return_value", "error", "exit_code", "oom", "interrupted",
             "duration_s", "hint", "notes"},
            set(result),
        )
        self.assertEqual((0, False, False, []), tuple(result[key] for key in ("exit_code", "oom", "interrupted", "notes")))
        self.assertGreater(self.ok("import time; time.sleep(0.05)")["duration_s"], 0.04)

    def test_inputs(self):
        with Kernel() as kernel:
            self.assertEqual({}, kernel.run("inputs")["output"])
            self.assertEqual({"a": [1, {"b": "ü"}]}, kernel.run("inputs", inputs={"a": [1, {"b": "ü"}]})["output"])
            self.assertEqual({"a": [1, {"b": "ü"}]}, kernel.run("inputs")["output"], "kept without new ones")
            self.assertEqual({}, kernel.run("inputs", inputs={})["output"])
            self.assertEqual(str(1 << 80), kernel.run("inputs['n']", inputs={"n": 1 << 80})["output"])
            for odd in ([1], "x", 3, True):
                kernel.frame(b"R", {"op": "run", "id": "odd", "code": "1", "inputs": odd})
                self.assertEqual("refused", kernel.result("odd")["event"])

    def test_return(self):
        self.assertEqual({"a": 1}, self.ok("_return = {'a': 1}")["return_value"])
        self.assertFalse(self.value("'_return' in globals()"), "gone with its call")
        result = self.kernel.run("_return = [1]\n1/0")
        self.assertEqual(("error", [1]), (result["status"], result["return_value"]))
        result = self.ok("_return = 1\n'out'")
        self.assertEqual(("out", 1), (result["output"], result["return_value"]))

    def test_exit(self):
        for code, status, number, error in (
            ("import sys; sys.exit()", "ok", 0, ""),
            ("sys.exit(0)", "ok", 0, ""),
            ("sys.exit(None)", "ok", 0, ""),
            ("sys.exit(False)", "ok", 0, ""),
            ("sys.exit(3)", "error", 3, "SystemExit: 3"),
            ("sys.exit(-1)", "error", 255, "SystemExit: -1"),
            ("sys.exit(256)", "error", 1, "SystemExit: 256"),
            ("sys.exit(10**100)", "error", 1, "SystemExit"),
            ("sys.exit('no such file')", "error", 1, "no such file"),
            ("exit()", "ok", 0, ""),
            ("quit(2)", "error", 2, "SystemExit: 2"),
            ("raise SystemExit", "ok", 0, ""),
            ("class E(SystemExit):\n    code = property(lambda self: 1/0)\nraise E", "ok", 0, ""),
            ("class E(SystemExit):\n    code = 5\nraise E", "error", 5, "SystemExit: 5"),
            ("class I(int):\n    __and__ = __ne__ = __abs__ = None\nsys.exit(I(4))", "error", 4, "SystemExit: 4"),
            ("sys.exit([1])", "error", 1, "[1]"),
            ("class E:\n    def __str__(self): 1/0\nsys.exit(E())", "error", 1, "SystemExit"),
        ):
            with self.subTest(code=code):
                result = self.kernel.run(code)
                self.assertEqual((status, number, error), (result["status"], result["exit_code"], result["error"]))
        self.assertEqual(1, self.value("1"), "the session goes on")

    def test_nothing_to_read(self):
        self.fails("input('name? ')", "EOFError")
        self.assertEqual("name? ", self.kernel.said())
        self.assertEqual(["", [], b"".decode()], self.value("import sys\n[sys.stdin.read(), sys.stdin.readlines(), sys.stdin.buffer.read().decode()]"))

    def test_main_is_clean(self):
        with Kernel() as kernel:
            names = kernel.run("sorted(globals())")["output"]
            self.assertEqual([], [name for name in names if not name.startswith("__") and name != "inputs"], names)
            self.assertEqual("__main__", kernel.run("__name__")["output"])
            self.assertTrue(kernel.run("import sys; sys.modules['__main__'].__dict__ is globals()")["output"])
            self.assertEqual([""], kernel.run("sys.argv")["output"])
            self.assertEqual(1, kernel.run("sys.flags.isolated")["output"])
            self.assertFalse(kernel.run("hasattr(sys.modules['__main__'], '__file__')")["output"])

    def test_kernel_is_out_of_sight(self):
        with Kernel() as kernel:
            for name in ("worker", "frames", "values", "supervisor", "streams", "mcp_sandbox_kernel", "main"):
                self.assertIn("ModuleNotFoundError", kernel.run("import " + name)["error"])
            self.assertEqual([], kernel.run(
                "import sys\n[n for n, m in sys.modules.items() if 'kernel' in n or 'sandbox' in str(getattr(m, '__file__', ''))]"
            )["output"])
            self.assertEqual([], kernel.run("[p for p in sys.path if 'sandbox' in p]")["output"])

    def test_user_module_of_our_name(self):
        self.assertEqual("mine", self.value(
            "import sys, types\nm = types.ModuleType('values'); m.encode = 'mine'; sys.modules['values'] = m\n"
            "import values\nvalues.encode"
        ))


class Site(unittest.TestCase):
    """site runs late under -S, and nobody can tell."""

    def test_first_call(self):
        for flags in (("-I", "-S"), ("-I",)):
            for code in ("exit", "import sys; 'site' in sys.modules", "__builtins__.help", "eval('quit')"):
                with self.subTest(code=code, flags=flags), Kernel(flags=flags) as kernel:
                    result = kernel.run(code)
                    self.assertEqual("ok", result["status"], result)
                    self.assertTrue(result["output"])

    def test_paths(self):
        with Kernel(flags=("-I",)) as usual, Kernel() as late:
            code = "import sys\n[sys.path, sys.prefix, sys.exec_prefix]"
            self.assertEqual(usual.run(code)["output"], late.run(code)["output"])


class Compiled(unittest.TestCase):
    """As a server starts it: compiled, without the sources, under another name."""

    def test_compiled(self):
        with tempfile.TemporaryDirectory() as folder:
            for source in glob.glob(os.path.join(os.path.dirname(MAIN), "*.py")):
                name = os.path.basename(source)
                py_compile.compile(source, os.path.join(folder, name + "c"), dfile="kernel/" + name, doraise=True)
            with Kernel(main=os.path.join(folder, "main.pyc")) as kernel:
                self.assertEqual(3, kernel.run("x = 3\nx")["output"])
                error = kernel.run("import asyncio\nasync def f(): 1/0\nawait f()")["error"]
                self.assertIn("ZeroDivisionError", error)
                self.assertNotIn("kernel/", error)
                kernel.control("reset")
                self.assertIn("NameError", kernel.run("x")["error"])


if __name__ == "__main__":
    unittest.main()
