"""Restoring a session's variables, name by name, so that one that can't be loaded costs no other.

A name may also never come to its end, or end the interpreter. So the server is told of
each before it is loaded, and can have it left out by another interpreter.
"""

import sys

frames = load("frames")
pickles = load("pickles")
requests = load("requests")
settings = load("settings")
snapshot = load("snapshot")

BATCH = 16  # frames that one PULL asks for
SALVAGED = 16 << 20  # bytes of a part that are kept until it has been read


class Ended(Exception):
    """There will be no more bytes."""


class Inlet:
    """Where a snapshot is read from: one part at a time, by pieces that the server is asked for."""

    def __init__(self, channel, inlet):
        self.channel = channel
        self.inlet = inlet
        self.piece = memoryview(b"")
        self.due = 0  # frames that were asked for and have not come
        self.left = 0  # bytes of the part
        self.seen = None  # what was read of it; None where that is too much

    def begin(self, length):
        self.left = length
        self.seen = [] if length <= SALVAGED else None

    def more(self):
        if self.due <= BATCH // 2:
            self.due += BATCH
            self.channel.send(frames.PULL)
        self.due -= 1
        taken = self.inlet.take()
        while taken is None or taken[0] != frames.DATA:
            if taken is None and not self.inlet.fill():
                raise Ended("the server has gone")
            taken = self.inlet.take()
        self.piece = memoryview(taken)[frames.HEADER:]
        if not self.piece:
            raise Ended("the saved bytes end early")

    def some(self, size):
        """At least one byte, at most size."""
        if not self.piece:
            self.more()
        found, self.piece = self.piece[:size], self.piece[size:]
        self.left -= len(found)
        if self.seen is not None:
            self.seen.append(found)
        return found

    def read(self, size=-1):
        size = self.left if size < 0 else min(size, self.left)
        found = []
        while size > 0:
            found.append(self.some(size))
            size -= len(found[-1])
        return b"".join(found)

    def readinto(self, buffer):
        view = memoryview(buffer).cast("B")
        size = min(len(view), self.left)
        done = 0
        while done < size:
            found = self.some(size - done)
            view[done:done + len(found)] = found
            done += len(found)
        return size

    def readline(self):
        found = []
        while self.left and found[-1:] != [b"\n"]:
            found.append(bytes(self.some(1)))
        return b"".join(found)

    def rest(self):
        """Pass over what is left of the part; all of it, or nothing where it was too much."""
        while self.left > 0:
            self.some(min(self.left, snapshot.PIECE))
        return b"".join(self.seen or ())


class Restoring:
    """One for each request. without: what is to be left out, as {"index": n, "reason": text}."""

    def __init__(self, worker, table, without):
        self.worker = worker
        self.table = table
        self.channel = snapshot.Channel(worker)
        self.without = {int(entry["index"]): str(entry["reason"]) for entry in without}
        self.index = -1  # of the latest name
        self.names = 0
        self.reasons = snapshot.Reasons()

    def run(self):
        """(how many names are back, how many there were, notes)."""
        worker, table = self.worker, self.table
        notes = differing(table)
        worker.earlier = int(table["calls"])
        notes += settings.apply(worker, table["settings"])
        builtins = worker.namespace["__builtins__"]
        try:
            requests.desk(worker).offer()  # a variable may hold it, or a tool: the next call says whether there are any
        except Exception:
            pass  # no descriptors, no memory: such a variable says what it misses
        self.modules()
        self.parts()
        worker.namespace["__builtins__"] = builtins  # cloudpickle puts its own there
        lost = sum(len(found) for found in self.reasons.names.values())
        return self.names - lost, self.names, notes + list(self.reasons.notes("not restored"))

    def begun(self, name, reasons):
        """Say that a name is to be loaded; False if it is to be left out."""
        self.index += 1
        reason = self.without.get(self.index)
        if reason is not None:
            reasons.because(name, reason)
            return False
        self.channel.send(frames.NAME, self.index.to_bytes(4, "big") + snapshot.told(name))
        return True

    def modules(self):
        unbound = snapshot.Reasons()
        for name, module in self.table["modules"]:
            self.names += 1
            self.module(name, module, self.reasons, name)
        for module in self.table["also"]:
            self.module(module, module, unbound)

    def module(self, name, module, reasons, bound=None):
        if not self.begun(name, reasons):
            return
        try:
            __import__(module)
            if bound is not None:
                self.worker.namespace[bound] = sys.modules[module]
        except BaseException as error:
            if snapshot.stopped(self.worker, error):
                raise
            reasons.add(name, error)

    def parts(self):
        table = self.table
        inlet = Inlet(self.channel, self.worker.inlet)
        unpickler = opened(table, inlet)
        ends = [part[2] for part in table["parts"][1:]] + [table["total"] - 1]
        for (owner, name, start, length), end in zip(table["parts"], ends):
            inlet.begin(length)
            if owner == "name":
                self.names += 1
                if not self.begun(name, self.reasons):
                    unpickler.undo(start, end, inlet.rest(), loaded)
                    continue
            try:
                value = unpickler.take()
                if inlet.left:
                    raise ValueError("%d bytes too many" % inlet.left)
            except Ended:
                raise
            except BaseException as error:
                if snapshot.stopped(self.worker, error):
                    raise
                unpickler.undo(start, end, inlet.rest())
                if owner == "name":
                    self.reasons.add(name, error)
                continue
            if owner == "name":
                self.worker.namespace[name] = value
            elif name == "sources":
                self.worker.sources.adopt(value)
            elif name == "random":
                settings.set_random_states(value)


def differing(table):
    """Notes of another version of Python, or Unfit."""
    python = tuple(table["python"])
    if python == sys.version_info[:2]:
        return []
    versions = python + sys.version_info[:2]
    if table["library"]:
        raise snapshot.Unfit("it was saved by Python %d.%d with functions or classes in it, and Python %d.%d can't take those" % versions)
    return ["the variables were saved by Python %d.%d and restored by Python %d.%d" % versions]


def opened(table, inlet):
    try:
        return pickles.Unpickler(table["library"], inlet, table["total"])
    except ImportError:
        return pickles.Unpickler(None, inlet, table["total"])  # each part says what it misses


def loaded(module, name):
    """What a part that is left out may name for others: nothing is imported for it."""
    found = sys.modules[module]
    for attribute in name.split("."):
        found = getattr(found, attribute)
    return found
