"""Seals: every message bears a code that only the client and this process can make.

A message is boot (16 bytes), number (8), code (32), length of the head (4), the head in
JSON, data. The code is HMAC-SHA256 of "q" for a question or "a" for an answer, the path, a
line feed, and all but the code itself. The number is the question's; an answer repeats it.
"""

import hashlib
import hmac
import json
import os

BOOT = 16
FIXED = BOOT + 8 + 32
WINDOW = 1024  # questions may come out of order by so many


class Refused(Exception):
    """Not one of the client's."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.text = text


class Opened:
    """A question that is the client's own."""

    def __init__(self, number, replayed, head, data):
        self.number = number
        self.replayed = replayed
        self.head = head
        self.data = data


class Seal:
    """One for each start of the container: the boot tells that from an earlier one."""

    def __init__(self):
        self.boot = os.urandom(BOOT)
        self.key = b""
        self.top = 0
        self.seen = set()

    def set_key(self, key):
        """Whether this is the key now: the first one is for good."""
        if self.key or len(key) != 32:
            return bool(self.key) and hmac.compare_digest(self.key, bytes(key))
        self.key = bytes(key)
        return True

    def code(self, kind, path, boot, number, rest):
        text = b"".join((kind, path.encode("utf-8", "replace"), b"\n", boot, number, rest))
        return hmac.new(self.key, text, hashlib.sha256).digest()

    def open(self, path, body):
        if len(body) < FIXED + 4:
            raise Refused(400, "not a sealed message")
        boot, number, code = body[:BOOT], body[BOOT : BOOT + 8], body[BOOT + 8 : FIXED]
        if not self.key or boot != self.boot:
            raise Refused(409, self.boot.hex())
        rest = body[FIXED:]
        if not hmac.compare_digest(code, self.code(b"q", path, boot, number, rest)):
            raise Refused(403, "not sealed by the client")
        number = int.from_bytes(number, "big")
        replayed = number in self.seen or number <= self.top - WINDOW
        if not replayed:
            self.seen.add(number)
            if number > self.top:
                self.top = number
            if len(self.seen) > 2 * WINDOW:
                self.seen = {seen for seen in self.seen if seen > self.top - WINDOW}
        size = int.from_bytes(rest[:4], "big")
        if size > len(rest) - 4:
            raise Refused(400, "not a sealed message")
        try:
            head = json.loads(rest[4 : 4 + size])
        except ValueError:
            head = None
        if type(head) is not dict:
            raise Refused(400, "not a sealed message")
        return Opened(number, replayed, head, rest[4 + size :])

    def close(self, path, number, head, data):
        number = number.to_bytes(8, "big")
        head = json.dumps(head, separators=(",", ":")).encode()
        rest = b"".join((len(head).to_bytes(4, "big"), head, data))
        return b"".join((self.boot, number, self.code(b"a", path, self.boot, number, rest), rest))
