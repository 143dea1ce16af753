"""Children, grandchildren, forks, and their ends."""

import os
import sys
import time
import unittest

from driver import Case, Kernel

LINUX = sys.platform.startswith("linux")
# A grandchild that left its session and whose parent is gone.
DAEMON = """
import os, time
def daemon(seconds=60):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(seconds)
            os._exit(0)
        os.write(w, b"%d" % pid)
        os._exit(0)
    os.wait()
    return int(os.read(r, 20))
"""


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid, within=10):
    deadline = time.monotonic() + within
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


class Forks(Case):
    def test_fall_through(self):
        """A forked child that runs off the end of the code is not a second kernel."""
        for code, out in (
            ("pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')", "child\nparent\n"),
            ("pid = os.fork()\nif pid == 0: raise ValueError('in the child')\n_, status = os.waitpid(pid, 0)\nprint(os.WEXITSTATUS(status))", "1\n"),
            ("pid = os.fork()\nif pid == 0: sys.exit(7)\n_, status = os.waitpid(pid, 0)\nprint(os.WEXITSTATUS(status))", "7\n"),
            ("await asyncio.sleep(0)\npid = os.fork()\nif pid: print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))", "0\n"),
            ("import ctypes\npid = ctypes.CDLL(None).fork()\nif pid: print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))", "0\n"),
            ("def f():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\nt = threading.Thread(target=f); t.start(); t.join(); print('joined')", "joined\n"),
        ):
            with self.subTest(code=code):
                self.ok("import os, sys, threading, asyncio")
                self.ok(code)
                self.assertEqual(out, self.kernel.said())
                self.assertEqual(5, self.value("5"))
        self.assertIn("ValueError: in the child", self.kernel.said(2))
        self.assertEqual([], self.kernel.log)

    def test_multiprocessing(self):
        self.ok("import multiprocessing, concurrent.futures\ndef square(n): return n * n")
        self.assertEqual([0, 1, 4], self.value("with multiprocessing.Pool(2) as pool: r = pool.map(square, range(3))\nr"))
        self.assertEqual([0, 1, 4], self.value("with concurrent.futures.ProcessPoolExecutor(2) as pool: r = list(pool.map(square, range(3)))\nr"))
        self.ok("q = multiprocessing.Queue()\ndef put(): q.put('sent'); print('spoken')\np = multiprocessing.Process(target=put); p.start()")
        self.assertEqual("sent", self.value("r = q.get(timeout=10); p.join(); r"))
        self.assertEqual("spoken\n", self.kernel.said())
        if LINUX:
            self.assertEqual("fork", self.value("multiprocessing.get_start_method()"))

    def test_start_method_is_the_users(self):
        with Kernel() as kernel:
            self.assertEqual("spawn", kernel.run("import multiprocessing as m\nm.set_start_method('spawn')\nm.get_start_method()")["output"])

    def test_in_one_call(self):
        with Kernel() as kernel:
            self.assertEqual([1, 2], kernel.run("from multiprocessing import Pool\ndef f(x): return x + 1\nwith Pool(2) as p: r = p.map(f, [0, 1])\nr")["output"])

    def test_children_do_not_hold_the_channel(self):
        self.ok("import os\npid = os.fork()\nif pid == 0:\n    fds = sorted(int(n) for n in os.listdir('/proc/self/fd'))\n    os.write(1, str(fds).encode()); os._exit(0)\nos.waitpid(pid, 0);")
        fds = eval(self.kernel.said())
        self.assertLess(max(fds), 200, fds)


@unittest.skipUnless(LINUX, "orphans need /proc and a subreaper")
class Ends(unittest.TestCase):
    def setUp(self):
        self.kernel = Kernel()
        self.kernel.run(DAEMON)

    def tearDown(self):
        self.kernel.close()

    def died(self):
        return [body for kind, body in self.kernel.log if kind == b"S" and body["event"] == "died"]

    def test_children_outlive_a_call(self):
        pid = self.kernel.run("daemon()")["output"]
        self.kernel.run("1")
        self.assertTrue(alive(pid))

    def test_kill_and_reset(self):
        for op in ("kill", "reset"):
            with self.subTest(op=op):
                self.kernel.run(DAEMON)
                pids = [self.kernel.run("daemon()")["output"] for _ in range(3)]
                done = self.kernel.control(op)
                self.assertGreaterEqual(done["killed"], 4)
                self.assertFalse(any(map(alive, pids)), "all is over before the answer")
                self.assertTrue(self.died()[-1]["asked"])
                self.assertIn("NameError", self.kernel.run("daemon")["error"])
        self.assertEqual([1, 2], [body["generation"] for body in self.died()])

    def test_own_death(self):
        for code, exit, number in (
            ("os._exit(3)", 3, None),
            ("os._exit(0)", 0, None),
            ("os.kill(os.getpid(), 11)", None, 11),
            ("os.abort()", None, 6),
        ):
            with self.subTest(code=code):
                self.kernel.run(DAEMON)
                pid = self.kernel.run("daemon()")["output"]
                self.kernel.request(code)
                died = self.kernel.event("died")
                self.assertEqual((exit, number, False), (died["exit"], died["signal"], died["asked"]))
                self.assertTrue(gone(pid))
                self.assertEqual(died["generation"] + 1, self.kernel.event("worker")["generation"])
                self.assertEqual(1, self.kernel.run("1")["output"])

    def test_death_between_calls(self):
        self.kernel.run("import threading, os; threading.Timer(0.05, os._exit, [4]).start()")
        self.assertEqual(4, self.kernel.event("died")["exit"])
        self.kernel.event("worker")
        self.assertEqual(1, self.kernel.run("1")["output"])

    def test_requests_are_counted(self):
        self.kernel.run("1")
        self.kernel.request("import os; os._exit(1)")
        self.assertEqual(3, self.kernel.event("died")["requests"])

    def test_sweep(self):
        old = self.kernel.run("daemon()")["output"]
        before = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.02
        time.sleep(0.05)
        new = self.kernel.run("daemon()")["output"]
        self.assertEqual(1, self.kernel.control("sweep", since=before)["killed"])
        self.assertTrue(gone(new))
        self.assertTrue(alive(old))
        time.sleep(0.02)
        last = self.kernel.run("daemon()")["output"]
        self.assertEqual(1, self.kernel.control("sweep")["killed"])
        self.assertTrue(gone(last))
        self.assertTrue(alive(old))
        self.assertEqual(1, self.kernel.control("sweep", since=0)["killed"])
        self.assertTrue(gone(old))
        self.assertEqual([], self.died(), "the worker is spared")
        self.assertEqual(0, self.kernel.control("sweep", since=0)["killed"])

    def test_sweep_of_a_spreading_kind(self):
        self.kernel.run("import os, time\nif os.fork() == 0:\n    end = time.time() + 20\n    while time.time() < end:\n"
                        "        if os.fork(): os._exit(0)\n        time.sleep(0.001)\n    os._exit(0)\nos.wait();")
        for _ in range(5):
            if not self.kernel.control("sweep")["killed"]:
                break
        else:
            self.kernel.control("kill")  # it outran them: the server's next step, which ends the worker too
        self.assertEqual(1, self.kernel.run("1")["output"])

    def test_worker_dies_in_a_sweep(self):
        self.kernel.request("import os, time; \ntry:\n    print('ready')\n    time.sleep(0.01)\nfinally:\n    os._exit(2)")
        self.kernel.wait_text(b"ready")
        self.kernel.control("sweep")
        self.kernel.control("escalate")
        while not self.died():
            self.kernel.log.append(self.kernel.next())
        self.assertEqual(1, self.kernel.run("1")["output"])

    def test_nothing_survives_the_end(self):
        pids = [self.kernel.run("daemon()")["output"] for _ in range(2)]
        worker = self.kernel.run("os.getpid()")["output"]
        self.assertEqual(0, self.kernel.close())
        self.assertFalse(any(map(alive, pids + [worker])))
        self.kernel = Kernel()

    def test_nothing_survives_a_killed_supervisor(self):
        worker = self.kernel.run("os.getpid()")["output"]
        self.kernel.process.kill()
        self.assertTrue(gone(worker), "the worker dies with its supervisor")

    def test_orphans_are_reaped(self):
        pid = self.kernel.run("daemon(0)")["output"]
        deadline = time.monotonic() + 10
        while os.path.exists("/proc/%d" % pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertFalse(os.path.exists("/proc/%d" % pid), "no zombie")


@unittest.skipUnless(LINUX, "/proc")
class Reach(Case):
    """What user code can get hold of."""

    def test_supervisor(self):
        parent = self.value("import os; os.getppid()")
        self.assertEqual(self.kernel.process.pid, parent)
        if os.geteuid() == 0:
            self.skipTest("root reads everything")
        for name in ("mem", "fd/4", "environ"):
            self.fails("open('/proc/%d/%s')" % (parent, name), "PermissionError")

    def test_itself(self):
        self.assertTrue(self.value("import os; bool(os.listdir('/proc/self/fd')) and bool(open('/proc/self/maps').read())"))

    def test_signals_are_defaults(self):
        # 32 and 33 are libc's own, out of reach of any program; make ignores them.
        self.assertEqual(0, self.value(
            "import subprocess\nint(subprocess.run(['grep', 'SigIgn', '/proc/self/status'], stdout=-1).stdout.split()[1], 16) & ~(3 << 31)"))
        self.assertEqual("", self.value("subprocess.run(['grep', '-v', '^SigBlk.*0$', '/dev/null'], stdout=-1).stdout.decode()"))
        self.assertEqual(0, self.value("int(subprocess.run(['grep', 'SigBlk', '/proc/self/status'], stdout=-1).stdout.split()[1], 16)"))

    def test_oom_score(self):
        # The file is the opener's own: it must be the very process that becomes the supervisor.
        launcher = (
            "import os, sys\nfd = os.open('/proc/self/oom_score_adj', os.O_RDWR)\nos.set_inheritable(fd, True)\n"
            "os.execv(sys.executable, [sys.executable, '-I', '-S'] + sys.argv[1:] + ['--oom-fd', str(fd)])"
        )
        with Kernel(flags=("-I", "-c", launcher)) as kernel:
            self.assertEqual(["800", "0"], kernel.run(
                "import os\n[open('/proc/%s/oom_score_adj' % p).read().strip() for p in ('self', os.getppid())]")["output"])
            self.assertEqual([], kernel.run("[n for n in os.listdir('/proc/self/fd') if 'oom' in os.path.realpath('/proc/self/fd/' + n)]")["output"])
            kernel.control("kill")
            self.assertEqual("800", kernel.run("open('/proc/self/oom_score_adj').read().strip()")["output"])


if __name__ == "__main__":
    unittest.main()
