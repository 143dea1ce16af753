"""Thread pools of compiled libraries that a fork breaks.

Most libraries end their pool before a fork, and make another when it is needed next.
GNU's OpenMP does not: in the child it waits for ever for threads that are not there. But
it can be told to end them.
"""

import sys

import _ctypes

from posix import O_CLOEXEC, O_RDONLY, close, open, read

HARD = 2  # omp_pause_hard
RTLD_NOW, RTLD_NOLOAD = 2, 4


class Pools:
    def __init__(self):
        self.modules = 0  # how many were imported when we last looked
        self.pauses = {}  # path of a library -> its function

    def end(self):
        """Before a fork, in the main thread: the pools of other threads end with these."""
        if len(sys.modules) != self.modules:
            self.modules = len(sys.modules)
            self.look()
        for function in self.pauses.values():
            _ctypes.call_function(function, (HARD,))

    def look(self):
        for path in mapped(b"libgomp"):
            if path not in self.pauses:
                try:
                    self.pauses[path] = _ctypes.dlsym(_ctypes.dlopen(path, RTLD_NOW | RTLD_NOLOAD), "omp_pause_resource_all")
                except OSError:
                    pass  # older than GCC 9


def mapped(word):
    """Paths of the libraries whose name begins so."""
    fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)
    text = b""
    try:
        while data := read(fd, 1 << 20):
            text += data
    finally:
        close(fd)
    paths = {line.split(None, 5)[5] for line in text.split(b"\n") if word in line}
    return [path.decode() for path in paths if path.rpartition(b"/")[2].startswith(word)]
