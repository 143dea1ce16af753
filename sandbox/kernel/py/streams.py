"""Standard streams: text over descriptors 0, 1 and 2, put back after each call.

Every write reaches the pipe at once. A worker may be killed at a limit at any
moment, and what the code printed until then is often all that explains why.
(Measured: a million prints take 3.9 s, against 3.0 s flushed by lines.)
"""

import sys
from posix import close, dup2, fstat

import _io
from _thread import _count as others, get_ident

_write = _io.FileIO.write
HELD = 1 << 13  # bytes of a line


class Pipe(_io.FileIO):
    """A raw stream that writes all it is given, and keeps the lines of threads apart.

    print() writes a line and its end one after the other, and another thread's
    line would come between. So while there are other threads, a thread's text
    waits for the end of its line, or for a flush, or for the end of the call.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.held = {}  # thread -> the line it has begun

    def write(self, data):
        if not self.held and not others():
            return self.put(data)
        thread = get_ident()
        begun = self.held.pop(thread, b"")
        size = len(data)
        if others() and data[-1:] != b"\n" and size + len(begun) < HELD:
            self.held[thread] = begun + bytes(data)
        else:
            self.put(begun + bytes(data))
        return size

    def put(self, data):
        done = _write(self, data) or 0
        total = memoryview(data).nbytes
        while done < total:  # a signal's handler cut the write short
            done += _write(self, memoryview(data).cast("B")[done:]) or 0
        return done

    def flush(self):
        begun = self.held.pop(get_ident(), None)
        if begun:
            self.put(begun)

    def flush_all(self):
        for thread in list(self.held):
            begun = self.held.pop(thread, None)
            if begun:
                self.put(begun)


def writer(fd):
    raw = Pipe(fd, "w", closefd=False)
    raw.name = "<stdout>" if fd == 1 else "<stderr>"
    stream = _io.TextIOWrapper(raw, "utf-8", "backslashreplace", newline="\n", write_through=True)
    stream.mode = "w"
    return stream


def reader():
    raw = _io.FileIO(0, "r", closefd=False)
    raw.name = "<stdin>"
    stream = _io.TextIOWrapper(_io.BufferedReader(raw), "utf-8", "surrogateescape")
    stream.mode = "r"
    return stream


def form(stream):
    return stream.encoding, stream.errors, stream.line_buffering, stream.write_through


def spoilt(stream, wanted=None):
    """Whether user code closed, detached or reconfigured a stream."""
    try:
        return stream.closed or (wanted is not None and form(stream) != wanted)
    except ValueError:
        return True


class Streams:
    """Ours, and what is needed to have them back."""

    def __init__(self, base):
        # Private copies of the descriptors, out of the way and never inherited.
        self.copies = [dup2(fd, base + fd, False) for fd in (0, 1, 2)]
        self.known = [self.identity(fd) for fd in (0, 1, 2)]
        self.stdin, self.stdout, self.stderr = reader(), writer(1), writer(2)
        self.form = form(self.stdout)
        self.hooks = sys.displayhook, sys.excepthook
        self.put_back()

    @staticmethod
    def identity(fd):
        try:
            status = fstat(fd)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def flush_foreign(self):
        """What user code put in place of ours may hold text yet; this runs its code."""
        for name, ours in (("stderr", self.stderr), ("stdout", self.stdout)):
            stream = getattr(sys, name, None)
            if stream is not ours and stream is not None:
                stream.flush()

    def flush_held(self):
        for stream in (self.stdout, self.stderr):
            try:
                stream.buffer.flush_all()
            except Exception:
                pass  # closed, or detached, and soon replaced

    def foreign(self):
        return getattr(sys, "stdout", None) is not self.stdout or getattr(sys, "stderr", None) is not self.stderr

    def put_back(self):
        """After each call: descriptors, streams and hooks as they were."""
        self.flush_held()
        for fd in (0, 1, 2):
            if self.identity(fd) != self.known[fd]:
                try:
                    dup2(self.copies[fd], fd)
                except OSError:
                    pass  # it closed our copy too: its own doing
        if spoilt(self.stdin):
            self.stdin = reader()
        if spoilt(self.stdout, self.form):
            self.stdout = writer(1)
        if spoilt(self.stderr, self.form):
            self.stderr = writer(2)
        sys.stdin = sys.__stdin__ = self.stdin
        sys.stdout = sys.__stdout__ = self.stdout
        sys.stderr = sys.__stderr__ = self.stderr
        sys.displayhook, sys.excepthook = self.hooks

    def in_child(self):
        """In a forked child: whole lines, so that those of several processes don't mix."""
        for copy in self.copies:
            try:
                close(copy)  # a daemon that closes its streams must not keep the pipes open
            except OSError:
                pass
        for stream in (self.stdout, self.stderr):
            try:
                stream.reconfigure(line_buffering=True, write_through=False)
            except Exception:
                pass
