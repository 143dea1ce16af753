"""Frames: one byte of kind, four of length (big-endian), a payload of JSON in UTF-8."""

from posix import read

HEADER = 5
CHUNK = 1 << 16

REQUEST = ord("R")  # server -> worker
CONTROL = ord("C")  # server -> supervisor
EVENT = ord("S")  # supervisor -> server
WORKER = ord("W")  # worker -> server
READY = ord("r")  # worker -> supervisor: takes requests from now on
CHECKPOINT = ord("k")  # worker -> supervisor: a standby is parked
INTERRUPT = ord("I")  # supervisor -> worker: the request before this frame is interrupted
DISPLAY = ord("V")  # worker -> server: something to look at is coming
SHOWN = ord("v")  # worker -> server: some of its bytes
# Of a snapshot, which is a stream of bytes:
DATA = ord("D")  # worker -> server, and back: some of them; none at the end
REWIND = ord("B")  # worker -> server: only so many of them are valid
PULL = ord("P")  # worker -> server: send more
NAME = ord("N")  # worker -> server: this one is saved next, loaded or imported; its index as four bytes, and some of the name
# Of a call of an external tool:
EXTERNAL = ord("X")  # worker -> server: it is wanted
ANSWER = ord("x")  # server -> worker: its answer, "cell number total\n" and JSON


class Malformed(Exception):
    """Not a frame of this channel. There is no way to find the next one: give the peer up."""


def frame(kind, payload=b""):
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


class Reader:
    """Cuts one descriptor's bytes into frames. Holds at most one frame and a chunk."""

    def __init__(self, fd, limit, kinds):
        self.fd = fd
        self.limit = limit
        self.kinds = kinds
        self.buffer = bytearray()

    def fill(self):
        """Read once; False at the end of the stream. May raise BlockingIOError."""
        data = read(self.fd, CHUNK)
        self.buffer += data
        return bool(data)

    def take(self):
        """The next whole frame, header and all, or None."""
        buffer = self.buffer
        if len(buffer) < HEADER:
            return None
        # Judged from the header alone, before a byte of the payload is awaited:
        # an absurd length must not make us hoard.
        size = int.from_bytes(buffer[1:HEADER], "big")
        if buffer[0] not in self.kinds or size > self.limit:
            raise Malformed
        end = HEADER + size
        if len(buffer) < end:
            return None
        taken = bytes(buffer[:end])
        del buffer[:end]
        return taken
