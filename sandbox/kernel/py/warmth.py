"""What a worker does ahead of its first call, where the server keeps interpreters ready.

A first call waits for none of it then. Nothing of it can be seen by user code but by what
no longer takes time: imported modules are in sys.modules and nowhere else.
"""

import sys
from posix import chdir
from time import perf_counter

frames = load("frames")
libc = load("libc")
rehearsal = load("rehearsal")
text = load("text")
values = load("values")

TOLD = 400  # bytes of a name that the server is told


def fault(worker, request):
    """What is wrong with a request to warm up; "" if nothing is."""
    if worker.calls:
        return "code has run: it is too late to warm up"
    names = request.get("modules")
    fit = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return "" if fit else "modules is not a list of names"


def answer(worker, request):
    """Do it; the fields of the reply, in JSON."""
    start = perf_counter()
    said = warm(worker, request["modules"])
    return {
        "status": "error" if said else "ok", "output": "null", "return_value": "null", "error": said,
        "exit_code": 1 if said else 0, "oom": False, "interrupted": False, "duration_s": perf_counter() - start,
    }


def warm(worker, wanted):
    """Import the modules wanted, by name; what is wrong with the first that fails, "" if none is."""
    while worker.chores:
        worker.chores.pop()()
    said = elsewhere(worker, wanted) if wanted else ""
    worker.settle()
    rehearsal.rehearse(worker)
    hand_back()
    return said


def elsewhere(worker, wanted):
    """Import them from anywhere but the workspace. It may be one that others write to, and
    what they put there is for code that asks for it."""
    workdir = worker.home.workdir
    shown = bool(workdir) and sys.path[-1:] == [workdir]
    if shown:
        sys.path.pop()
    chdir("/")
    try:
        for number, name in enumerate(wanted):
            worker.send(frames.frame(frames.NAME, number.to_bytes(4, "big") + name.encode()[:TOLD]))
            _, error = worker.interrupts.guard(__import__, name)
            if error is not None:
                return name + ": " + reason(worker, error)
        return ""
    finally:
        if shown and workdir not in sys.path:
            sys.path.append(workdir)
        if workdir:
            worker.home.enter()


def reason(worker, error):
    """An exception in a line."""
    if issubclass(type(error), SystemExit):
        return "it is a program, and ends the interpreter that imports it (SystemExit)"
    said = worker.interrupts.guard(str, error)[0]
    said = text.bounded(said, 500) if type(said) is str else ""
    return values.name(type(error)) + (": " + " ".join(said.split()) if said else "")


def hand_back():
    """Give up memory that importing took, and what the first collection would write to.

    A page that a fork shares is copied once it is written to, and the collector writes to
    every object that it looks at. It leaves frozen ones alone.
    """
    import gc

    gc.collect()
    gc.freeze()
    libc.trim()
