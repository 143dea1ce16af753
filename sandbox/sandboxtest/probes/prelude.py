# Shared by all probes: how to try something for real, and how to judge it.
#
# A probe is a function that returns (verdict, detail). DENIED: tried, and
# refused, or nothing there. ALLOWED: it worked, or the kernel got past the
# permission check. HELD: the limit stopped it. NONE: there is no such thing on
# this machine. Anything unexpected is an exception, and so an ERROR: a probe
# that could not try proves nothing.
#
# What a success would do must be harmless: values are set to what they are,
# magic numbers are wrong, files are created and removed, processes are forked.
import ctypes, errno, json, os, select, signal, socket, stat, struct, sys, time, traceback

DENIED, ALLOWED, HELD, NONE, ERROR = "DENIED", "ALLOWED", "HELD", "NONE", "ERROR"
env = inputs
TMP = os.environ.get("TMPDIR") or "/tmp"
libc = ctypes.CDLL(None, use_errno=True)
MACHINE = os.uname().machine
X86 = MACHINE in ("x86_64", "amd64")

# System call numbers: x86_64, aarch64 (None where there is none).
NR = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280),
    "chroot": (161, 51), "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435),
    "delete_module": (176, 106), "execveat": (322, 281), "fanotify_init": (300, 262),
    "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430),
    "fspick": (433, 433), "init_module": (175, 105), "io_uring_setup": (425, 425), "ioctl": (16, 29),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "modify_ldt": (154, None), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "prlimit64": (302, 261),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218),
    "sethostname": (170, 161), "setdomainname": (171, 162), "setgid": (106, 144),
    "setgroups": (116, 159), "setns": (308, 268), "setresgid": (119, 149), "setresuid": (117, 147),
    "setuid": (105, 146), "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58), "ioprio_set": (251, 30),
}
REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


class NotHere(Exception):
    """There is no such thing on this machine."""


def name(e):
    return errno.errorcode.get(e, str(e))


def call(what, *args):
    """A raw system call: (result, errno)."""
    nr = what if isinstance(what, int) else NR[what][0 if X86 else 1]
    if nr is None:
        raise NotHere("%s: no such call on %s" % (what, MACHINE))
    raw = []
    for a in args:
        if a is None:
            raw.append(ctypes.c_void_p(None))
        elif isinstance(a, int):
            raw.append(ctypes.c_ulong(a & 0xFFFFFFFFFFFFFFFF))
        elif isinstance(a, bytes):
            raw.append(ctypes.c_char_p(a))
        else:
            raw.append(a)
    ctypes.set_errno(0)
    fn = libc.syscall
    fn.restype = ctypes.c_long
    r = fn(ctypes.c_long(nr), *raw)
    return r, ctypes.get_errno()


def reach(what, *args, **kw):
    """DENIED if refused; ALLOWED on success, and on any error that comes after
    the permission check."""
    refused = REFUSED + tuple(kw.get("also", ()))
    r, e = call(what, *args)
    label = kw.get("label", what)
    if r >= 0:
        return ALLOWED, "%s = %d" % (label, r)
    return (DENIED if e in refused else ALLOWED), "%s: %s" % (label, name(e))


def worst(verdicts):
    """The verdict of several attempts: ALLOWED if any was, with its detail."""
    verdicts = list(verdicts)
    for want in (ERROR, ALLOWED):
        hits = [d for v, d in verdicts if v == want]
        if hits:
            return want, "; ".join(hits[:6])
    hits = [d for v, d in verdicts if v == DENIED]
    if not hits:
        return NONE, "; ".join(d for _, d in verdicts) or "nothing to try"
    return DENIED, "; ".join(hits[:6])


def judge(fn, isinstance=isinstance, len=len, str=str):
    """Runs fn; a refusal by exception is a verdict too. (What it needs is bound
    here: one probe replaces the builtins.)"""
    try:
        v = fn()
        if not (isinstance(v, (tuple, list)) and len(v) == 2):
            return ERROR, "%s returned %r" % (fn.__name__, v)
        return v[0], str(v[1])[:800]
    except NotHere as e:
        return NONE, str(e)
    except OSError as e:
        if e.errno in REFUSED:
            return DENIED, "%s: %s" % (name(e.errno), e)
        return ERROR, traceback.format_exc(limit=-3)
    except Exception:
        return ERROR, traceback.format_exc(limit=-3)


def child(fn, timeout=8.0, deaths=()):
    """Runs fn in a forked child, since it changes or may end its process. A
    child killed by SIGSYS was denied; deaths lists further signals that mean so."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(r)
            signal.alarm(0)
            os.write(w, json.dumps(judge(fn)).encode())
        finally:
            os._exit(0)
    os.close(w)
    data, end = b"", time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([r], [], [], max(0, end - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(r)
            return ERROR, "hung for %g s" % timeout
        piece = os.read(r, 65536)
        if not piece:
            break
        data += piece
    os.close(r)
    _, status = os.waitpid(pid, 0)
    if data:
        v, d = json.loads(data)
        return v, d
    if os.WIFSIGNALED(status):
        s = os.WTERMSIG(status)
        if s == signal.SIGSYS or s in deaths:
            return DENIED, "killed by signal %d" % s
        return ERROR, "killed by signal %d" % s
    return ERROR, "ended without a word, status %d" % status


def try_open(path, flags, *, there=(errno.ETXTBSY,)):
    """(verdict, detail) of opening path; errors in there count as let in."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        return (ALLOWED if e.errno in there else DENIED), "%s: %s" % (path, name(e.errno))
    s = os.fstat(fd)
    os.close(fd)
    if stat.S_ISCHR(s.st_mode) and s.st_rdev == os.makedev(1, 3) and path != "/dev/null":
        return DENIED, "%s is covered by the null device" % path
    return ALLOWED, "%s opened" % path


def read(path, n=1 << 20):
    """The first n bytes of a file, or None."""
    try:
        with open(path, "rb", buffering=0) as f:
            return f.read(n)
    except OSError:
        return None


def pids():
    """Those that /proc lists; where it can't be listed, some that are there and could be guessed."""
    try:
        return sorted(int(d) for d in os.listdir("/proc") if d.isdigit())
    except OSError:
        return sorted({1, 2, os.getpid(), os.getppid(), env["host_pid"]})


def start_time(pid):
    s = read("/proc/%d/stat" % pid)
    return s.rsplit(b")", 1)[1].split()[19].decode() if s else None


def runners():
    """The processes that run this one: its parent, and PID 1."""
    out = {os.getppid()}
    if not env.get("spare_init"):
        out.add(1)
    return sorted(p for p in out if p > 0 and p != os.getpid())


def mounts():
    """(mount point, options, fstype, superblock options, root) of each mount."""
    out = []
    for line in (read("/proc/self/mountinfo") or b"").decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        f, g = left.split(), right.split()
        where = f[4].replace("\\040", " ")
        out.append((where, f[5].split(","), g[0], g[2].split(",") if len(g) > 2 else [], f[3]))
    return out


def within(path, *roots):
    path = os.path.realpath(path)
    for root in roots:
        root = os.path.realpath(root)
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return True
    return False


def private_places():
    """Where writing is meant to work: the workspace, /tmp or what stands for it, /dev/shm."""
    return [os.getcwd(), TMP, "/dev/shm"]


def touch(directory):
    """Creates and removes a file in directory."""
    path = os.path.join(directory, ".probe-%d" % os.getpid())
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as e:
        return DENIED, "%s: %s" % (directory, name(e.errno))
    os.close(fd)
    try:
        os.unlink(path)
    except OSError:
        pass
    return ALLOWED, "created a file in %s" % directory


def probe(fn, list=list):
    """What the table calls: the result as _return."""
    return list(judge(fn))
