"""Checkpoints: a copy of the worker, made by fork between the calls, parked until the worker is dead.

The copy shares all memory until one of the two writes it. The worker runs on, with its
threads and children; the copy, the standby, gives up whatever it shares with the worker
but memory, and waits for a byte of the supervisor's. Then it is the worker.

Two forks, so that the standby is no child of the worker: user code that waits for any
child of its own must not wait for ours. The supervisor adopts it.
"""

import select
import sys
from posix import (
    O_RDONLY, O_WRONLY, WEXITED, WNOHANG, WNOWAIT, P_ALL, _exit, close, getpid, getppid, kill, listdir, open,
    pipe, read, sysconf, waitid, waitpid, write,
)

import _signal
from _signal import SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK, SIGCHLD, SIGKILL, getsignal, pthread_sigmask, sigpending, sigtimedwait
from _thread import _count as others

descriptors = load("descriptors")
frames = load("frames")
libc = load("libc")
pools = load("pools")
rehearsal = load("rehearsal")
text = load("text")

PATIENCE = 2000  # ms that a standby may take to park
TAKEN_OVER = -1
PAGE = sysconf("SC_PAGE_SIZE")
QUIET = 10  # ms without a request before a checkpoint, if only idle time may be spent on it
EVERY = frozenset(_signal.valid_signals())


class Checkpoints:
    """The worker's side of them; one for each worker, used by its main thread alone."""

    def __init__(self, worker, mode, parking):
        self.worker = worker
        self.always = mode == "always"
        self.parking = parking  # where the supervisor's byte comes
        self.supervisor = getppid()
        self.pools = pools.Pools()
        self.room = Room()
        self.due = worker.calls > 0  # something ran since the last one
        self.failed = False  # to take one since then
        self.pause = 0 if self.always else QUIET

    def ran(self):
        self.due, self.failed = True, False

    def at_rest(self, poller):
        """Take one if it is due and no request is waiting; as take."""
        return self.due and not self.failed and not poller.poll(self.pause) and self.take(True)

    def before_call(self):
        """Take one first if it is due; as take. Threads go on between the calls, and change what was saved."""
        return self.always and self.worker.calls > 0 and (self.due or others() > 0) and self.take(False)

    def take(self, rehearse):
        """Fork a standby. True in a standby, once it has taken over; else False."""
        pid = 0
        try:
            if self.room.enough():
                pid = self.fork(rehearse)
        except BaseException:
            if getpid() != self.worker.pid:
                _exit(1)
            # No descriptors or tasks are left, mostly: an earlier standby has to do.
        if pid == TAKEN_OVER:
            return True
        self.failed = pid == 0
        if pid:
            self.due = False
            fields = {"pid": pid, "call": self.worker.calls}
            self.worker.send(frames.frame(frames.CHECKPOINT, text.compose(fields).encode()))
        return False

    def fork(self, rehearse):
        """The pid of a standby, parked; in it, once it has taken over, TAKEN_OVER; 0 if there is none."""
        self.pools.end()
        shared = Shared(self.worker, self.parking)
        here, there = pipe()
        mask = pthread_sigmask(SIG_BLOCK, EVERY)
        children = Children()
        middle = -1
        try:
            shared.mapped = mapped()
            middle = self.worker.forks.fork()
            if middle == 0:
                shared.absent = max(0, shared.mapped - mapped())
                return self.standby(shared, mask, children, here, there)
            pthread_sigmask(SIG_SETMASK, mask)
            close(there)
            there = -1
            if rehearse:
                rehearsal.rehearse(self.worker)  # while the other two are at work
            return self.parked(here, middle)
        finally:
            if middle != 0:
                children.forget(middle)
                pthread_sigmask(SIG_SETMASK, mask)
                close(here)
                if there >= 0:
                    close(there)

    def parked(self, here, middle):
        """The standby's pid, once it shares nothing with us any longer; 0 if there is none."""
        poller = select.poll()
        poller.register(here, select.POLLIN)
        told = b""
        while poller.poll(PATIENCE):
            data = read(here, 100)
            if not data:
                return int(told[:-1]) if told.endswith(b"\n") else 0
            told += data
        try:
            kill(middle, SIGKILL)
            if told.endswith(b"\n"):
                kill(int(told[:-1]), SIGKILL)
        except OSError:
            pass
        return 0

    def standby(self, shared, mask, children, here, there):
        """In the child: fork once more, park, and come back as the worker."""
        try:
            close(here)
            if self.worker.forks.fork():
                _exit(0)
            shared.part()
            write(there, b"%d\n" % getpid())
            close(there)
            if not read(self.parking, 1):
                _exit(0)  # the supervisor is gone
            self.take_over(shared, mask, children)
            return TAKEN_OVER
        except BaseException:
            _exit(1)  # also where user code replaced what we need: then there is no standby

    def take_over(self, shared, mask, children):
        libc.prctl(libc.PR_SET_PDEATHSIG, SIGKILL)
        if getppid() != self.supervisor:
            _exit(0)
        worker = self.worker
        shared.rejoin_channel()
        while sigtimedwait(EVERY, 0):
            pass  # what was sent to the parked one was meant for nobody
        pthread_sigmask(SIG_SETMASK, mask)
        children.undo()
        self.due, self.failed = True, False
        worker.revive(shared)


class Room:
    """Whether a copy fits into the session's memory, also once the worker has written much of its own.

    Freeing what is shared writes it, too. A worker that held nearly all it may, and let go
    of it, would be killed for what the copy then has alone: the standby is given up when
    memory gets short, but that takes its time. So beyond a share of the limit none is made,
    and an older one has to do.
    """

    SHARE = 5 / 8

    def __init__(self):
        self.most = float("inf")
        try:
            for line in content("/proc/self/limits").splitlines():
                if line.startswith(b"Max data size"):
                    self.most = int(line.split()[3]) * self.SHARE
        except (OSError, ValueError):
            pass  # unlimited, or not told

    def enough(self):
        try:
            _, resident, of_files = content("/proc/self/statm").split()[:3]
        except (OSError, ValueError):
            return True
        return (int(resident) - int(of_files)) * PAGE <= self.most


def mapped():
    """Bytes of address space; 0 if that is not told."""
    try:
        return int(content("/proc/self/statm").split()[0]) * PAGE
    except (OSError, ValueError):
        return 0


def content(path):
    fd = open(path, O_RDONLY | descriptors.O_CLOEXEC)
    try:
        return read(fd, 65536)
    finally:
        close(fd)


class Children:
    """Keeps the end of the middle process from user code that listens for its children's."""

    def __init__(self):
        self.pending = SIGCHLD in sigpending()
        self.before = self.ended()
        self.handler = getsignal(SIGCHLD)
        if self.handler in (SIG_DFL, SIG_IGN):
            self.handler = None
        if self.handler is not None:
            _signal.signal(SIGCHLD, SIG_DFL)  # a thread that blocks nothing would take it
        self.subreaper = libc.subreaper()
        if self.subreaper:
            libc.subreaper(0)

    def forget(self, middle):
        try:
            if middle > 0:
                waitpid(middle, 0)
        except OSError:
            pass  # user code ignores SIGCHLD
        self.undo()
        if self.pending:
            return
        # Pending for the middle one; if one of user code's own has ended since, it is raised again.
        blocked = pthread_sigmask(SIG_BLOCK, (SIGCHLD,))
        sigtimedwait((SIGCHLD,), 0)
        if self.ended() and not self.before:
            kill(getpid(), SIGCHLD)
        pthread_sigmask(SIG_SETMASK, blocked)

    @staticmethod
    def ended():
        """Whether a child of user code has ended and was not waited for."""
        try:
            return waitid(P_ALL, 0, WEXITED | WNOHANG | WNOWAIT) is not None
        except OSError:
            return False  # no children

    def undo(self):
        if self.subreaper:
            libc.subreaper(1)
        if self.handler is not None:
            _signal.signal(SIGCHLD, self.handler)


class Shared:
    """What worker and standby have in common besides memory, as it was at the fork."""

    def __init__(self, worker, parking):
        self.inlet, self.outlet = worker.inlet.fd, worker.outlet
        ours = {0, 1, 2, self.inlet, self.outlet, parking, *worker.streams.copies}
        self.held = descriptors.survey(ours, worker.streams.known[1:])
        self.threads = names_of_threads()
        self.children = children()
        self.mapped = 0  # bytes
        self.absent = 0  # bytes of it that no fork copies: madvise(MADV_DONTFORK)
        self.timers = [n for n in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF) if _signal.getitimer(n)[0]]

    def part(self):
        descriptors.part(self.held)
        for fd in (self.inlet, self.outlet):
            descriptors.handle(fd, fd)

    def rejoin_channel(self):
        descriptors.reopen(self.inlet, O_RDONLY)
        descriptors.reopen(self.outlet, O_WRONLY)


def names_of_threads():
    count = others()
    if not count:
        return []
    threading = sys.modules.get("threading")
    found = []
    if threading is not None:
        main = threading.main_thread()
        found = [str(thread.name)[:100] for thread in list(threading._active.values()) if thread is not main]
    return found + ["one that has no name"] * (count - len(found))


def children():
    """The pids of the worker's children; none where the kernel doesn't tell."""
    found = []
    try:
        threads = listdir("/proc/self/task")
    except OSError:
        threads = [str(getpid())]
    for thread in threads:
        try:
            fd = open("/proc/self/task/" + thread + "/children", O_RDONLY | descriptors.O_CLOEXEC)
        except OSError:
            continue
        try:
            found += [int(pid) for pid in read(fd, 65536).split()]
        finally:
            close(fd)
    return found
