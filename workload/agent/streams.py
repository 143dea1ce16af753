"""Bytes that the client has yet to take, found by their offset in the whole stream."""

KEEP = 128 << 10  # bytes at either end of what was not taken
PART = 1 << 20  # bytes of the channel in one answer
REPLY = ord("W")
EXTERNAL = ord("X")
REQUEST = ord("R")


class Channel:
    """What the interpreter says, in frames: nothing of it may be missing."""

    def __init__(self):
        self.data = bytearray()
        self.base = 0  # offset of data[0]
        self.total = 0
        self.next = 0  # offset of the next header
        self.kind = 0  # of what ends there
        self.replied = 0  # offset behind the last whole reply
        self.asked = 0  # likewise, behind the last call of an external tool, which waits for the client

    def put(self, data):
        """True if a reply is whole by this."""
        self.data += data
        self.total += len(data)
        before = self.replied
        while self.next <= self.total:
            if self.kind == REPLY:
                self.replied = self.next
            elif self.kind == EXTERNAL:
                self.asked = self.next
            self.kind = 0
            start = self.next - self.base
            if len(self.data) < start + 5:
                break
            self.kind = self.data[start]
            self.next += 5 + int.from_bytes(self.data[start + 1 : start + 5], "big")
        return self.replied != before

    def forget(self, offset):
        size = min(offset, self.next, self.total) - self.base  # a header that is not whole is read later
        if size > 0:
            del self.data[:size]
            self.base += size

    def part(self, offset):
        if not self.base <= offset <= self.total:
            return b""
        start = offset - self.base
        return bytes(self.data[start : start + PART])


class Requests:
    """Finds the requests in what the client sends, by the frames' headers."""

    def __init__(self):
        self.head = bytearray()
        self.left = 0  # bytes of the frame that is under way

    def put(self, data):
        """Whether the header of a request ends in these bytes."""
        found, at = False, 0
        while at < len(data):
            if self.left:
                passed = min(self.left, len(data) - at)
                self.left -= passed
                at += passed
                continue
            taken = data[at : at + 5 - len(self.head)]
            self.head += taken
            at += len(taken)
            if len(self.head) == 5:
                found = found or self.head[0] == REQUEST
                self.left = int.from_bytes(self.head[1:], "big")
                self.head.clear()
        return found


class Output:
    """A stream of output: its beginning and its end are kept, the middle may go."""

    def __init__(self):
        self.head = bytearray()
        self.base = 0  # offset of head[0]
        self.tail = bytearray()
        self.total = 0

    def put(self, data):
        self.total += len(data)
        room = KEEP - len(self.head)
        if room > 0 and not self.tail:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > 2 * KEEP:
            del self.tail[:-KEEP]

    def forget(self, offset):
        """The client has all before offset."""
        if offset > self.total:
            raise ValueError("offset %d of the output" % offset)
        if offset <= self.base:
            return
        behind = self.total - len(self.tail)
        del self.head[: offset - self.base]
        if offset > behind:
            del self.tail[: offset - behind]
        self.base = max(offset, self.base)
        behind = self.total - len(self.tail)
        if not self.head:
            self.head, self.tail, self.base = self.tail, bytearray(), behind

    def parts(self, offset):
        """[(offset, bytes)] from offset on."""
        found = []
        for base, data in ((self.base, self.head), (self.total - len(self.tail), self.tail)):
            if base + len(data) > offset and data:
                skip = max(offset - base, 0)
                found.append((base + skip, bytes(data[skip:])))
        return found
