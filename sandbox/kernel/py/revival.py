"""What a standby that takes over puts right: objects of libraries that stand for what no fork copies.

Threads, children, sockets and pipes are gone. Objects that stand for them must say so
at once, instead of waiting for ever, and those that can make new ones must know that
they have to.
"""

import sys
from posix import getpid

descriptors = load("descriptors")
processpools = load("processpools")

NAMED = 5  # of each kind, in a note


def revive(shared, forks):
    """Put things right; the notes for the reader."""
    descriptors.rejoin(shared.held)
    stale = shared.threads or shared.children or any(held.what != "file" for held in shared.held)
    outcome = Outcome()
    forks.replay()
    reseed()
    if stale:
        release_imports()
        after_multiprocessing()
        for thing, repair in things():
            try:
                repair(thing, outcome)
            except Exception:
                pass  # another version's insides
    return notes(shared, outcome)


class Outcome:
    """What the repairs came to."""

    def __init__(self):
        self.rebuilt = set()  # descriptors of event loops: nobody misses them
        self.pools = 0  # of processes or threads, which are gone


def things():
    """All objects there is a repair for, each with it."""
    repairs = {}  # id of a class: some classes can't be hashed
    for (module, name), repair in REPAIRS.items():
        left = [getattr(sys.modules.get(module), name, None)]
        while left:
            found = left.pop()
            if isinstance(found, type) and id(found) not in repairs:
                repairs[id(found)] = repair
                left.extend(type.__subclasses__(found))
    if not repairs:
        return []
    import gc

    return [(thing, repairs[id(type(thing))]) for thing in gc.get_objects() if id(type(thing)) in repairs]


def is_known_loop(loop):
    return any((base.__module__, base.__name__) == LOOP for base in type(loop).__mro__)


# The repairs. Each gets an object and the Outcome.


def end_popen(popen, _):
    if popen.returncode is None:
        popen.returncode = -9


def end_process(process, _):
    if process._popen is not None:
        process._parent_pid = getpid()
        if process._popen.returncode is None:
            process._popen.returncode = -9


def end_executor(executor, _):
    """Its threads are gone; it starts new ones when it has none."""
    import threading

    executor._threads.clear()
    executor._idle_semaphore = threading.Semaphore(0)
    executor._shutdown_lock = threading.Lock()


def rebuild_loop(loop, outcome):
    if loop.is_closed():
        return
    import selectors

    old, reader, writer = loop._selector, loop._ssock, loop._csock
    outcome.rebuilt.update(fd for fd in (old.fileno() if hasattr(old, "fileno") else -1, reader.fileno(), writer.fileno()) if fd >= 0)
    new = selectors.DefaultSelector()
    for key in list(old.get_map().values()):
        if key.fd == reader.fileno():
            continue
        try:
            # What it waits for is at its end now: whoever awaits it is told.
            new.register(key.fileobj, key.events, key.data)
        except (OSError, ValueError, KeyError):
            pass
    old.close()
    reader.close()
    writer.close()
    loop._selector = new
    loop._internal_fds -= 1
    loop._make_self_pipe()
    loop._default_executor = None
    if loop._signal_handlers:
        import signal

        signal.set_wakeup_fd(loop._csock.fileno())


LOOP = "asyncio.selector_events", "BaseSelectorEventLoop"
REPAIRS = {
    ("subprocess", "Popen"): end_popen,
    ("multiprocessing.process", "BaseProcess"): end_process,
    ("concurrent.futures.thread", "ThreadPoolExecutor"): end_executor,
    LOOP: rebuild_loop,
    **processpools.REPAIRS,
}


def release_imports():
    """A thread that is gone may have been in the middle of an import."""
    bootstrap = sys.modules.get("_frozen_importlib")
    for name in ("_module_locks", "_blocking_on"):
        try:
            getattr(bootstrap, name).clear()
        except Exception:
            pass


def after_multiprocessing():
    """Its queues start their threads anew, as in a forked child."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        try:
            util._run_after_forkers()
        except Exception:
            pass


# Random numbers


def watch_seeds(module):
    """Note whether user code seeds a library's global generator: then its state is the user's, and stays."""
    if module.__name__ == "random":
        keep_note(module, ("seed", "setstate"))
    else:
        keep_note(module, ("seed", "set_state"))


def keep_note(module, names):
    import functools

    for name in names:
        plain = getattr(module, name)

        def seed(*arguments, _plain=plain, **named):
            given = [value for value in (*arguments, *named.values()) if value is not None]
            result = _plain(*arguments, **named)
            (seeded.add if given else seeded.discard)(module.__name__)
            return result

        functools.update_wrapper(seed, plain)
        seed.__qualname__ = name
        setattr(module, name, seed)


seeded = set()


def reseed():
    """A call that is made again must not draw what the failed one drew, unless its author wants that."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None and name not in seeded:
            try:
                module.seed()
            except Exception:
                pass


# What to tell


def notes(shared, outcome):
    told = []
    if shared.threads:
        told.append("threads are not restored: " + few(shared.threads))
    if shared.children:
        told.append("%s ended: a checkpoint holds none" % count(len(shared.children), "child process", "child processes"))
    if outcome.pools:
        told.append("%s with them: what was under way in these has to be done again, and a multiprocessing.Pool has to be made anew"
                    % count(outcome.pools, "pool of workers ended", "pools of workers ended"))
    gone = [held for held in shared.held if held.what != "file" and held.fd not in outcome.rebuilt]
    for what, plural in (("socket", "sockets"), ("pipe", "pipes"), ("epoll", "epoll descriptors"), ("other", "descriptors of other kinds")):
        number = sum(held.what == what for held in gone)
        if number:
            told.append("not restored: %s, at the end now" % count(number, what if what != "other" else "descriptor of another kind", plural))
    failed = [held for held in shared.held if held.failed]
    if failed:
        told.append("not restored: " + few("%s (%s)" % (descriptors.name(held), held.failed) for held in failed))
    if any(descriptors.is_database(held) for held in shared.held):
        told.append("SQLite connections are not to be trusted now: connect anew")
    if shared.timers:
        told.append("timers (signal.setitimer, signal.alarm) are not restored")
    if shared.absent:
        told.append("not restored: %d KiB that were kept out of copies (madvise, MADV_DONTFORK); code that touches them ends the interpreter" % (shared.absent >> 10))
    if has_shared_memory():
        told.append("shared memory is as the failed call left it")
    return told


def count(number, one, many):
    return "%d %s" % (number, one if number == 1 else many)


def few(names):
    names = list(names)
    if len(names) > NAMED:
        names[NAMED:] = ["and %d more" % (len(names) - NAMED)]
    return ", ".join(names)


def wiped():
    """A note of memory that comes empty out of a fork (madvise, MADV_WIPEONFORK); "" if there is none.

    The kernel counts all pages to tell: 20 ms for a GiB. So it is asked once the
    interpreter runs again, and the call after that gets the note.
    """
    size, total = 0, 0
    try:
        file = open("/proc/self/smaps", "rb")
    except OSError:
        return ""
    with file:
        for line in file:
            if line.startswith(b"Size:"):
                size = int(line.split()[1])
            elif line.startswith(b"VmFlags:"):
                flags = line.split()
                # What may be dropped at any time is the C library's: it knows.
                total += size if b"wf" in flags and b"dp" not in flags else 0
    return "not restored: %d KiB that a copy has empty (madvise, MADV_WIPEONFORK)" % total if total else ""


def has_shared_memory():
    try:
        with open("/proc/self/maps", "rb") as file:
            for line in file:
                fields = line.split(None, 5)
                if fields[1][3:4] == b"s" and fields[1][1:2] == b"w" and len(fields) > 5:
                    if fields[5].startswith((b"/dev/zero", b"/dev/shm/", b"/memfd:", b"/SYSV")):
                        return True
    except OSError:
        pass
    return False
