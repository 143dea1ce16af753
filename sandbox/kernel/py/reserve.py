"""Descriptors held back, so that an error can be told after user code has used up the rest.

To describe one, or to draw a figure, modules are read; without a descriptor the reason would
be lost, of all cases in the one where it is that there are none.
"""

from posix import O_CLOEXEC, O_RDONLY, close, dup2, fstat, open

MANY = 2  # of a nested import each level has closed its file before the next begins; and one to spare


class Reserve:
    """One for each worker. /dev/null, which a standby may share: it remembers nothing."""

    def __init__(self, first):
        self.held = []
        self.device = 0
        self.fill()
        # High numbers, as the worker's others.
        for place, fd in enumerate(self.held):
            self.held[place] = dup2(fd, first + place, False)
            close(fd)

    def release(self):
        while self.held:
            fd = self.held.pop()
            try:
                if fstat(fd).st_rdev == self.device:  # user code may have closed it, and opened its own there
                    close(fd)
            except OSError:
                pass

    def fill(self):
        """Take back what there is; user code may have left less, and then the next call gives another chance."""
        try:
            while len(self.held) < MANY:
                self.held.append(open("/dev/null", O_RDONLY | O_CLOEXEC))
                self.device = fstat(self.held[-1]).st_rdev
        except OSError:
            pass
