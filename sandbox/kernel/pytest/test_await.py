"""Top-level await, and the loop that lasts."""

import unittest

from driver import Case


class Await(Case):
    def test_forms(self):
        self.kernel.said(2)
        self.ok("import asyncio, contextlib\nasync def give(x):\n    await asyncio.sleep(0)\n    return x\n"
                "async def count(n):\n    for i in range(n):\n        yield i\n"
                "@contextlib.asynccontextmanager\nasync def manage():\n    yield 'managed'")
        for code, output in (
            ("await give(3)", 3),
            ("x = await give(4)\nx", 4),
            ("x = await give(4)", None),
            ("await give(3);", None),
            ("r = []\nasync for i in count(3):\n    r.append(i)\nr", [0, 1, 2]),
            ("async with manage() as m:\n    y = m\ny", "managed"),
            ("[i async for i in count(2)]", [0, 1]),
            ("[await give(i) for i in range(2)]", [0, 1]),
            ("await asyncio.gather(give(1), give(2))", [1, 2]),
            ("    z = await give(5)\n    z", 5),
            ("asyncio.run(give(6))", 6),
            ("await give(7)", 7),
            ("_return = await give(8)", None),
            ("if True:\n    await give(1)\n9", 9),
        ):
            with self.subTest(code=code):
                self.assertEqual(output, self.value(code))
        self.assertEqual("", self.kernel.said(2), "no warnings")

    def test_one_loop(self):
        self.ok("import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)")
        self.ok("asyncio.run(asyncio.sleep(0))")
        self.assertTrue(self.value("await asyncio.sleep(0)\nasyncio.get_running_loop() is loop"))

    def test_tasks_go_on(self):
        self.ok("import asyncio\nticks = 0\nasync def tick():\n    global ticks\n    while True:\n        ticks += 1\n        await asyncio.sleep(0.001)\n"
                "task = asyncio.create_task(tick())\nawait asyncio.sleep(0.01)\nbefore = ticks")
        self.assertTrue(self.value("await asyncio.sleep(0.02)\nticks > before"))
        self.ok("task.cancel()\ntry:\n    await task\nexcept asyncio.CancelledError:\n    pass")

    def test_errors(self):
        self.ok("import asyncio, sys")
        error = self.fails("async def f():\n    await asyncio.sleep(0)\n    1/0\nawait f()", "line 4, in <module>", "line 3, in f", "ZeroDivisionError")
        for word in ("loop.py", "worker.py", "base_events"):
            self.assertNotIn(word, error)
        self.assertEqual(3, self.kernel.run("await asyncio.sleep(0)\nsys.exit(3)")["exit_code"])
        self.fails("raise asyncio.CancelledError", "CancelledError")
        self.fails("await asyncio.sleep(0)\nraise asyncio.CancelledError", "CancelledError")
        self.fails("await asyncio.sleep(0)\nraise KeyboardInterrupt", "KeyboardInterrupt")
        self.fails("await asyncio.sleep(0)\nc = asyncio.sleep(0)\ntry:\n    asyncio.run(c)\nfinally:\n    c.close()", "RuntimeError")
        self.fails("loop = asyncio.get_running_loop(); await asyncio.sleep(0); loop.close()", "RuntimeError")
        self.assertEqual(1, self.value("await asyncio.sleep(0)\n1"))

    def test_closed_loop(self):
        self.ok("import asyncio\nloop = asyncio.get_running_loop(); await asyncio.sleep(0)")
        self.ok("loop.close()")
        self.assertEqual(2, self.value("await asyncio.sleep(0)\n2"))

    def test_subprocess(self):
        self.assertEqual([0, "out\n"], self.value(
            "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'out', stdout=asyncio.subprocess.PIPE)\nout, _ = await p.communicate()\n[p.returncode, out.decode()]"))

    def test_threads_and_queues(self):
        self.assertEqual(5, self.value("import asyncio\nawait asyncio.get_running_loop().run_in_executor(None, lambda: 5)"))


if __name__ == "__main__":
    unittest.main()
