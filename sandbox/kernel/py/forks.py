"""register_at_fork, with a door: what user code and libraries registered does not hear of a checkpoint's fork.

Handlers that run before and after a fork may do anything: print, take locks, close
connections. A checkpoint is no fork to those who made them. Only a standby that takes
over is a new process, and then the handlers of libraries do what they are for: locks
of threads that are gone are made anew.
"""

import posix
import sys
from posix import getpid

_plain = posix.register_at_fork
_plain_fork = posix.fork


class Forks:
    """One for each worker, from before the first import of user code."""

    def __init__(self):
        self.shut = False
        self.in_child = []  # what was registered to run in a forked child, in order
        self.install()

    def install(self):
        def register_at_fork(*arguments, **handlers):
            """Register callables to be called when forking a new process."""
            _plain(*arguments, **{
                key: self.behind(handler) if callable(handler) else handler for key, handler in handlers.items()
            })
            if handlers.get("after_in_child") is not None:
                self.in_child.append(handlers["after_in_child"])

        register_at_fork.__module__ = "posix"
        register_at_fork.__qualname__ = "register_at_fork"
        posix.register_at_fork = register_at_fork
        if "os" in sys.modules:
            sys.modules["os"].register_at_fork = register_at_fork

    def register(self, handler):
        """For the kernel's own: runs in forked children of user code, and in no standby."""
        _plain(after_in_child=self.behind(handler))

    def behind(self, handler):
        def call():
            if not self.shut:
                handler()

        return call

    def fork(self):
        """posix.fork, unheard and without its complaint about threads."""
        self.shut = True
        warnings = sys.modules.get("warnings") if sys.version_info >= (3, 12) else None
        filters = getattr(warnings, "filters", None)
        try:
            if filters is not None:
                warnings.filters = [("ignore", None, DeprecationWarning, None, 0)]
            return _plain_fork()
        finally:
            if filters is not None:
                warnings.filters = filters
            self.shut = False

    def replay(self):
        """In a standby that takes over: what libraries do in a forked child."""
        for handler in list(self.in_child):
            if not self.spared(handler):
                try:
                    handler()
                except Exception:
                    pass  # its other half, before the fork, has not run

    def spared(self, handler):
        """Handlers that must not run: user code's own, and that of random, see revival.py."""
        code = getattr(handler, "__code__", None)
        if code is not None and code.co_filename.startswith("<call "):
            return True
        random = sys.modules.get("random")
        return random is not None and getattr(handler, "__self__", None) is getattr(random, "_inst", random)
