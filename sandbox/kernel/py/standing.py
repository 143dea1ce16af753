"""What the supervisor is to the kernel, and what its workers are instead."""

import sys
from posix import O_CLOEXEC, O_PATH, _exit, close, getpid, getppid, open, write

import _signal

libc = load("libc")

UNPROTECTED = 72  # an exit code

# What a worker may read of itself in /proc where it may read nothing else there; directories
# end in a slash. Not all of it: net would tell of the host's network.
OWN = (
    "cmdline", "comm", "environ", "fd/", "fdinfo/", "gid_map", "limits", "maps", "oom_score_adj", "smaps", "smaps_rollup",
    "stat", "statm", "status", "task/%d/children", "uid_map",
)


def protect(domain):
    """Out of reach of same-uid processes (ptrace, /proc/1/mem, /proc/1/fd): the
    supervisor's word must stay its own. Before the first fork. Where workers have a
    domain, that keeps them away, and the server, which may own no user namespace of
    ours, must be able to look at what we start."""
    try:
        if domain < 0:
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
        if getpid() != 1:
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        sys.stderr.write("kernel: %s\n" % error)
        _exit(UNPROTECTED)


def expose(parent):
    """A worker is as any process of user code, and ends with its supervisor, parent."""
    # User code needs its own /proc/self; and where no PID namespace ends the
    # worker with its supervisor, this does.
    libc.prctl(libc.PR_SET_DUMPABLE, 1)
    libc.prctl(libc.PR_SET_PDEATHSIG, _signal.SIGKILL)
    if getppid() != parent:
        _exit(0)  # it died before the line above


def confine(domain):
    """Enter the guest's domain, where there is one. The supervisor is beyond its reach, and so is all of /proc but OWN."""
    if domain < 0:
        return
    try:
        for name in OWN:
            if "%d" in name:
                name = name % getpid()
            fd = open("/proc/self/" + name, O_PATH | O_CLOEXEC)
            libc.allow_reading(domain, fd, name.endswith("/"))
            close(fd)
        libc.enter_domain(domain)
        close(domain)
    except OSError as error:
        sys.stderr.write("kernel: %s\n" % error)
        _exit(UNPROTECTED)


def restore_signals():
    """Also those that whoever started the server had ignored, as a shell does for its
    background. Python's own two are undone by subprocess."""
    _signal.set_wakeup_fd(-1)
    for number in range(1, _signal.NSIG):
        if number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT, _signal.SIGXCPU):
            continue
        if number == _signal.SIGCHLD or _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)


def prefer_as_victim(oom, score):
    """The out-of-memory killer should take the worker (and what it starts), not PID 1. oom is -1 where that can't be said."""
    if oom >= 0:
        try:
            write(oom, b"%d" % score)
        except OSError:
            pass
