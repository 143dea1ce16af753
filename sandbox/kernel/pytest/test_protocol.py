"""The channel: both ends' nonsense, sizes, order, and who pays for it."""

import glob
import json
import os
import shutil
import sys
import tempfile
import unittest

from driver import MAIN, Case, Kernel


def frame(kind, payload):
    return kind + len(payload).to_bytes(4, "big") + payload


class Malformed(unittest.TestCase):
    def ends(self, kernel, code=70):
        with self.assertRaises((EOFError, BrokenPipeError)):
            while True:
                kernel.next()
        self.assertEqual(code, kernel.process.wait(10))

    def test_from_the_server(self):
        for data in (
            b"X\0\0\0\0",
            b"\0\0\0\0\0",
            b"W\0\0\0\x02{}",
            b"R\xff\xff\xff\xff",
            b"C\x7f\xff\xff\xff",
            frame(b"C", b"not json"),
            frame(b"C", b"[]"),
            frame(b"C", b"3"),
            frame(b"C", b"{}"),
            frame(b"C", b'{"op":"dance"}'),
            frame(b"C", b'{"op":["ping"]}'),
            frame(b"C", b'{"op":"sweep","since":"x"}'),
            frame(b"C", b"\xff\xfe"),
            frame(b"C", b""),
            frame(b"C", b"[" * 200000),
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            with self.subTest(data=data[:40]), Kernel() as kernel:
                kernel.raw(data)
                self.ends(kernel)

    def test_from_user_code(self):
        """Forged frames end the interpreter or are only frames; the supervisor's word can't be forged."""
        find = ("import os, fcntl\nfor fd in range(255, 10, -1):\n    try:\n        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY"
                " and os.readlink('/proc/self/fd/%d' % fd) not in [os.readlink('/proc/self/fd/1'), os.readlink('/proc/self/fd/2')]: break\n    except OSError: pass\n")
        for data in (b"S\0\0\0\x02{}", b"Q\0\0\0\0", b"x\0\0\0\0", b"W\xff\xff\xff\xff", b"\0" * 5, b"Traceback"):
            with self.subTest(data=data), Kernel() as kernel:
                kernel.request(find + "os.write(fd, %r)\nimport time; time.sleep(60)" % data)
                self.ends(kernel)
        with Kernel() as kernel:
            kernel.request(find + "os.write(fd, %r)" % (frame(b"W", b"\xff anything") + frame(b"r", b"")))
            kind, size = kernel.raw_next()
            self.assertEqual((b"W", b"\xff anything"), (kind, size), "relayed unread")
            self.assertEqual("result", kernel.next()[1]["event"])
        with Kernel() as kernel:
            # A partial frame of a dead worker is dropped, a whole one comes first.
            kernel.request(find + "os.write(fd, %r)\nos._exit(0)" % (frame(b"W", b'{"whole":1}') + b"W\0\0\0\x09part"))
            self.assertEqual({"whole": 1}, kernel.next()[1])
            self.assertEqual("died", kernel.next()[1]["event"])
            self.assertEqual("worker", kernel.next()[1]["event"])
            self.assertEqual(1, kernel.run("1")["output"])

    def test_end_of_the_channel(self):
        kernel = Kernel()
        kernel.request("while True: pass")
        self.assertEqual(0, kernel.close())
        kernel = Kernel(wait=False)
        self.assertEqual(0, kernel.close())

    def test_server_stops_reading(self):
        kernel = Kernel()
        os.close(kernel.frm)
        kernel.frm = None
        kernel.request("1")
        self.assertEqual(0, kernel.process.wait(10))
        kernel.close()

    def test_options(self):
        for options in (("--max-frame",), ("--nonsense", "1"), ("--in", "x")):
            kernel = Kernel(*options, wait=False)
            self.assertEqual(1, kernel.process.wait(10))
            kernel.close()

    def test_no_worker_gets_ready(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for path in glob.glob(os.path.join(os.path.dirname(MAIN), "*.py")):
            shutil.copy(path, folder)
        with open(os.path.join(folder, "worker.py"), "a") as file:
            file.write("\n\ndef broken(self):\n    raise OSError\n\n\nWorker.make_main = broken\n")
        kernel = Kernel(main=os.path.join(folder, "main.py"), wait=False)
        events = []
        with self.assertRaises(EOFError):
            while True:
                events.append(kernel.next()[1]["event"])
        self.assertEqual(71, kernel.close())
        self.assertEqual(["died"] * 5, events)


class Requests(Case):
    def test_refused(self):
        for payload, identity in (
            (b"", ""),
            (b"nonsense", ""),
            (b"[]", ""),
            (b"{}", ""),
            (b"\xff", ""),
            (b'{"op":"run","id":5,"code":"1"}', ""),
            (b'{"op":"run","code":"1"}', ""),
            (b'{"op":"walk","id":"a","code":"1"}', "a"),
            (b'{"op":"run","id":"b"}', "b"),
            (b'{"op":"run","id":"c","code":5}', "c"),
            (b'{"op":"run","id":"d","code":null}', "d"),
            (b'{"op":"run","id":"e","code":"1"} trailing', ""),
            (b'{"op":"run","id":"f","code":"1","inputs":7}', "f"),
            (b"[" * 100000, ""),
            (b'{"op":"run","id":"g","code":"1","inputs":{"n":' + b"9" * 10000 + b"}}", None),
        ):
            with self.subTest(payload=payload[:50]):
                self.kernel.frame(b"R", payload)
                kind, body = self.kernel.next()
                self.assertEqual(b"W", kind)
                if identity is not None:
                    self.assertEqual(("refused", identity), (body["event"], body["id"]))
                    self.assertTrue(body["error"])
        self.assertEqual(1, self.value("1"))

    def test_odd_ids(self):
        for identity in ("", "ü\ud800\"\n", "0" * 200):
            self.kernel.frame(b"R", {"op": "run", "id": identity, "code": "1"})
            self.assertEqual(identity, self.kernel.next()[1]["id"])

    def test_unknown_fields(self):
        self.assertEqual(1, self.value("1", later=True, other={"x": [1]}))

    def test_split_and_joined(self):
        data = b"".join(frame(b"R", json.dumps({"op": "run", "id": str(n), "code": str(n)}).encode()) for n in range(3))
        for byte in data[:60]:
            self.kernel.raw(bytes([byte]))
        self.kernel.raw(data[60:])
        self.assertEqual([0, 1, 2], [self.kernel.next()[1]["output"] for _ in range(3)])

    def test_controls(self):
        self.assertEqual({"event": "done", "op": "ping", "seq": self.kernel.ids + 1, "killed": 0}, self.kernel.control("ping"))
        self.kernel.frame(b"C", {"op": "ping"})
        self.assertEqual({"event": "done", "op": "ping", "seq": None, "killed": 0}, self.kernel.next()[1])

    def test_controls_during_a_call(self):
        identity = self.started("print('ready')\nwhile True: pass")
        for _ in range(5):
            self.kernel.control("ping")
        self.kernel.control("interrupt")
        self.assertEqual("interrupted", self.kernel.result(identity)["status"])

    def test_version(self):
        self.assertEqual("%d.%d.%d" % sys.version_info[:3], self.kernel.worker["python"])
        self.assertEqual(1, self.kernel.worker["generation"])
        self.assertEqual(self.kernel.worker["pid"], self.value("import os; os.getpid()"))


class Sizes(unittest.TestCase):
    def test_large_request(self):
        with Kernel() as kernel:
            text = "x" * (8 << 20)
            self.assertEqual(8 << 20, kernel.run("len(inputs['t'])", inputs={"t": text})["output"])

    def test_server_that_does_not_read(self):
        """Big replies, not read for a while, block no control."""
        with Kernel() as kernel:
            ids = [kernel.request("['%s']" % ("y" * 900_000)) for _ in range(5)]
            for _ in range(3):
                kernel.control("ping", wait=False)
            for identity in ids:
                self.assertEqual(900_000, len(kernel.result(identity)["output"][0]))

    def test_cap(self):
        with Kernel("--max-frame", "4000") as kernel:
            result = kernel.run("'z' * 10_000")
            self.assertEqual(("ok", None), (result["status"], result["output"]))
            self.assertIn("4000", result["notes"][0])
            result = kernel.run("raise ValueError('q' * 10_000)")
            self.assertEqual("error", result["status"])
            self.assertLess(len(result["error"]), 1000)
            self.assertEqual(2, kernel.run("2")["output"])
            kernel.raw(b"R" + (4001).to_bytes(4, "big"))
            self.assertEqual(70, kernel.process.wait(10))

    def test_request_at_once(self):
        with Kernel(wait=False) as kernel:
            self.assertEqual(3, kernel.run("1 + 2")["output"])


if __name__ == "__main__":
    unittest.main()
