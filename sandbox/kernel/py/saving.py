"""Saving a session's variables: which, in what order, and where a name that fails is taken out again.

A name may also never come to its end, or end the interpreter. So the server is told of
each before it is saved, and can have it left out by the interpreter that takes over.
"""

import sys
from types import ModuleType

frames = load("frames")
pickles = load("pickles")
settings = load("settings")
snapshot = load("snapshot")
text = load("text")
values = load("values")

PARTS = 10_000  # names; a session with more is not for hibernation
TABLE = 1 << 19  # characters of the table, which travels in a reply

OURS = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "_return",
        "__annotate__", "__annotate_func__", "__conditional_annotations__", "__warningregistry__")
# No library keeps these: not worth the second try of another one.
HOPELESS = ("generator", "coroutine", "async_generator", "TextIOWrapper", "BufferedReader", "BufferedWriter",
            "BufferedRandom", "FileIO", "lock", "RLock", "socket", "Thread", "frame", "traceback", "Connection", "Popen")


class Again(Exception):
    """Begin anew, with another library."""


class Outlet:
    """Where a snapshot is written to: buffered, bounded, and what was written last can be taken back."""

    def __init__(self, channel, limit):
        self.channel = channel
        self.limit = limit
        self.buffer = bytearray()
        self.sent = 0

    def size(self):
        return self.sent + len(self.buffer)

    def write(self, data):
        view = memoryview(data).cast("B")
        if self.size() + len(view) > self.limit:
            raise snapshot.Unfit("the variables take more than %d bytes when they are saved" % self.limit)
        while len(view) > snapshot.PIECE - len(self.buffer):
            room = snapshot.PIECE - len(self.buffer)
            self.buffer += view[:room]
            view = view[room:]
            self.flush()
        self.buffer += view

    def flush(self):
        if self.buffer:
            self.sent += len(self.buffer)
            piece = bytes(self.buffer)
            self.buffer.clear()
            self.channel.send(frames.DATA, piece)

    def rewind(self, size):
        if size >= self.sent:
            del self.buffer[size - self.sent:]
            return
        self.buffer.clear()
        self.sent = size
        self.channel.send(frames.REWIND, size.to_bytes(8, "big"))


def save(worker, limit, scratch, without):
    """(table as JSON, notes); the bytes go out by frames before.

    without: what is to be left out, as {"index": n, "name": text, "reason": text}."""
    library = None
    if any(by_value(value) for value in list(worker.namespace.values())):
        library = imported_library()
    channel = snapshot.Channel(worker)
    outlet = Outlet(channel, limit)
    try:
        return Saving(worker, outlet, library, bool(library), without).run(scratch)
    except Again:
        outlet.rewind(0)
        return Saving(worker, outlet, imported_library(), True, without).run(scratch)


def by_value(value):
    kind = type(value)
    if kind.__module__ == "__main__":
        return True
    return (kind.__name__ == "function" or issubclass(kind, type)) and pickles.homeless(value)


def imported_library():
    for name in pickles.LIBRARIES:
        try:
            __import__(name)
            return name
        except Exception:
            continue
    return None


class Saving:
    def __init__(self, worker, outlet, library, final, without):
        self.worker = worker
        self.outlet = outlet
        self.library = library
        self.final = final  # there is no other library to try
        self.pickler = pickles.Pickler(library, outlet.write, worker.namespace)
        self.parts = []
        self.modules = []
        self.reasons = snapshot.Reasons()
        # By place and name: neither alone is the same variable for sure.
        self.without = {(int(entry["index"]), str(entry["name"])): str(entry["reason"]) for entry in without}
        self.index = -1  # of the latest name

    def run(self, scratch):
        self.part("kernel", "sources", dict(self.worker.sources.texts))
        self.part("kernel", "random", settings.random_states())
        for name, value in list(self.worker.namespace.items()):
            if name not in OURS:
                self.name(name, value)
        self.pickler.mark()
        self.outlet.flush()
        table = encode({
            "python": list(sys.version_info[:2]), "library": self.library, "calls": self.worker.earlier + self.worker.calls,
            "settings": settings.current(self.worker), "total": self.pickler.start + 1,
            "parts": self.parts, "modules": self.modules, "also": self.submodules(),
        })
        if len(table) > TABLE:
            raise snapshot.Unfit("it has too many variables to be saved")
        return table, list(self.reasons.notes("not kept")) + settings.endings(self.worker, scratch)

    def name(self, name, value):
        self.index += 1
        if type(name) is not str or not name or len(name) > 1000 or not encodable(name):
            self.reasons.add(repr(name), TypeError("not a name"))
            return
        if len(self.parts) + len(self.modules) > PARTS:
            raise snapshot.Unfit("it has more than %d variables" % PARTS)
        if issubclass(type(value), ModuleType):
            found = vars(value).get("__name__")
            if type(found) is str and encodable(found) and sys.modules.get(found) is value:
                self.modules.append([name, found])
                return
        told = snapshot.told(name)
        reason = self.without.get((self.index, told.decode("utf-8", "replace")))
        if reason is not None:
            self.reasons.because(name, reason)
            return
        self.outlet.channel.send(frames.NAME, self.index.to_bytes(4, "big") + told)
        self.part("name", name, value)

    def part(self, owner, name, value):
        begin = self.outlet.size()
        try:
            self.pickler.put(value)
        except (snapshot.Unfit, MemoryError):
            raise
        except BaseException as error:
            if snapshot.stopped(self.worker, error):
                raise
            if not self.final and values.name(type(value)) not in HOPELESS:
                if imported_library():
                    raise Again from None
                self.final = True
            self.pickler.undo()
            self.outlet.rewind(begin)
            self.reasons.add(name, error)
            return
        self.parts.append([owner, name, self.pickler.start, self.outlet.size() - begin])

    def submodules(self):
        """Modules that the code named with dots: `import a.b` leaves the name a alone."""
        import re

        roots = {found.partition(".")[0] for _, found in self.modules}
        named = set()
        for source in self.worker.sources.texts.values():
            named.update(re.findall(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+", source))
        found = []
        for name in sorted(named):
            while "." in name:  # a.b.function names the module a.b
                if name.partition(".")[0] in roots and name in sys.modules and name not in found:
                    found.append(name)
                name = name.rpartition(".")[0]
        return found[:1000]


def encodable(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode(value):
    if isinstance(value, dict):
        return "{" + ",".join(text.quote(key) + ":" + encode(item) for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return text.plain(value)
