"""What the supervisor waits for, and what its peers have not taken yet.

Every descriptor is non-blocking: what can't be written is queued, and written when there is room.
"""

import select
from posix import write

PUSHED = 1 << 16  # bytes that a pipe takes at once


class Queues:
    """A poller, and a queue for each descriptor that is written to. outlet leads to the server."""

    def __init__(self, outlet, changed, gone):
        self.outlet = outlet
        self.changed = changed  # called when a queue is there that was empty, or may have shrunk
        self.gone = gone  # called when nobody reads outlet any longer
        self.poller = select.poll()
        self.queues = {outlet: bytearray()}  # descriptor -> what it would not take yet
        self.watched = {}  # descriptor -> poll mask

    def open(self, fd):
        self.queues[fd] = bytearray()

    def drop(self, fd):
        """Before fd is closed."""
        self.unwatch(fd)
        del self.queues[fd]

    def clear(self, fd):
        self.queues[fd].clear()
        self.unwatch(fd)

    def waiting(self, fd):
        """Bytes that fd has not taken."""
        return len(self.queues.get(fd, b""))

    def poll(self, timeout):
        return self.poller.poll(timeout)

    def send(self, fd, data):
        queue = self.queues[fd]
        if queue:
            queue += data
            return
        try:
            sent = write(fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            if fd == self.outlet:
                self.gone()
            return  # a dead worker: SIGCHLD follows
        if sent < len(data):
            queue += data[sent:]
            self.watch(fd, select.POLLOUT)
            self.changed()

    def push(self, fd):
        queue = self.queues[fd]
        try:
            del queue[: write(fd, queue[:PUSHED])]
        except BlockingIOError:
            return
        except OSError:
            if fd == self.outlet:
                self.gone()
            queue.clear()
        if not queue:
            self.unwatch(fd)
        self.changed()

    def watch(self, fd, mask):
        if self.watched.get(fd) != mask:
            self.watched[fd] = mask
            self.poller.register(fd, mask)

    def unwatch(self, fd):
        if self.watched.pop(fd, None) is not None:
            self.poller.unregister(fd)
