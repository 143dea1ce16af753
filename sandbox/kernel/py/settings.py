"""What belongs to a session besides its names: where it is, its environment, its path, its random numbers."""

import sys
from posix import chdir, getcwd, getpid, listdir

processes = load("processes")
text = load("text")
values = load("values")

SHOWN = 5  # names in a note


def current(worker):
    """What is not as it was at the start, as plain data."""
    found = {"cwd": "", "environ": {}, "front": [], "back": []}
    try:
        cwd = getcwd()
        if cwd != worker.home.workdir and plain(cwd):
            found["cwd"] = cwd
    except OSError:
        pass
    before = {decoded(key): decoded(value) for key, value in worker.environ.items()}
    try:
        now = dict(sys.modules["os"].environ)
    except Exception:
        now = before
    for key, value in now.items():
        if before.get(key) != value and plain(key) and plain(value):
            found["environ"][key] = value
    for key in before:
        if key not in now and plain(key):
            found["environ"][key] = None
    where = "front"
    for entry in list(sys.path):
        if entry in worker.home.path:
            where = "back"
        elif plain(entry):
            found[where].append(entry)
    return found


def decoded(data):
    return data.decode("utf-8", "surrogateescape")


def plain(value):
    try:
        return type(value) is str and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def apply(worker, found):
    """Bring it back; notes of what can't be."""
    notes = []
    if found["environ"]:
        import os

        for key, value in found["environ"].items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
    sys.path[:0] = [entry for entry in found["front"] if entry not in sys.path]
    sys.path.extend(entry for entry in found["back"] if entry not in sys.path)
    if found["cwd"]:
        try:
            chdir(found["cwd"])
        except OSError:
            notes.append("the working directory %s is gone: it is %s now" % (text.bounded(found["cwd"], 200), worker.home.workdir or getcwd()))
    return notes


def random_states():
    """Of the generators that user code has seeded: random.seed(1) holds beyond a hibernation, the others draw anew."""
    found = {}
    for name in load("revival").seeded:
        try:
            module = sys.modules[name]
            found[name] = (module.getstate if name == "random" else module.get_state)()
        except Exception:
            pass
    return found


def set_random_states(found):
    for name, state in found.items():
        try:
            module = sys.modules.get(name) or __import__(name, fromlist=["x"])
            (module.setstate if name == "random" else module.set_state)(state)
        except Exception:
            pass  # another version's: it starts afresh


def endings(worker, scratch):
    """Notes of what ends with the interpreter, though no name may tell of it."""
    ended = []
    threads = len(sys._current_frames()) - 1
    if threads > 0:
        ended.append(counted(threads, "thread"))
    tasks = pending(worker.loop)
    if tasks > 0:
        ended.append(counted(tasks, "unfinished asyncio task"))
    children = len(processes.descendants(processes.table() or {}, getpid()))
    if children > 0:
        ended.append(counted(children, "child process", "child processes"))
    notes = ["not kept: " + ", ".join(ended)] if ended else []
    for folder in scratch:
        try:
            names = sorted(name for name in listdir(folder) if not name.startswith("."))
        except OSError:
            continue
        if names:
            more = " and %d more" % (len(names) - SHOWN) if len(names) > SHOWN else ""
            notes.append("not kept: what lay in %s: %s%s" % (folder, ", ".join(text.bounded(name, 100) for name in names[:SHOWN]), more))
    return notes


def counted(number, one, many=None):
    return "%d %s" % (number, one if number == 1 else many or one + "s")


def pending(held):
    """Tasks that wait in the session's event loop."""
    loop = getattr(held, "loop", None)
    if loop is None or loop.is_closed():
        return 0
    try:
        return len(sys.modules["asyncio"].all_tasks(loop))
    except Exception:
        return 0
