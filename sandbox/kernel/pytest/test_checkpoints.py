"""Checkpoints: not noticed while the worker lives, and its state when it is dead."""

import os
import sys
import tempfile
import time
import unittest

from driver import Kernel
from programs import PROGRAMS
from restored import FALL, RESTORED
from test_processes import alive, gone

LINUX = sys.platform.startswith("linux")


class Saved(Kernel):
    """A kernel that can wait for its checkpoints, and be killed."""

    def __init__(self, mode="always", **more):
        self.parked = 0
        super().__init__("--checkpoint", mode, **more)

    def pause(self):
        """Until what ran last is saved."""
        for kind, body in self.log:
            if kind == b"S" and body["event"] == "checkpoint" and body["call"] == self.calls:
                return body
        return self.until(lambda kind, body: kind == b"S" and body["event"] == "checkpoint" and body["call"] == self.calls)

    calls = 0

    def run(self, code, **more):
        self.calls += 1
        return super().run(code, **more)

    def fall(self, code="import os; os._exit(9)"):
        """Run code that ends the worker; the notes of the one that takes over, and the event that tells of it."""
        del self.log[:]
        self.request(code)
        self.event("died")
        worker = self.event("worker")
        self.calls = worker["restored"] or 0
        return [body["notes"] for kind, body in self.log if body["event"] == "restored"], worker


@unittest.skipUnless(LINUX, "checkpoints are for Linux")
class Unnoticed(unittest.TestCase):
    maxDiff = None

    def trace(self, mode, pause, calls):
        with tempfile.TemporaryDirectory() as folder, Saved(mode, workdir=folder) as kernel:
            seen = []
            for code in calls:
                result = kernel.run(code)
                if pause:
                    kernel.pause()
                seen.append({key: result[key] for key in ("status", "error", "notes", "output")})
                seen.append((kernel.said(1), kernel.said(2)))
            return seen

    def test_programs(self):
        self.assertGreaterEqual(len(PROGRAMS), 25)
        for name, calls in PROGRAMS.items():
            with self.subTest(name):
                plain = self.trace("off", False, calls)
                self.assertEqual(("ok", True), (plain[-2]["status"], plain[-2]["output"]), plain)
                values = [self.values(trace) for trace in (plain, self.trace("always", True, calls), self.trace("always", False, calls))]
                self.assertEqual(values[0], values[1], "with a pause for each checkpoint")
                self.assertEqual(values[0], values[2], "back to back")

    @staticmethod
    def values(trace):
        """All but what differs from run to run anyway: numbers of processes and descriptors."""
        return [
            dict(part, output=part["output"] if isinstance(part["output"], (bool, str)) else None) if isinstance(part, dict) else part
            for part in trace
        ]


# What user code that knows the channel could do: name any process as the standby.
FORGE = (
    "import os\n"
    "def forge(text):\n"
    "    for fd in range(200, 260):\n"
    "        try: target = os.readlink('/proc/self/fd/%d' % fd)\n"
    "        except OSError: continue\n"
    "        if 'pipe' in target and target != os.readlink('/proc/self/fd/1') and target != os.readlink('/proc/self/fd/2'):\n"
    "            try: os.write(fd, b'k' + len(text).to_bytes(4, 'big') + text)\n"
    "            except OSError: pass\n"
)


@unittest.skipUnless(LINUX, "checkpoints are for Linux")
class Restored(unittest.TestCase):
    def test_table(self):
        for name, (calls, last, check, notes) in RESTORED.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, Saved(workdir=folder) as kernel:
                for code in calls:
                    self.assertEqual("ok", kernel.run(code)["status"], code)
                kernel.pause()
                told, worker = kernel.fall(last + FALL)
                self.assertEqual(len(calls), worker["restored"])
                result = kernel.run(check)
                self.assertEqual(("ok", True), (result["status"], result["output"]), result)
                for part in notes:
                    self.assertIn(part, "\n".join(told[0]))
                if not notes:
                    self.assertEqual([[]], told)
                kernel.pause()
                kernel.fall()
                result = kernel.run("1 + 1")  # and once more
                self.assertEqual(("ok", 2), (result["status"], result["output"]), result)

    def test_wiped_memory(self):
        """What comes empty out of a fork is told of, by the call after the one that ended the interpreter."""
        with Saved() as kernel:
            for option, noted in ((18, True), (0, False)):
                kernel.run("import mmap, os; m = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[0] = 7; m.madvise(%d)" % option)
                kernel.pause()
                kernel.fall()
                time.sleep(0.3)  # idle, for once
                result = kernel.run("m[0]")
                self.assertEqual((0 if noted else 7, ["not restored: 1024 KiB that a copy has empty (madvise, MADV_WIPEONFORK)"] if noted else []), (result["output"], result["notes"]))
                self.assertEqual([], kernel.run("m.close()")["notes"])

    def test_many_times(self):
        """No zombie, no standby too many, no descriptor more."""
        with Saved() as kernel:
            kernel.run("import os; x = 0; fds = sorted(os.listdir('/proc/self/fd'))")
            for n in range(30):
                kernel.run("x += 1")
                if n % 2:
                    kernel.pause()
                _, worker = kernel.fall("x = 0" + FALL)
                self.assertIsNotNone(worker["restored"])
            self.assertEqual([30, True], kernel.run("[x, fds == sorted(os.listdir('/proc/self/fd'))]")["output"])
            kernel.pause()
            deadline = time.monotonic() + 10  # the one before is ended when the next is there
            while len(self.family(kernel)) != 2 and time.monotonic() < deadline:
                time.sleep(0.005)
            self.assertEqual(2, len(self.family(kernel)), "the worker and its standby")
            supervisor = len(os.listdir("/proc/%d/fd" % kernel.process.pid)) if os.geteuid() == 0 else 0
            for _ in range(3):
                kernel.run("x")
                kernel.pause()
                kernel.fall()
            if supervisor:
                self.assertEqual(supervisor, len(os.listdir("/proc/%d/fd" % kernel.process.pid)))

    def family(self, kernel):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self.parent(pid) == kernel.process.pid]

    @staticmethod
    def parent(pid):
        try:
            with open("/proc/%s/stat" % pid) as file:
                return int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return 0

    def test_back_to_back(self):
        """Always: nothing but the call that failed is undone, however closely calls follow each other."""
        with Saved() as kernel:
            ids = [kernel.request("x = %d" % n) for n in range(20)] + [kernel.request("x = 99" + FALL)]
            self.assertTrue(ids)
            self.assertEqual(20, kernel.event("worker")["restored"])
            self.assertEqual(19, kernel.run("x")["output"])

    def test_idle(self):
        """Idle: what was not saved is lost, and the number says what was."""
        with Saved("idle") as kernel:
            kernel.run("x = 1")
            kernel.calls = 1
            kernel.pause()
            for n in range(2, 5):
                kernel.request("x = %d" % n)
            kernel.request("x = 99" + FALL)
            self.assertEqual(1, kernel.event("worker")["restored"])
            self.assertEqual(1, kernel.run("x")["output"])

    def test_compiled_libraries(self):
        """Pools of threads and generators of random numbers that are not Python's."""
        try:
            import numpy, sklearn.ensemble  # noqa: of the interpreter under test
        except ImportError:
            self.skipTest("numpy and scikit-learn are not installed")
        with tempfile.TemporaryDirectory() as folder, Saved(workdir=folder) as kernel:
            kernel.run(
                "import numpy as np\nfrom sklearn.ensemble import HistGradientBoostingRegressor as H\n"
                "X = np.random.rand(200, 4); y = X.sum(1); m = H(max_iter=3).fit(X, y); p = m.predict(X); a = X.T @ X", timeout=120)
            kernel.pause()
            kernel.fall("z = np.random.rand()\nopen('z', 'w').write(repr(z))" + FALL)
            result = kernel.run("[bool((m.predict(X) == p).all()), bool((X.T @ X == a).all()), repr(np.random.rand()) != open('z').read()]", timeout=60)
            self.assertEqual([True, True, True], result["output"], result)
            kernel.run("np.random.seed(1)")
            kernel.pause()
            kernel.fall("open('z', 'w').write(repr(np.random.rand()))" + FALL)
            self.assertTrue(kernel.run("repr(np.random.rand()) == open('z').read()")["output"])

    def test_first_call(self):
        """Before the first call there is nothing to save: a fresh worker is as good."""
        with Saved() as kernel:
            told, worker = kernel.fall()
            self.assertEqual(([], None), (told, worker["restored"]))

    def test_given_up(self):
        """Without a standby the variables are lost, and nobody says otherwise."""
        with Saved() as kernel:
            kernel.run("x = 1")
            kernel.pause()
            self.assertEqual(1, kernel.control("discard")["killed"])
            self.assertEqual(0, kernel.control("discard")["killed"])
            self.assertTrue(any(body["event"] == "discarded" for _, body in kernel.log))
            identity = kernel.request("import time; print('ready'); time.sleep(60)")
            kernel.wait_text(b"ready")  # a checkpoint was made before it
            kernel.control("discard")
            kernel.control("kill")
            self.assertIsNone(kernel.event("worker")["restored"])
            self.assertTrue(identity)
            self.assertIn("NameError", kernel.run("x")["error"])

    def test_killed_standby(self):
        """User code that kills the standby only loses what it had."""
        with Saved() as kernel:
            kernel.run("import os, time; x = 1")
            pid = kernel.pause()["pid"]
            _, worker = kernel.fall("os.kill(%d, 9); time.sleep(0.2); os._exit(1)" % pid)
            self.assertIsNone(worker["restored"])
            self.assertIn("NameError", kernel.run("x")["error"])

    def test_stopped_standby(self):
        with Saved() as kernel:
            kernel.run("import os, signal; x = 1")
            pid = kernel.pause()["pid"]
            _, worker = kernel.fall("os.kill(%d, signal.SIGSTOP); os.kill(%d, signal.SIGTERM); os._exit(1)" % (pid, pid))
            self.assertEqual(1, worker["restored"])
            self.assertEqual(1, kernel.run("x")["output"])

    def test_forged(self):
        """A worker that names another process as its standby fools nobody but itself."""
        for text in (b'{"pid":1,"call":1}', b'{"pid":-1,"call":1}', b'{"pid":999999,"call":1}', b'{"pid":true,"call":1}', b'{"pid":2,"call":-1}'):
            with Saved() as kernel:
                kernel.run(FORGE)
                kernel.pause()
                kernel.run("forge(%r)" % text)
                self.assertEqual(2, kernel.pause()["call"])
                self.assertEqual(2, kernel.fall()[1]["restored"])
        with Saved() as kernel:
            kernel.run(FORGE)
            kernel.request("forge(b'nonsense')")
            self.assertEqual(70, kernel.process.wait(10))

    def test_forged_again_and_again(self):
        """The server hears once of each standby, and not of many between two calls."""
        with Saved() as kernel:
            kernel.run(FORGE)
            pid = kernel.pause()["pid"]
            del kernel.log[:]
            kernel.run("for n in range(10): forge(b'{\"pid\":%d,\"call\":%%d}' %% n)" % pid)
            self.assertEqual([], [body for kind, body in kernel.log if body.get("event") == "checkpoint" and body["pid"] == pid])
            self.assertEqual(2, kernel.pause()["call"])
            kernel.request("for n in range(30): forge(b'{\"pid\":%d,\"call\":%%d}' %% n)" % pid)
            self.assertEqual(70, kernel.process.wait(10))

    def test_silent_heir(self):
        """One that does not answer is ended after five seconds, whatever else happens meanwhile."""
        with tempfile.TemporaryDirectory() as folder, Saved(workdir=folder) as kernel:
            kernel.run(FORGE)
            kernel.request(
                "import time\n"
                "r, w = os.pipe()\n"
                "if os.fork() == 0:\n"
                "    if os.fork(): os._exit(0)\n"
                "    os.write(w, b'%d' % os.getpid())\n"
                "    while True:\n"
                "        pid = os.fork()\n"
                "        if pid == 0:\n"
                "            os.fork(); os._exit(0)\n"  # an orphan, of which the supervisor hears
                "        os.waitpid(pid, 0); time.sleep(0.5)\n"
                "pid = int(os.read(r, 20)); os.wait()\n"
                "forge(b'{\"pid\":%d,\"call\":77}' % pid)\n"
                "while not os.path.exists('go'): time.sleep(0.01)\n"
                "os._exit(9)\n"
            )
            self.assertTrue(kernel.until(lambda kind, body: kind == b"S" and body["event"] == "checkpoint" and body["call"] == 77)["pid"])
            open(os.path.join(folder, "go"), "w").close()
            self.assertTrue(kernel.event("died")["standby"])
            start = time.monotonic()
            self.assertFalse(kernel.event("died")["standby"])
            self.assertGreater(time.monotonic() - start, 4)
            self.assertIsNone(kernel.event("worker")["restored"])
            self.assertEqual(2, kernel.run("1 + 1")["output"])

    def test_kill_spares_it(self):
        """Forks that spread can't outrun the kill, and the standby outlives it."""
        with Saved() as kernel:
            kernel.run("import os, time; x = 1")
            kernel.pause()
            kernel.request("x = 2\nfor _ in range(30):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(60)\nprint('ready')\ntime.sleep(60)")
            kernel.wait_text(b"ready")
            done = kernel.control("kill")
            self.assertGreaterEqual(done["killed"], 31)
            worker = kernel.event("worker") if not any(b["event"] == "worker" for _, b in kernel.log) else [b for _, b in kernel.log if b["event"] == "worker"][-1]
            self.assertEqual(1, worker["restored"])
            self.assertEqual(1, kernel.run("x")["output"])

    def test_reset(self):
        with Saved() as kernel:
            kernel.run("x = 1")
            pid = kernel.pause()["pid"]
            kernel.control("reset")
            self.assertTrue(gone(pid))
            self.assertIn("NameError", kernel.run("x")["error"])

    def test_dies_with_the_supervisor(self):
        with Saved() as kernel:
            kernel.run("x = 1")
            pid = kernel.pause()["pid"]
            self.assertTrue(alive(pid))
            kernel.process.kill()
            self.assertTrue(gone(pid))

    def test_between_calls(self):
        with tempfile.TemporaryDirectory() as folder, Saved(workdir=folder) as kernel:
            kernel.run(
                "import threading, time, os; x = 1\n"
                "def leave():\n"
                "    while not os.path.exists('go'): time.sleep(0.01)\n"
                "    os._exit(4)\n"
                "threading.Thread(target=leave).start()"
            )
            kernel.pause()
            open(os.path.join(folder, "go"), "w").close()
            self.assertEqual(4, kernel.event("died")["exit"])
            self.assertEqual(1, kernel.event("worker")["restored"])
            self.assertEqual(1, kernel.run("x")["output"])

    def small(self):
        """A kernel whose worker may hold 256 MiB, and is copied up to 160."""
        import resource

        return Saved(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20)))

    def test_no_room(self):
        """A worker that holds much of what it may is not copied: an older checkpoint has to do."""
        with self.small() as kernel:
            kernel.run("x = 1")
            kernel.pause()
            del kernel.log[:]
            self.assertEqual("ok", kernel.run("x = 2; big = b'x' * (180 << 20)")["status"])
            self.assertEqual(2, kernel.run("x")["output"])  # before it a copy would have been made
            self.assertFalse(any(body.get("event") == "checkpoint" for _, body in kernel.log))
            self.assertEqual(1, kernel.fall()[1]["restored"])
            self.assertEqual([1, False], kernel.run("[x, 'big' in globals()]")["output"])

    def test_room_again(self):
        with self.small() as kernel:
            kernel.run("x = 1; big = b'x' * (180 << 20)")
            kernel.run("x = 2")
            self.assertFalse(any(body.get("event") == "checkpoint" for _, body in kernel.log))
            kernel.run("x = 3; del big")
            self.assertEqual(3, kernel.pause()["call"])
            self.assertEqual(3, kernel.fall()[1]["restored"])
            self.assertEqual(3, kernel.run("x")["output"])

    def test_without_descriptors(self):
        """No descriptor left: the last checkpoint stays the last."""
        with Saved() as kernel:
            kernel.run("import os, resource; x = 1; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))")
            kernel.pause()
            kernel.run("x = 2; held = []\ntry:\n    while True: held.append(os.dup(0))\nexcept OSError: pass")
            time.sleep(0.1)
            self.assertEqual(1, kernel.fall()[1]["restored"])
            self.assertEqual(1, kernel.run("x")["output"])


if __name__ == "__main__":
    unittest.main()
