"""The pickler and the unpickler of a snapshot: one for all names, so that what they share stays shared.

Plain pickle knows a function or a class by the module that holds it, and nothing
holds what the session's own code has defined. cloudpickle and dill take them
apart instead. The plain one is tried first: it needs no import, and most
sessions hold data alone.

Each value is a part: a marker, whose place in the memo tells how many objects
the parts before have remembered, and the value. So a part that fails, to be
written or to be read, can be taken out without harm to those that follow.
"""

import sys
from _io import BufferedRandom, BufferedReader, BufferedRWPair, BufferedWriter, BytesIO, FileIO, TextIOWrapper
from types import CodeType, FunctionType, ModuleType

import _pickle

PROTOCOL = 5
LIBRARIES = ("cloudpickle", "dill")  # in order of preference
NO_FILE = "<dynamic-code>"
FRAME, GET = 0x95, ord("h")  # opcodes; all else that names a place in the memo is a long GET


class ByValue(Exception):
    """A function or class that no module holds: plain pickle can't keep it."""


def homeless(value):
    """Whether no import would find a function or class."""
    return getattr(value, "__module__", None) in (None, "__main__") or "<locals>" in value.__qualname__


FILES = (FileIO, BufferedReader, BufferedWriter, BufferedRandom, BufferedRWPair, TextIOWrapper)


def refuse_files(value):
    """What reduces the streams of the interpreter, and no other file.

    cloudpickle would make a copy of a file's content of it, dill would open it anew.
    """
    if isinstance(value, FILES):
        for name in ("stdin", "stdout", "stderr"):
            if value is getattr(sys, name, None):
                return getattr, (sys, name)
        raise TypeError("an open file can't be saved")
    return NotImplemented


class Plain(_pickle.Pickler):
    """Refuses what it could only name and nothing would find again."""

    def reducer_override(self, value):
        kind = type(value)
        if issubclass(kind, ModuleType):
            return by_name(value)
        if (kind is FunctionType or issubclass(kind, type)) and homeless(value):
            raise ByValue
        return refuse_files(value)


def by_name(module):
    from importlib import import_module

    name = vars(module).get("__name__")
    if sys.modules.get(name) is not module:
        raise TypeError("a module that no import finds")
    return import_module, (name,)


class Globals:
    """Stands for the session's namespace: its functions must find it again, and not a copy."""


def cloud(library, out, namespace):
    """cloudpickle's pickler, but for what its functions of the session take along."""

    class Cloud(library.Pickler):
        def reducer_override(self, value):
            if type(value) is Globals:
                return vars, (sys.modules["__main__"],)
            if type(value) is CodeType and CodeType in self.dispatch_table:
                make, arguments = self.dispatch_table[CodeType](value)
                # Recent versions put a name of their own in the place of ours, by which
                # tracebacks and inspect find the source.
                return make, tuple(value.co_filename if item == NO_FILE else item for item in arguments)
            reduced = refuse_files(value)
            return super().reducer_override(value) if reduced is NotImplemented else reduced

        def _dynamic_function_reduce(self, function):
            reduced = super()._dynamic_function_reduce(function)
            if function.__globals__ is namespace:
                reduced[2][1]["__globals__"] = {}  # names in their own right, each kept or not
            return reduced

    pickler = Cloud(out, PROTOCOL)
    pickler.globals_ref[id(namespace)] = Globals()
    return pickler


class Pickler:
    """Writes parts. library is the name of an imported one, or None."""

    def __init__(self, library, out, namespace):
        self.out = out  # function of bytes
        self.start = 0  # of the latest part, in the memo
        if library == "cloudpickle":
            self.pickler = cloud(sys.modules[library], self, namespace)
        elif library == "dill":
            self.pickler = sys.modules[library].Pickler(self, PROTOCOL, recurse=False)
            self.pickler.reducer_override = refuse_files
        else:
            self.pickler = Plain(self, PROTOCOL)

    def write(self, data):
        """What the library's pickler calls; it has looked this method up once and for all."""
        self.out(data)

    def mark(self):
        """Begin a part."""
        marker = []
        self.pickler.dump(marker)
        found = []
        out, self.out = self.out, found.append
        try:
            self.pickler.dump(marker)  # again: now as a reference to its place
        finally:
            self.out = out
        body = b"".join(found)[2:]
        if body[0] == FRAME:
            body = body[9:]
        self.start = body[1] if body[0] == GET else int.from_bytes(body[1:5], "little")

    def put(self, value):
        self.mark()
        self.pickler.dump(value)

    def undo(self):
        """Forget what the latest part remembered; what it wrote is the caller's to take back."""
        memo = self.pickler.memo
        kept = {key: entry for key, entry in memo.copy().items() if entry[0] < self.start}
        self.pickler.memo = kept
        if hasattr(self.pickler, "_postproc"):
            self.pickler._postproc.clear()  # dill's: what waits for the end of a value


def primed(base):
    class Primed(base):
        """Reads, besides parts, what prime writes."""

        primer = ()

        def persistent_load(self, number):
            return self.primer[number]  # Pickler makes none of its own

    return Primed


def prime(memo):
    """A pickle that puts each value of primer, in order, at its place of memo: {place: value}.

    Assigning to the memo of the C library's Unpickler loses the values (Python 3.9 to 3.14).
    """
    data = bytearray(b"\x80\x04")
    for number, place in enumerate(memo):
        data += b"J" + number.to_bytes(4, "little") + b"Qr" + place.to_bytes(4, "little") + b"0"
    return bytes(data + b"N.")


class Unpickler:
    """Reads parts from source. total is how many objects all parts together remember."""

    def __init__(self, library, source, total):
        self.source = source
        self.spare = total  # the first place in the memo that no part uses
        self.options = {}
        if library == "dill":
            self.kind, self.options["ignore"] = primed(__import__(library).Unpickler), True
        else:
            self.kind = primed(_pickle.Unpickler)
        self.make()

    def make(self):
        self.unpickler = self.kind(self, **self.options)

    # What the library's unpickler calls; it has looked these methods up once and for all.

    def read(self, size):
        return self.source.read(size)

    def readinto(self, buffer):
        return self.source.readinto(buffer)

    def readline(self):
        return self.source.readline()

    def take(self):
        self.unpickler.load()
        return self.unpickler.load()

    def undo(self, start, end, data, find=None):
        """Leave out a part that could not be read: places start to end of the memo.

        Strings, functions and classes are taken out of its data, since many a later
        part refers to them. All else stays empty, and what refers to it fails in its
        turn. How many places are taken must be as it was for the writer all the same:
        later ones follow from that. find finds the functions and classes; None = as pickle
        does, which imports what it needs.
        """
        memo = {place: value for place, value in self.unpickler.memo.copy().items()
                if place < start or place >= self.spare}
        found = salvage(data, start, memo, find or self.unpickler.find_class)
        memo.update((place, value) for place, value in found.items() if place < end)
        while len(memo) < end:
            memo[self.spare + len(memo)] = None
        self.make()
        self.unpickler.primer = list(memo.values())
        source, self.source = self.source, BytesIO(prime(memo))
        try:
            self.unpickler.load()
        finally:
            self.source = source
            self.unpickler.primer = ()


def salvage(data, place, memo, find):
    """{place: value} of the strings, functions and classes in a part, without reading the part."""
    from pickletools import genops

    found, file = {}, BytesIO(data)
    top, names = None, []  # the value on the stack, if known; the strings just before
    try:
        for _ in range(2):  # the marker, the value
            for code, argument, _ in genops(file):
                name = code.name
                if name == "MEMOIZE":
                    if top is not None:
                        found[place] = top
                    place += 1
                elif name in ("PROTO", "FRAME"):
                    continue
                elif name == "STACK_GLOBAL":
                    top = located(names, find)
                    names = []
                else:
                    top = argument if name.endswith("BINUNICODE") else None
                    if name in ("BINGET", "LONG_BINGET"):
                        top = found.get(argument, memo.get(argument))
                    names = names[-1:] + [top] if type(top) is str else []
    except (ValueError, IndexError):
        pass  # cut short, or a dialect of a library's own: what was found is right all the same
    return found


def located(names, find):
    try:
        return find(*names)
    except Exception:
        return None
