"""The supervisor's side of checkpoints: which process is parked, and how it is let go.

The worker's word is taken for nothing but which of the supervisor's children it is, and
after which call it was made. A worker that lies about that fools its own session.
"""

import posix  # not all of it is there on macOS, where there are no checkpoints
import select
from posix import O_WRONLY, close, kill, open, pipe, read, write

from _signal import SIGCONT, SIGKILL


class Standby:
    """At most one process, of the worker that runs now."""

    def __init__(self, mode):
        self.mode = mode  # always, idle, off
        self.pid = 0
        self.call = 0
        self.parking = -1  # read end: every standby waits at it, and no two are alive when a byte comes
        self.rouser = -1
        self.requests = -1  # read end of the worker's channel, to empty it
        self.held = -1  # write end, until the one that takes over has opened its own

    def open(self):
        if self.mode != "off":
            self.parking, self.rouser = pipe()

    def off(self):
        return self.rouser < 0

    def in_worker(self):
        """Close what the worker must not have; what it is told."""
        for fd in (self.rouser, self.held, self.requests):
            if fd >= 0:
                close(fd)
        return self.mode, self.parking

    def adopt(self, pid, call, worker):
        """Whether pid is parked from now on, and was not before. The one before it ends."""
        if self.off() or type(pid) is not int or type(call) is not int or not 0 < pid < 1 << 31 or pid == worker or not 0 <= call < 1 << 53:
            return False
        try:
            if posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT) is not None:
                return False  # dead already
        except OSError:
            return False  # none of our children
        if pid == self.pid:
            return False  # a copy of one moment can't become that of another
        self.discard()
        self.pid, self.call = pid, call
        return True

    def discard(self):
        """End it, if there is one; whether there was."""
        pid, self.pid = self.pid, 0
        if not pid:
            return False
        try:
            kill(pid, SIGKILL)
        except OSError:
            pass
        return True

    def spared(self, worker):
        return (worker, self.pid) if self.pid else (worker,)

    def rouse(self, replies):
        """It takes over on the channel of the worker that died, emptied; its pid."""
        pid, self.pid = self.pid, 0
        empty(self.requests)
        empty(self.parking)
        # Without a writer the channel would be at its end before the new one opens it.
        self.held = open("/proc/self/fd/%d" % replies, O_WRONLY | posix.O_CLOEXEC)
        try:
            kill(pid, SIGCONT)
        except OSError:
            pass
        write(self.rouser, b"t")
        return pid

    def ready(self):
        if self.held >= 0:
            close(self.held)
            self.held = -1

    def renew(self, requests):
        """The reading end of a new worker's channel is kept."""
        self.release()
        if self.off():
            close(requests)
        else:
            self.requests = requests

    def release(self):
        self.ready()
        if self.requests >= 0:
            close(self.requests)
            self.requests = -1
        if self.parking >= 0:
            empty(self.parking)  # of the byte for one that died first


def empty(fd):
    """Nobody else reads it: they are dead."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while any(event & select.POLLIN for _, event in poller.poll(0)) and read(fd, 65536):
        pass
