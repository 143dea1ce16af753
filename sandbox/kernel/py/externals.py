"""Calls of tools outside the sandbox: how they leave the worker, and how their answers come in.

Any thread may call while code runs. All share the worker's channel: a frame is as short
as a pipe takes at once, so no two mix; and of those that wait for an answer one reads,
for itself and for the others, or the event loop does, where there is one that waits.

An interrupt, or a handler of the user's own, may come between any two lines in the
main thread. So what is read is put into the buffer by one call, and leaves it only after
it was handed out, which may safely be done twice.
"""

import select
from posix import _exit, getpid, read, write
from time import sleep

from _thread import allocate_lock, get_ident

frames = load("frames")
text = load("text")

PIECE = select.PIPE_BUF - frames.HEADER
TOLD = 1 << 20  # bytes of answers after which the server is told that they were taken
PATIENCE = 50  # ms after which a thread that reads looks whether the call has ended
NAME = 200  # bytes


class ToolError(Exception):
    """A tool outside the sandbox failed, or could not be called.

    kind says why: "tool" (its own word), "unknown", "denied", "unavailable", "late"
    (no answer in time), "ended" (the call that it belonged to is over).
    """

    def __init__(self, said, kind="tool", name=""):
        super().__init__(said)
        self.kind = kind
        self.name = name

    def __str__(self):
        said = str(self.args[0]) if self.args else ""
        return "%s: %s" % (self.name, said) if self.name else said

    def __reduce__(self):
        return type(self), (*self.args, self.kind, self.name)


ToolError.__module__ = "builtins"  # how a traceback names it, and where it is found again


class Slot:
    """One call that waits for its answer, in a thread or in an event loop."""

    __slots__ = "cell", "number", "answer", "event", "loop", "future"

    def __init__(self, cell, loop=None):
        self.cell = cell
        self.number = 0
        self.answer = None
        self.event = self.future = None
        self.loop = loop
        if loop is None:
            self.event = allocate_lock()
            self.event.acquire()
        else:
            self.future = loop.create_future()

    def wake(self):
        try:
            if self.loop is None:
                self.event.release()
            else:
                self.loop.call_soon_threadsafe(self.settle)
        except RuntimeError:
            pass  # awake already, or the loop is closed

    def settle(self):
        if not self.future.done():
            self.future.set_result(None)


class Channel:
    """One for each worker. It is open while code runs that may call tools."""

    def __init__(self, worker):
        self.worker = worker
        self.inlet, self.outlet = worker.inlet, worker.outlet
        self.main = get_ident()
        self.open = False
        self.cell = 0  # the call of the session, by the server's count
        self.last = 0  # number of the latest call
        self.calls = self.lists = self.refused = 0
        self.taken = self.told = 0  # bytes of answers
        self.most = {"calls": 0, "lists": 0, "arguments": 0}
        self.pending = {}  # number -> Slot
        self.fresh()

    def fresh(self):
        """At the start, and where a standby takes over: nobody holds anything."""
        self.pid = getpid()
        self.writing = allocate_lock()
        self.reader = {}  # "thread" -> the one that reads; setdefault decides at once
        self.loops = {}  # id -> [loop, how many wait in it]

    def begin(self, offer):
        """Before code runs: what it may call."""
        with self.writing:
            self.cell = offer["cell"]
            self.most = offer
            self.pending = {}
            self.calls = self.lists = self.refused = self.taken = self.told = 0
            self.open = True

    def end(self):
        """After it nothing is sent but by the main thread, and nobody else reads."""
        with self.writing:
            self.open = False
        for slot in list(self.pending.values()):
            try:
                slot.wake()
            except BaseException:
                pass  # a loop of the user's own kind
        while self.reader.get("thread", self.main) != self.main:
            sleep(0.001)
        self.reader.clear()

    def notes(self):
        """What the result must say besides."""
        if not self.refused:
            return []
        refused, self.refused = self.refused, 0
        return ["%d more call(s) of external tools were refused: one call of the session may make %d" % (refused, self.most["calls"])]

    # What any thread does

    def check(self, slot):
        if getpid() != self.pid:
            raise ToolError("tools can be called by the session's own process alone, not by a child of it: call them there, and hand over what they return", "ended")
        if not self.waits(slot):
            raise ToolError("the call that this belongs to has ended, and only while one runs can tools be called", "ended")

    def waits(self, slot):
        return self.open and slot.cell == self.cell

    def put(self, head, data=b""):
        """Send one frame. The lock is held."""
        self.told = self.taken
        head = '{"op":"%s","cell":%d,"id":%d,"taken":%d%s}\n' % (head[0], self.cell, head[1], self.taken, head[2] if len(head) > 2 else "")
        head = head.encode("ascii")
        room = PIECE - len(head)
        write(self.outlet, frames.frame(frames.EXTERNAL, head + bytes(data[:room])))
        return data[room:]

    def send(self, slot, server, tool, arguments):
        """Ask for a tool to be called, or, without a tool, for the list of them."""
        if len(server.encode("utf-8", "replace")) > NAME or len((tool or "").encode("utf-8", "replace")) > NAME:
            raise ToolError("no server or tool has so long a name", "unknown")
        rest = memoryview(arguments)
        said = ',"server":%s' % text.quote(server)
        if tool is not None:
            said += ',"tool":%s,"size":%d' % (text.quote(tool), len(rest))
        self.check(slot)
        with self.writing:
            self.check(slot)
            self.count(tool)
            self.last += 1
            slot.number = self.last
            self.pending[slot.number] = slot
            rest = self.put(("list" if tool is None else "call", slot.number, said), rest)
        while rest:  # others may write meanwhile
            with self.writing:
                self.check(slot)
                rest = self.put(("more", slot.number), rest)

    def count(self, tool):
        if tool is None:
            if self.lists >= self.most["lists"]:
                raise ToolError("this call has asked for lists of tools %d times, which is the most" % self.lists, "denied")
            self.lists += 1
        elif self.calls >= self.most["calls"]:
            self.refused += 1
            raise ToolError("this call has made its %d calls of external tools: no more are allowed" % self.calls, "denied")
        else:
            self.calls += 1

    def cancel(self, slot):
        """Nobody waits for it any longer."""
        if self.pending.pop(slot.number, None) is None or getpid() != self.pid:
            return
        with self.writing:
            if self.waits(slot):
                self.put(("cancel", slot.number))

    def answered(self, slot):
        if slot.answer is None:
            raise ToolError("the call that this belongs to has ended", "ended")
        return slot.answer

    # Waiting in a thread

    def ask(self, server, tool=None, arguments=b""):
        """The answer, as JSON."""
        slot = Slot(self.cell)
        try:
            self.send(slot, server, tool, arguments)
            self.wait(slot)
        except BaseException:
            self.cancel(slot)
            raise
        return self.answered(slot)

    def wait(self, slot):
        me = get_ident()
        nested = self.reader.get("thread") == me  # in a signal's handler
        try:
            while slot.answer is None and self.waits(slot):
                if self.reader.setdefault("thread", me) == me:
                    self.read_until(slot)
                else:
                    slot.event.acquire()
        finally:
            if not nested:
                self.pass_on(me)

    def read_until(self, slot):
        poller = select.poll()
        poller.register(self.inlet.fd, select.POLLIN)
        patience = None if get_ident() == self.main else PATIENCE
        while slot.answer is None and self.waits(slot):
            if poller.poll(patience):
                self.read()

    def pass_on(self, me):
        """Somebody else reads, if anybody waits."""
        if self.reader.get("thread") == me:
            self.reader.clear()
        if not self.reader:
            for other in list(self.pending.values()):
                if other.loop is None:
                    other.wake()
                    return

    def read(self):
        buffer = self.inlet.buffer
        before = len(buffer)
        list(map(buffer.__iadd__, map(read, (self.inlet.fd,), (frames.CHUNK,))))
        if len(buffer) == before:
            _exit(0)  # the supervisor is gone
        while len(buffer) >= frames.HEADER:
            size = frames.HEADER + int.from_bytes(buffer[1 : frames.HEADER], "big")
            if len(buffer) < size or buffer[0] not in (frames.ANSWER, frames.INTERRUPT):
                break
            if buffer[0] == frames.ANSWER:
                self.hand_out(bytes(buffer[frames.HEADER : size]))
            del buffer[:size]
        if self.taken - self.told > TOLD:
            with self.writing:
                if self.open:
                    self.put(("taken", 0))

    def hand_out(self, answer):
        head, _, body = answer.partition(b"\n")
        cell, number, total = map(int, head.split())
        if cell != self.cell:
            return  # one for the call before
        self.taken = max(self.taken, total)
        slot = self.pending.get(number)
        if slot is not None:
            slot.answer = body
            self.pending.pop(number, None)
            slot.wake()

    # Waiting in an event loop

    async def ask_async(self, server, tool=None, arguments=b""):
        """As ask, side by side with whatever else the loop does."""
        import asyncio

        loop = asyncio.get_running_loop()
        slot = Slot(self.cell, loop)
        self.check(slot)
        self.attend(loop)
        try:
            self.send(slot, server, tool, arguments)
            await slot.future
        except BaseException:
            self.cancel(slot)
            raise
        finally:
            self.leave(loop)
        return self.answered(slot)

    def attend(self, loop):
        entry = self.loops.setdefault(id(loop), [loop, 0])
        entry[1] += 1
        if entry[1] == 1:
            loop.add_reader(self.inlet.fd, self.readable)

    def leave(self, loop):
        entry = self.loops.get(id(loop))
        if entry is None:
            entry = [loop, 1]  # of a call before
        entry[1] -= 1
        if entry[1] == 0:
            self.loops.pop(id(loop), None)
            if not loop.is_closed():
                loop.remove_reader(self.inlet.fd)

    def readable(self):
        """The loop's: there is something to read, unless another thread does."""
        me = get_ident()
        if not self.open or getpid() != self.pid:
            return
        nested = self.reader.get("thread") == me
        try:
            if self.reader.setdefault("thread", me) == me:
                poller = select.poll()
                poller.register(self.inlet.fd, select.POLLIN)
                if poller.poll(0):
                    self.read()
        finally:
            if not nested:
                self.pass_on(me)
