"""What a process holds open, and how a standby lets go of it and has it back.

A fork shares every open file with its parent: the offset, the lock, the port, the end
of a pipe that others wait for. So a standby keeps of files a handle that opens nothing
(O_PATH: not even a program that is being written counts as open), and of all else a
stand-in that is at its end; numbers that objects of user code remember stay taken.
"""

from posix import (
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC, close, dup2,
    fstat, get_inheritable, listdir, lseek, open, pipe, pread, read, readlink, set_inheritable,
)

libc = load("libc")

OPENING = O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_TMPFILE  # of the open, not of the file
KIND, DIRECTORY, REGULAR, FIFO, SOCKET, CHARACTER = 0o170000, 0o040000, 0o100000, 0o010000, 0o140000, 0o020000
LOCKS = {b"FLOCK": 1, b"POSIX": 2}
MEMORY = 1  # the major number of /dev/null and its like, which remember nothing
SQLITE = b"SQLite format 3\0"


class Held:
    """One descriptor of user code."""

    __slots__ = "fd", "what", "flags", "offset", "locks", "inheritable", "failed"

    def __init__(self, fd, what, flags=0, offset=0, locks=()):
        self.fd = fd
        self.what = what  # file, pipe, socket, epoll, other
        self.flags = flags
        self.offset = offset
        self.locks = locks  # (kind, exclusive, first, last or None)
        self.inheritable = get_inheritable(fd)
        self.failed = ""


def handle(fd, number):
    """Put an O_PATH handle of what fd has open at number."""
    found = open("/proc/self/fd/%d" % fd, O_PATH | O_CLOEXEC)
    if found != number:
        dup2(found, number, False)
        close(found)


def reopen(fd, flags):
    """Open anew, at the same number, what a handle stands for."""
    found = open("/proc/self/fd/%d" % fd, flags | O_CLOEXEC)
    dup2(found, fd, False)
    close(found)


def survey(ours, streams):
    """What user code holds. ours are numbers of the kernel; streams identify the pipes of output, which stay."""
    found = []
    for name in listdir("/proc/self/fd"):
        fd = int(name)
        if fd in ours:
            continue
        try:
            held = look(fd, streams)
        except OSError:
            continue  # the listing's own, or closed meanwhile by a thread
        if held is not None:
            found.append(held)
    return found


def look(fd, streams):
    status = fstat(fd)
    kind = status.st_mode & KIND
    if kind == CHARACTER and status.st_rdev >> 8 == MEMORY or (status.st_dev, status.st_ino) in streams:
        return None
    if kind == SOCKET:
        return Held(fd, "socket")
    offset, flags, locks = details(fd)
    if kind in (REGULAR, DIRECTORY):
        # A handle of user code's own is no open file: nothing is shared.
        return None if flags & O_PATH else Held(fd, "file", flags, offset, locks)
    if kind == FIFO:
        return Held(fd, "pipe", flags)
    return Held(fd, "epoll" if "eventpoll" in readlink("/proc/self/fd/%d" % fd) else "other")


def details(fd):
    """(offset, flags, locks) as the kernel tells them."""
    number = open("/proc/self/fdinfo/%d" % fd, O_RDONLY | O_CLOEXEC)
    try:
        text = read(number, 65536)
    finally:
        close(number)
    offset = flags = 0
    locks = []
    for line in text.split(b"\n"):
        key, _, value = line.partition(b":")
        if key == b"pos":
            offset = int(value)
        elif key == b"flags":
            flags = int(value, 8)
        elif key == b"lock":  # 1: FLOCK  ADVISORY  WRITE 12 00:2d:42 0 EOF
            words = value.split()
            if len(words) >= 8 and words[1] in LOCKS:
                last = None if words[7] == b"EOF" else int(words[7])
                locks.append((words[1], words[3] == b"WRITE", int(words[6]), last))
    return offset, flags, locks


def part(all):
    """In the standby: share nothing any longer."""
    ends = Ends()
    for held in all:
        try:
            if held.what == "file":
                handle(held.fd, held.fd)
            else:
                dup2(ends.of(held), held.fd, held.inheritable)
        except OSError as error:
            held.failed = error.strerror
            try:
                close(held.fd)
            except OSError:
                pass
    ends.close()


class Ends:
    """Stand-ins, made when needed: whoever reads gets the end, whoever writes gets EPIPE."""

    def __init__(self):
        self.made = {}

    def of(self, held):
        if held.what == "socket":
            key = "socket"
        else:
            key = "write" if held.what == "pipe" and held.flags & O_ACCMODE else "read"
        if key not in self.made:
            if key == "socket":
                mine, other = libc.socketpair()
            elif key == "read":
                mine, other = pipe()
            else:
                other, mine = pipe()
            close(other)
            self.made[key] = mine
        return self.made[key]

    def close(self):
        for fd in self.made.values():
            close(fd)


def rejoin(all):
    """In a standby that takes over: files at their offsets, with their locks; what could not be had is in failed."""
    for held in all:
        if held.what == "file" and not held.failed:
            try:
                bring_back(held)
            except OSError as error:
                held.failed = error.strerror or "refused"
                close(held.fd)


def bring_back(held):
    reopen(held.fd, held.flags & ~OPENING)
    if held.inheritable:
        set_inheritable(held.fd, True)
    try:
        lseek(held.fd, held.offset, 0)
    except OSError:
        pass  # a file of the kernel's, which can't
    if held.locks:
        lock(held)


def lock(held):
    import fcntl

    for kind, exclusive, first, last in held.locks:
        how = fcntl.LOCK_NB | (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        try:
            if kind == b"FLOCK":
                fcntl.flock(held.fd, how)
            else:
                fcntl.lockf(held.fd, how, 0 if last is None else last - first + 1, first)
        except OSError:
            held.failed = "its lock was taken by another"


def name(held):
    try:
        return readlink("/proc/self/fd/%d" % held.fd)
    except OSError:
        return "descriptor %d" % held.fd


def is_database(held):
    try:
        return held.what == "file" and not held.flags & O_APPEND and pread(held.fd, 16, 0) == SQLITE
    except OSError:
        return False
