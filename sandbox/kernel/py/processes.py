"""The processes that user code started: finding them, and ending them.

Two ways. As PID 1 of a PID namespace, all processes are ours. Without one, only
descendants are: on Linux orphans come back to the supervisor (a subreaper), so
the chain of parents is complete. In both, if the supervisor is enclosed in a domain
that its signals don't leave, number -1 is all of ours and nobody else.
"""

import time
from posix import getpid, kill, listdir, stat, sysconf

from _signal import SIGCONT, SIGKILL, SIGSTOP

enclosed = False  # set by the supervisor
PASSES = 20  # of a sweep: a fork bomb can outrun one
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # what /proc counts from
TICKS = sysconf("SC_CLK_TCK")


def at_once():
    """Whether a signal to number -1 goes to all that is ours, and to nobody else."""
    return enclosed or getpid() == 1


def now():
    return time.clock_gettime(CLOCK)


def visible():
    """Whether there is a /proc."""
    try:
        stat("/proc/self/stat")
    except OSError:
        return False
    return True


def table():
    """{pid: (parent, start in ticks)} of the living, or None where there is no /proc."""
    try:
        names = listdir("/proc")
    except OSError:
        return None
    found = {}
    for name in names:
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    # The name may hold spaces and brackets: count from the last one.
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1]), int(fields[19])
            except (OSError, IndexError, ValueError):
                pass  # gone
    return found or None


def descendants(parents, root):
    """The pids below root in {pid: (parent, ...)}."""
    children = {}
    for pid, (parent, _) in parents.items():
        children.setdefault(parent, []).append(pid)
    found, left = set(), [root]
    while left:
        for pid in children.get(left.pop(), ()):
            if pid not in found:
                found.add(pid)
                left.append(pid)
    return found


def others(spare, since):
    """{(pid, start)} of user processes that are not in spare and started at or after since (seconds)."""
    me = getpid()
    processes = table()
    if processes is None:
        return set()
    ours = set(processes) if me == 1 else descendants(processes, me)
    # The kernel counts starts in ticks (10 ms), rounded down: do the same, or
    # what began within the first tick of a call would escape.
    first = int(since * TICKS)
    return {
        (pid, processes[pid][1])
        for pid in ours
        if pid != me and pid not in spare and processes[pid][1] >= first
    }


def sweep(spare, since, reap):
    """SIGKILL those others until none is left, in at most PASSES passes; the number killed.

    They are stopped first: what is stopped neither forks, nor is in our way, nor makes
    room for the forks of the rest, as the dead do where there is a limit of tasks.
    """
    seen = set()
    all_stopped = at_once()
    if all_stopped:
        broadcast(SIGSTOP)
    for turn in range(PASSES):
        found = others(spare, since)
        if not found:
            break
        known = all_stopped or found <= seen or turn == PASSES - 1
        strike(found, SIGKILL if known else SIGSTOP)
        seen |= found
        if known:
            time.sleep(0.001 * turn)
            reap()
    if all_stopped:
        broadcast(SIGCONT)
    return len(seen)


def broadcast(number):
    """To all at once, so that nothing can fork past it. The parked one never sees that it was stopped."""
    try:
        kill(-1, number)
    except OSError:
        pass


def strike(found, number):
    for pid, _ in sorted(found):  # parents first, mostly: a shell says when its child is killed
        try:
            kill(pid, number)
        except OSError:
            pass


def all_but(spared, reap):
    """SIGKILL all that user code started but spared.pid, until none is left.

    False if that one is dead too, or others appear faster than they can be found: only
    kill(-1) is sure to end those, and it spares nobody.
    """
    seen, turns, pause = set(), 0, 0.0
    while True:
        if at_once():
            broadcast(SIGSTOP)
        found = others((spared.pid,), 0)
        strike(found, SIGKILL if at_once() or found <= seen else SIGSTOP)  # as in sweep
        reap()
        if not spared.pid:
            return False
        if not found:
            return True
        turns = turns + 1 if found - seen else 0
        seen |= found
        if turns > PASSES:
            return False
        time.sleep(pause)
        pause = min(pause + 0.0005, 0.02)


def everything(group):
    """SIGKILL all that user code started, once; group is that of a worker without /proc (else 0)."""
    if at_once():
        targets = [-1]  # at once and atomic: nothing can fork past it
    elif group:
        targets = [-group]
    else:
        targets = descendants(table() or {}, getpid())
    for pid in targets:
        try:
            kill(pid, SIGKILL)
        except OSError:
            pass
