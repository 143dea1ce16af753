"""The C library, called through _ctypes alone: the ctypes package costs 3 ms of the start."""

import sys

import _ctypes

_call = _ctypes.call_function
_handle = _ctypes.dlopen(None, 2)  # RTLD_NOW, the process itself


class _Pointer(_ctypes._SimpleCData):
    _type_ = "P"


class _Int(_ctypes._SimpleCData):
    _type_ = "i"


class _Char(_ctypes._SimpleCData):
    _type_ = "c"


def _symbol(*names):
    for name in names:
        try:
            return _ctypes.dlsym(_handle, name)
        except OSError:
            pass
    return None


_prctl = _symbol("prctl") if sys.platform == "linux" else None
_syscall = _symbol("syscall") if sys.platform == "linux" else None
_mallopt = _symbol("mallopt") if sys.platform == "linux" else None  # not in musl
_fflush = _symbol("fflush")
_socketpair = _symbol("socketpair")
_trim = _symbol("malloc_trim")  # glibc alone
_stdout = _symbol("stdout", "__stdoutp")  # glibc and musl; macOS

LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 445, 446  # on every architecture
READ_FILE, READ_DIR = 1 << 2, 1 << 3
PATH_BENEATH = 1

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
SOCK_CLOEXEC = 0o2000000  # Linux


def prctl(option, value):
    """Linux only (elsewhere nothing); OSError if the kernel refuses."""
    if _prctl is not None and _call(_prctl, (option, value, 0, 0, 0)) != 0:
        raise OSError("prctl(%d, %d) refused" % (option, value))


def allow_reading(domain, place, directory):
    """Let those who enter the domain (a Landlock ruleset) read what place is a handle of."""
    rights = READ_FILE | READ_DIR if directory else READ_FILE
    rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
    packed = (_Char * len(rule))(*[rule[i : i + 1] for i in range(len(rule))])
    if _call(_syscall, (LANDLOCK_ADD_RULE, domain, PATH_BENEATH, _ctypes.byref(packed), 0)) != 0:
        raise OSError("landlock_add_rule refused")


def enter_domain(domain):
    """For good, with all that this process will start."""
    if _call(_syscall, (LANDLOCK_RESTRICT_SELF, domain, 0)) != 0:
        raise OSError("landlock_restrict_self refused")


def keep_heap():
    """Don't give memory back to the system at once: what comes by the megabyte would cost fresh pages each time."""
    if _mallopt is not None:
        _call(_mallopt, (M_TRIM_THRESHOLD, 8 << 20))
        _call(_mallopt, (M_MMAP_THRESHOLD, 8 << 20))


def flush():
    """Flush C's stdout: printf in a compiled module. Not fflush(NULL), which would
    wait for any stream that some thread holds locked."""
    if _fflush and _stdout:
        _call(_fflush, (_Pointer.from_address(_stdout),))


def trim():
    """Give unused memory of C's heap back to the system."""
    if _trim:
        _call(_trim, (0,))


def subreaper(value=None):
    """Whether orphans of this process come back to it, as it may have asked for; or set that."""
    if _prctl is None:
        return 0
    if value is not None:
        return prctl(PR_SET_CHILD_SUBREAPER, value)
    found = _Int(0)
    _call(_prctl, (PR_GET_CHILD_SUBREAPER, _ctypes.byref(found), 0, 0, 0))
    return found.value


def socketpair():
    """Two descriptors, without the socket module. Where such sockets are refused, OSError."""
    both = (_Int * 2)()
    if _socketpair is None or _call(_socketpair, (1, 1 | SOCK_CLOEXEC, 0, _ctypes.byref(both))) != 0:
        raise OSError("socketpair refused")
    return both[0], both[1]
