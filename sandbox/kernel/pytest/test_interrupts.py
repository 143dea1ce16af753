"""SIGINT and its stronger sibling: what stops, what is said, what is kept."""

import unittest

from driver import Case, Kernel

READY = "print('ready', flush=True)\n"


class Interrupts(Case):
    def setUp(self):
        self.ok("import time, asyncio, sys, os, subprocess, signal, threading\nkept = 42")

    def stopped(self, code, *ops, status="interrupted", interrupted=True):
        identity = self.started(code)
        for op in ops or ("interrupt",):
            self.kernel.control(op)
        for _ in range(5):
            try:
                result = self.kernel.result(identity, timeout=1)
                break
            except TimeoutError:
                # Python itself may lose one: in a __del__, or between its last look
                # for signals and a system call. That is what the second one is for.
                self.kernel.control("escalate")
        else:
            self.fail("not stopped: " + code)
        self.assertEqual((status, interrupted), (result["status"], result["interrupted"]), result)
        if status == "interrupted":
            self.assertEqual(130, result["exit_code"])
        self.assertEqual(42, self.value("kept"), "variables survive")
        self.assertEqual(1, self.value("await asyncio.sleep(0)\n1"), "and so does the loop")
        return result

    def test_polite(self):
        for code in (
            "while True: pass",
            "time.sleep(60)",
            "await asyncio.sleep(60)",
            "await asyncio.Event().wait()",
            "asyncio.run(asyncio.sleep(60))",
            "subprocess.run(['sleep', '60'])",
            "import threading; threading.Event().wait()",
            "await asyncio.sleep(0)\nwhile True: pass",
            "async def spin():\n    while True: await asyncio.sleep(0)\nawait spin()",
            "os.read(os.pipe()[0], 1)",
            "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))",
            # Ready once the task spins: one that had not begun would begin in the next call.
            "async def busy():\n    print('ready', flush=True)\n    while True: pass\nt = asyncio.create_task(busy())\nawait asyncio.sleep(60)",
        ):
            with self.subTest(code=code):
                error = self.stopped(code if "busy" in code else READY + code)["error"]
                self.assertRegex(error, "KeyboardInterrupt|CancelledError|Interrupted")
                self.assertNotIn("interrupts.py", error)
                self.assertNotIn("worker.py", error)

    def test_while_showing(self):
        for code in (
            "class Slow:\n    def __repr__(self):\n        print('ready')\n        while True: pass\nSlow()",
            "class Slow:\n    def __repr__(self):\n        print('ready')\n        while True: pass\n_return = Slow()",
        ):
            with self.subTest(code=code):
                self.stopped(code)
        result = self.stopped("class E(Exception):\n    def __str__(self):\n        print('ready')\n        while True: pass\nraise E", status="error")
        self.assertIn("E", result["error"])

    def test_caught(self):
        code = "try:\n    " + READY + "    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('caught')\n7"
        self.assertEqual(7, self.stopped(code, status="ok")["output"])
        code = "try:\n    " + READY + "    time.sleep(60)\nexcept KeyboardInterrupt:\n    raise ValueError('instead')"
        self.assertIn("ValueError: instead", self.stopped(code, status="error")["error"])
        code = "try:\n    " + READY + "    await asyncio.sleep(60)\nexcept BaseException:\n    pass\n8"
        self.assertEqual(8, self.stopped(code, status="ok")["output"])

    def test_escalated(self):
        for code in (
            # Swallows KeyboardInterrupt, as `except:` in a retry loop does.
            "while True:\n    try:\n        " + READY + "        time.sleep(60)\n    except Exception:\n        pass\n    except KeyboardInterrupt:\n        pass",
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + READY + "time.sleep(60)",
            "async def stubborn():\n    while True:\n        try:\n            await asyncio.sleep(60)\n        except asyncio.CancelledError:\n            pass\n"
            "await stubborn()",
        ):
            with self.subTest(code=code):
                self.stopped(READY + code, "interrupt", "escalate")
        self.stopped(READY + "time.sleep(60)", "escalate")
        self.stopped(READY + "await asyncio.sleep(60)", "escalate")

    def test_handlers_come_back(self):
        self.ok("signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
                "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGXCPU])")
        self.stopped(READY + "time.sleep(60)")

    def test_escalate_ends_children_of_the_call(self):
        old = self.value("old = subprocess.Popen(['sleep', '60']); time.sleep(0.05)\nold.pid")
        identity = self.started("p = subprocess.Popen(['sleep', '60'])\n" + READY + "p.wait()\nwhile True: pass")
        self.assertEqual(1, self.kernel.control("escalate")["killed"])
        self.assertEqual("interrupted", self.kernel.result(identity)["status"])
        self.assertEqual([-9, None], self.value("[p.wait(), old.poll()]"))
        self.ok("old.kill(); old.wait()")

    def test_threads_that_go_on_are_named(self):
        self.ok("stop = threading.Event()")
        result = self.stopped("threading.Thread(target=stop.wait).start()\n" + READY + "while True: pass")
        self.assertEqual(1, len(result["notes"]))
        self.assertIn("1 more thread", result["notes"][0])
        self.ok("stop.set()")

    def test_stopped_process(self):
        self.ok("threading.Timer(0.05, lambda: None).start()")
        self.stopped(READY + "os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass", "interrupt", "escalate")

    def test_at_once(self):
        """An interrupt that comes before the code has begun is not lost."""
        for _ in range(30):
            identity = self.kernel.request("while True: pass")
            self.kernel.control("interrupt", wait=False)
            self.assertEqual("interrupted", self.kernel.result(identity)["status"])

    def test_too_late(self):
        """One that comes after the reply hurts nothing that follows."""
        for _ in range(30):
            self.ok("1")
            self.kernel.control("interrupt", wait=False)
            self.assertEqual(45, self.value("sum(range(10))"))
        for op in ("interrupt", "escalate"):
            self.kernel.control(op)
            self.assertEqual(45, self.value("sum(range(10))"))

    def test_own_signals_between_calls(self):
        self.ok("def boom(*_): raise RuntimeError('from a handler')\nsignal.signal(signal.SIGALRM, boom)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)")
        self.kernel.wait_text(b"from a handler", fd=2)
        self.kernel.said(2)
        self.assertEqual(42, self.value("kept"))
        self.ok("signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)")
        for _ in range(20):
            self.kernel.run("for i in range(1000): pass")
        for _ in range(100):  # the handler may raise in the very call that would end it
            if self.kernel.run("signal.signal(signal.SIGALRM, signal.SIG_IGN)")["status"] == "ok":
                break
        self.ok("signal.setitimer(signal.ITIMER_REAL, 0)")
        self.assertEqual(42, self.value("kept"))
        self.kernel.said(2)

    def test_threads_go_on(self):
        self.ok("n = 0\ndef work():\n    global n\n    while n >= 0:\n        n += 1; time.sleep(0.001)\nt = threading.Thread(target=work, daemon=True); t.start()")
        self.stopped(READY + "time.sleep(60)")
        self.assertTrue(self.value("m = n; time.sleep(0.05); alive = n > m; n = -10; t.join(); alive"))


class Kills(unittest.TestCase):
    def test_kill_in_c(self):
        """Code that hears no signal: the one way out is a new worker."""
        with Kernel() as kernel:
            identity = kernel.request("import re\nprint('ready')\nre.match('(a*)*b', 'a' * 60)")
            kernel.wait_text(b"ready")
            self.assertEqual(1, kernel.control("kill")["killed"])
            died = [body for kind, body in kernel.log if body["event"] == "died"][0]
            self.assertEqual((True, None, 9, 1), (died["asked"], died["exit"], died["signal"], died["generation"]))
            self.assertEqual(2, kernel.event("worker")["generation"])
            self.assertIn("NameError", kernel.run("re")["error"])
            self.assertFalse([body for _, body in kernel.log if body.get("id") == identity])


if __name__ == "__main__":
    unittest.main()
