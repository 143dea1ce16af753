"""Bytes that the client has yet to take, found by their offset in the whole stream."""

KEEP = 128 << 10  # bytes at either end of what was not taken
PART = 1 << 20  # bytes of the channel in one answer
REPLY = ord("W")


class Channel:
    """What the interpreter says, in frames: nothing of it may be missing."""

    def __init__(self):
        self.data = bytearray()
        self.base = 0  # offset of data[0]
        self.total = 0
        self.next = 0  # offset of the next header
        self.reply = False  # what ends there is one
        self.replied = 0  # offset behind the last whole reply

    def put(self, data):
        """True if a reply is whole by this."""
        self.data += data
        self.total += len(data)
        before = self.replied
        while self.next <= self.total:
            if self.reply:
                self.replied, self.reply = self.next, False
            start = self.next - self.base
            if len(self.data) < start + 5:
                break
            self.reply = self.data[start] == REPLY
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
