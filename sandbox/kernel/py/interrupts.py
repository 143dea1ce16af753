"""Interrupts: SIGINT, the polite one, and SIGXCPU, for code that ignored it.

Both act on user code alone. Elsewhere in the worker they do nothing, so that a
signal which comes a moment too late can't hurt a reply.
"""

from posix import getpid

import _signal
from _signal import SIG_BLOCK, SIG_SETMASK, SIGINT, SIGXCPU, pthread_sigmask, signal

OURS = {SIGINT, SIGXCPU}
FOREIGN = frozenset(
    getattr(_signal, name)
    for name in (
        "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", "SIGCHLD",
        "SIGCONT", "SIGIO", "SIGQUIT", "SIGTSTP", "SIGURG", "SIGWINCH",
    )
    if hasattr(_signal, name)
)
# Of an exception or a value of user code only type() is sure: isinstance asks its
# __class__, which may be any code. So the kernel asks issubclass(type(x), ...).

LEAST = 1 << 19
SPARE = 4 << 20  # bytes; of address space alone, since they are never touched


class Interrupted(BaseException):
    """Raised in code that went on after KeyboardInterrupt; no `except Exception` holds it."""


Interrupted.__module__ = "builtins"  # how a traceback names it


class Interrupts:
    """One for each worker; install and guard in the main thread."""

    def __init__(self, before):
        self.before = before
        self.pid = getpid()
        self.armed = False
        self.mask = set(pthread_sigmask(SIG_BLOCK, ()))  # user code's
        self.missed = False  # one came while nothing of the user's ran
        self.count = 0  # signals that reached user code in this call
        self.spare = None
        self.set_aside()
        self.waiter = None  # the event loop while it runs a call: see loop.py

    def set_aside(self):
        """Keep memory for the kernel's own needs when user code has used up the rest.

        Less of it where there is little: a namespace full of data must leave room
        for the next call, and that call may run out once more.
        """
        if self.spare is not None and len(self.spare) == SPARE:
            return
        self.spare = None
        size = SPARE
        while size >= LEAST:
            try:
                bytes(size + LEAST)  # not bytearray, which writes its zeros
                self.spare = bytes(size)
                return
            except MemoryError:
                size //= 2

    def install(self):
        """At the start of each call: user code may have put its own handlers there."""
        signal(SIGINT, self.handle)
        signal(SIGXCPU, self.handle)
        self.mask -= OURS

    def handle(self, number, frame):
        if not self.armed:
            self.missed = True
            return
        if getpid() != self.pid:
            raise KeyboardInterrupt  # a forked child: as in any Python
        self.count += 1
        waiter = self.waiter
        self.before()  # what the code printed must not be lost if it has to be killed next
        if frame is not None and frame.f_code is GUARD:
            return  # between the guard and user code: an exception here would escape
        if waiter is not None and waiter.idle(frame):
            waiter.cancel(number == SIGXCPU)
            return
        if number == SIGINT:
            raise KeyboardInterrupt
        if waiter is not None:
            waiter.cancel(True)
        raise Interrupted("the code went on after an interrupt")

    def guard(self, function, *arguments, armed=True):
        """Run what is, or may call, user code: (value, None) or (None, exception).

        Signals that user code may handle are blocked everywhere else: the handler
        of a timer that outlives its call may raise, and must not do so in ours.
        """
        try:
            try:
                self.armed = armed
                pthread_sigmask(SIG_SETMASK, self.mask)
                return function(*arguments), None
            finally:
                self.armed = False
                self.mask = pthread_sigmask(SIG_BLOCK, FOREIGN)
        except BaseException as error:
            if issubclass(type(error), MemoryError):
                self.spare = None  # first of all: the next lines need some
            self.armed = False
            pthread_sigmask(SIG_BLOCK, FOREIGN)
            return None, error


GUARD = Interrupts.guard.__code__
