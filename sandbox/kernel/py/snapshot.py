"""A session's variables as bytes, name by name, and back: what hibernation keeps.

Both ways run code of the session's own (__reduce__, __setstate__), so they run
under the guard, like a call. The server stores the bytes and never reads them.
"""

import sys
from posix import getpid
from time import perf_counter

frames = load("frames")
pickles = load("pickles")
text = load("text")
values = load("values")

PIECE = (1 << 16) - frames.HEADER  # bytes of a frame of data
NAMED = 25  # names that a note lists
REASONS = 20  # notes
TOLD = 400  # bytes of a name that the server is told

BY_VALUE = (
    "they are, or hold, functions or classes that the code itself defined; these are kept too where cloudpickle "
    "is installed beside the server's Python (%s -m pip install cloudpickle)"
)


class Unfit(Exception):
    """It can't be done; the reason as a sentence."""


def transfer(worker, request):
    """Save or restore, as requested; the fields of the reply. Its output says how to
    read what was saved, or counts what was restored."""
    worker.home.site()
    sys.modules["__main__"] = worker.main
    state = worker.interrupts
    state.count, state.missed = 0, False
    state.install()
    start = perf_counter()
    output, error = state.guard(checked, worker, request)
    if getpid() != worker.pid:
        worker.fell_through(error)
    fields = {"output": output or "null", "return_value": "null"}
    fields.update(worker.verdict.of(error))
    if type(error) is Unfit:
        fields["error"] = str(error)  # a sentence, for which no traceback is wanted
    worker.settle()
    fields["interrupted"] = state.count > 0
    fields["duration_s"] = perf_counter() - start
    return fields


def checked(worker, request):
    if worker.was_interrupted():
        worker.interrupts.count += 1
        raise KeyboardInterrupt
    if request["op"] == "save":
        table, notes = load("saving").save(worker, int(request["limit"]), request.get("scratch") or (), request.get("without") or ())
        worker.notes += notes
        return table
    back, names, notes = load("restoring").Restoring(worker, request["table"], request.get("without") or ()).run()
    worker.notes += notes
    return '{"back":%d,"names":%d}' % (back, names)


def stopped(worker, error):
    """Whether it is our interrupt that ends a save or a restore, and no fault of the value's.

    Values raise what they like, KeyboardInterrupt and CancelledError too, and a panic in
    a library written in Rust is none of Exception's: such a value fails alone.
    """
    return worker.interrupts.count > 0 and not issubclass(type(error), (Exception, SystemExit, GeneratorExit))


def told(name):
    return name.encode("utf-8", "replace")[:TOLD]


class Channel:
    """Frames that no interrupt cuts in two."""

    def __init__(self, worker):
        self.worker = worker
        self.state = worker.interrupts

    def send(self, kind, payload=b""):
        self.state.armed = False
        self.worker.send(frames.frame(kind, payload))
        self.state.armed = True
        if self.state.missed:
            self.state.missed = False
            self.state.count += 1
            raise KeyboardInterrupt


class Reasons:
    """Why names were left out, told by reason."""

    def __init__(self):
        self.names = {}  # reason: names

    def add(self, name, error):
        if type(error) is pickles.ByValue:
            reason = BY_VALUE % sys.executable
        else:
            reason = text.bounded("%s: %s" % (values.name(type(error)), error), 300).replace("\n", " ")
        self.because(name, reason)

    def because(self, name, reason):
        self.names.setdefault(reason, []).append(text.bounded(name, 100))

    def notes(self, what):
        for reason, names in list(self.names.items())[:REASONS]:
            more = " and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
            yield "%s: %s%s (%s)" % (what, ", ".join(names[:NAMED]), more, reason)
        if len(self.names) > REASONS:
            rest = [name for names in list(self.names.values())[REASONS:] for name in names]
            yield "%s: %s (for various reasons)" % (what, text.bounded(", ".join(rest), 2000))
