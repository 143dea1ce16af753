"""A kernel as a plain child process, driven over its channel as the server does it."""

import json
import os
import select
import subprocess
import sys
import time
import unittest

MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "py", "main.py")


class Kernel:
    """Use as a context manager; not safe for concurrent use."""

    def __init__(self, *options, main=MAIN, flags=("-I", "-S"), workdir=None, wait=True, env=None, **popen):
        inside, self.to = os.pipe()
        self.frm, outside = os.pipe()
        command = [sys.executable, *flags, main, "--in", str(inside), "--out", str(outside), *options]
        if workdir:
            command += ["--workdir", workdir]
        self.process = subprocess.Popen(
            command, pass_fds=(inside, outside), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=env, **popen,
        )
        os.close(inside)
        os.close(outside)
        self.buffer = b""
        self.texts = {self.process.stdout.fileno(): b"", self.process.stderr.fileno(): b""}
        self.open = set(self.texts)
        self.ids = 0
        self.log = []  # frames that were passed over
        self.shown = []  # displays
        if wait:
            self.worker = self.event("worker")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.to is not None:
            os.close(self.to)
            self.to = None
        code = self.process.wait(20)
        if self.frm is not None:
            os.close(self.frm)
            self.frm = None
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    # Sending

    def raw(self, data):
        while data:
            data = data[os.write(self.to, data):]

    def frame(self, kind, payload):
        if not isinstance(payload, bytes):
            payload = json.dumps(payload).encode()
        self.raw(kind + len(payload).to_bytes(4, "big") + payload)

    def request(self, code, **fields):
        self.ids += 1
        identity = "%x" % self.ids
        self.frame(b"R", dict({"op": "run", "id": identity, "code": code}, **fields))
        return identity

    def displays(self):
        """What was shown since last asked: whole, as (media type, data, original, about)."""
        found, self.shown = self.shown, []
        for head in found:
            assert len(head["data"]) == head["size"] + head["original"], head
        return [
            (head["mime"], head["data"][: head["size"]], head["data"][head["size"]:], head["about"]) for head in found
        ]

    def control(self, op, wait=True, **fields):
        self.ids += 1
        self.frame(b"C", dict({"op": op, "seq": self.ids}, **fields))
        if wait:
            seq = self.ids
            return self.until(lambda kind, body: kind == b"S" and body.get("seq") == seq)

    # Receiving

    def next(self, timeout=60):
        """(kind, decoded payload) of the next frame but those that name what is saved or loaded; drains both streams meanwhile."""
        while True:
            kind, body = self.raw_next(timeout)
            if kind == b"v":
                self.shown[-1]["data"] += body
            elif kind == b"V":
                self.shown.append(dict(json.loads(body), data=b""))
            elif kind != b"N":
                return kind, json.loads(body)

    def raw_next(self, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 5:
                size = int.from_bytes(self.buffer[1:5], "big")
                if len(self.buffer) >= 5 + size:
                    kind, body = self.buffer[:1], self.buffer[5:5 + size]
                    self.buffer = self.buffer[5 + size:]
                    return kind, body
            self.pump(deadline - time.monotonic(), True)

    def pump(self, timeout, frames):
        watched = list(self.open) + ([self.frm] if frames else [])
        ready = select.select(watched, [], [], max(0, timeout))[0]
        if not ready:
            raise TimeoutError("no frame: %r" % (self.texts,))
        for fd in ready:
            data = os.read(fd, 1 << 20)
            if fd == self.frm:
                if not data:
                    raise EOFError("the kernel ended: %r" % (self.texts,))
                self.buffer += data
            elif data:
                self.texts[fd] += data
            else:
                self.open.discard(fd)

    def until(self, wanted, timeout=60):
        while True:
            kind, body = self.next(timeout)
            if wanted(kind, body):
                return body
            self.log.append((kind, body))

    def event(self, name, timeout=60):
        return self.until(lambda kind, body: kind == b"S" and body["event"] == name, timeout)

    def result(self, identity, timeout=60):
        for kind, body in self.log:  # it may have come while another was awaited
            if kind == b"W" and body.get("id") == identity:
                return body
        return self.until(lambda kind, body: kind == b"W" and body.get("id") == identity, timeout)

    def run(self, code, timeout=60, **fields):
        return self.result(self.request(code, **fields), timeout)

    def save(self, limit=1 << 30, timeout=60, **fields):
        """(result, bytes) of saving the variables, as the server keeps them."""
        self.ids += 1
        self.frame(b"R", dict({"op": "save", "id": "save%d" % self.ids, "limit": limit}, **fields))
        data = bytearray()
        while True:
            kind, body = self.raw_next(timeout)
            if kind == b"D":
                data += body
            elif kind == b"B":
                size = int.from_bytes(body, "big")
                assert size <= len(data), (size, len(data))
                del data[size:]
            elif kind != b"N":
                return json.loads(body), bytes(data)

    def restore(self, table, data, piece=65531, timeout=60, **fields):
        """The result of restoring what save gave."""
        self.ids += 1
        sent, ended = 0, False
        self.frame(b"R", dict({"op": "restore", "id": "restore%d" % self.ids, "table": table}, **fields))
        while True:
            kind, body = self.raw_next(timeout)
            if kind == b"N":
                continue
            if kind != b"P":
                return json.loads(body)
            for _ in range(16):
                if not ended:
                    self.frame(b"D", data[sent:sent + piece])
                    ended = sent >= len(data)
                    sent += piece

    def wait_text(self, wanted, fd=1, timeout=60):
        """Until a stream holds wanted."""
        deadline = time.monotonic() + timeout
        while wanted not in (self.texts[self.process.stdout.fileno()] if fd == 1 else self.texts[self.process.stderr.fileno()]):
            self.pump(deadline - time.monotonic(), False)

    def said(self, fd=1, flush=True):
        """What a stream got since last asked (replies come after what was flushed before them)."""
        stream = self.process.stdout if fd == 1 else self.process.stderr
        while select.select([stream.fileno()], [], [], 0)[0] and stream.fileno() in self.open:
            self.pump(0, False)
        found, self.texts[stream.fileno()] = self.texts[stream.fileno()], b""
        return found.decode("utf-8", "replace")


class Case(unittest.TestCase):
    """Tests that share one interpreter, as the calls of one session do."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.kernel = Kernel(*cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.kernel.close()

    def ok(self, code, **fields):
        """The result of code that must succeed."""
        result = self.kernel.run(code, **fields)
        self.assertEqual(("ok", ""), (result["status"], result["error"]), code)
        return result

    def value(self, code, **fields):
        return self.ok(code, **fields)["output"]

    def fails(self, code, *texts):
        """The error of code that must raise; it holds each of texts."""
        result = self.kernel.run(code)
        self.assertEqual("error", result["status"], result)
        for text in texts:
            self.assertIn(text, result["error"])
        return result["error"]

    def started(self, code, **fields):
        """Send code that prints "ready" once it is where the test wants it."""
        identity = self.kernel.request(code, **fields)
        self.kernel.wait_text(b"ready")
        self.kernel.said()
        return identity
