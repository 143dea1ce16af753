# PR: other processes, above all those that run this one.
import resource


def no_runner():
    raise NotHere("no process runs this one")


def each_runner(fn):
    rs = runners()
    if not rs:
        no_runner()
    return worst(fn(p) for p in rs)


def pr_01():
    hits = []
    if start_time(env["host_pid"]) == env["host_start"]:
        hits.append("the server is visible as %d" % env["host_pid"])
    for p in pids():
        comm = (read("/proc/%d/comm" % p) or b"").decode("utf-8", "replace").strip()
        if comm in ("kthreadd", "systemd", "init"):
            hits.append("%d is %s" % (p, comm))
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "%d processes, none of the host" % len(pids()))


def pr_02():
    pid = env["host_pid"]
    got = start_time(pid)
    if got is not None and got != env["host_start"]:
        return DENIED, "%d is a process of our own" % pid
    out = []
    try:
        os.kill(pid, 0)
        out.append((ALLOWED, "kill(%d, 0)" % pid))
    except OSError as e:
        out.append((DENIED, "kill: %s" % name(e.errno)))
    fd, e = call("pidfd_open", pid, 0)
    if fd < 0:
        out.append((DENIED, "pidfd_open: %s" % name(e)))
    else:
        r, e = call("pidfd_send_signal", fd, 0, None, 0)
        os.close(fd)
        out.append((ALLOWED if r == 0 else DENIED, "pidfd_send_signal: %s" % name(e)))
    return worst(out)


def pr_03():
    here = os.stat("/")
    hits, tried = [], 0
    for p in pids():
        for link in ("root", "cwd"):
            at = "/proc/%d/%s" % (p, link)
            try:
                s = os.stat(at + "/")
            except OSError:
                tried += 1
                continue
            tried += 1
            if read(at + env["canary_file"]) is not None:
                hits.append("%s reads the canary" % at)
            if link == "root" and (s.st_dev, s.st_ino) != (here.st_dev, here.st_ino):
                hits.append("%s is another root" % at)
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "%d links lead nowhere else" % tried)


def pr_04():
    needles = [env["canary_name"].encode(), env["canary_value"].encode()]
    hits, closed, opened = [], 0, 0
    for p in ["self", "thread-self"] + pids():
        b = read("/proc/%s/environ" % p)
        if b is None:
            closed += 1
            continue
        opened += 1
        if any(n in b for n in needles):
            hits.append("/proc/%s/environ" % p)
    if not opened:
        return ERROR, "not even its own environ could be read"
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "%d read, %d refused, no secret" % (opened, closed))


def pr_05():
    import subprocess
    blob = repr(sorted(os.environ.items())).encode()
    blob += subprocess.run([sys.executable, "-I", "-S", "-c", "import os; print(os.environ)"],
                           stdout=subprocess.PIPE).stdout
    n = 0
    block = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    while block and block[n]:
        blob += block[n]
        n += 1
    hit = [w for w in (env["canary_name"], env["canary_value"]) if w.encode() in blob]
    return (ALLOWED, "found %s" % hit) if hit else (DENIED, "%d variables: %s" % (len(os.environ), ", ".join(sorted(os.environ))))


def pr_06():
    def one(p):
        def fn():  # SEIZE does not stop the tracee; our exit detaches it
            r, e = call("ptrace", 0x4206, p, 0, 0)
            return (ALLOWED if r == 0 else DENIED), "ptrace %d: %s" % (p, name(e))
        return child(fn)
    return each_runner(one)


def pr_07():
    class iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    def one(p):
        out, at = [], 0x400000
        maps = read("/proc/%d/maps" % p)
        if maps:
            at = int(maps.split(b"-")[0], 16)
            out.append((ALLOWED, "/proc/%d/maps read" % p))
        buf = ctypes.create_string_buffer(16)
        here = iovec(ctypes.addressof(buf), 16)
        there = iovec(at, 16)
        # EFAULT comes after the permission check. Writing zero bytes changes nothing.
        out.append(reach("process_vm_readv", p, ctypes.byref(here), 1, ctypes.byref(there), 1, 0, also=(errno.ESRCH,)))
        there0 = iovec(8, 1)
        out.append(reach("process_vm_writev", p, ctypes.byref(here), 1, ctypes.byref(there0), 1, 0, also=(errno.ESRCH,)))
        for flags in (os.O_RDONLY, os.O_RDWR):
            out.append(try_open("/proc/%d/mem" % p, flags))
        return worst(out)
    return each_runner(one)


def pr_08():
    def one(p):
        out = []
        try:
            names = os.listdir("/proc/%d/fd" % p)
            out.append((ALLOWED, "/proc/%d/fd lists %s" % (p, names)))
        except OSError as e:
            out.append((DENIED, "/proc/%d/fd: %s" % (p, name(e.errno))))
        for n in range(16):
            at = "/proc/%d/fd/%d" % (p, n)
            try:
                out.append((ALLOWED, "%s is %s" % (at, os.readlink(at))))
            except OSError as e:
                out.append((DENIED, "%s: %s" % (at, name(e.errno))))
            for flags in (os.O_WRONLY, os.O_RDONLY):
                # ENXIO: a socket or a pipe without a peer, found and not refused.
                out.append(try_open(at, flags, there=(errno.ENXIO,)))
        return worst(out)
    return each_runner(one)


def pr_09():
    """A program started from here gets 0 to 2 and no more; and among our own
    there is nothing but the kernel's channels: no directory, no file outside,
    no network socket, no terminal."""
    import subprocess
    code = ("import os\ntry: all = os.listdir('/proc/self/fd')\nexcept OSError: all = map(str, range(1024))\n"
            "for f in all:\n try: print(f, os.readlink('/proc/self/fd/'+f))\n except OSError: pass")
    out = subprocess.run([sys.executable, "-I", "-S", "-c", code], close_fds=False, stdout=subprocess.PIPE).stdout.decode()
    if not out.strip():
        return ERROR, "the child listed nothing"
    hits = ["a child gets %s" % l for l in out.splitlines() if int(l.split()[0]) > 2]
    kept = []
    try:
        all = sorted(map(int, os.listdir("/proc/self/fd")))
    except OSError:
        all = range(1024)
    for f in all:
        if f <= 2:
            continue
        try:
            m, to = os.fstat(f).st_mode, os.readlink("/proc/self/fd/%d" % f)
        except OSError:
            continue
        if stat.S_ISDIR(m) or (stat.S_ISREG(m) and not within(to.split(" (deleted)")[0], *private_places())) or os.isatty(f):
            hits.append("%d is %s" % (f, to))
        elif stat.S_ISSOCK(m):
            with socket.socket(fileno=os.dup(f)) as s:
                if s.family != socket.AF_UNIX:
                    hits.append("%d is a socket of family %d" % (f, s.family))
        kept.append("%d %s" % (f, to))
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "own: %s" % (", ".join(kept) or "none"))


def pr_10():
    def one(p):
        fd, e = call("pidfd_open", p, 0)
        if fd < 0:
            return DENIED, "pidfd_open %d: %s" % (p, name(e))
        out = [reach("pidfd_getfd", fd, n, 0) for n in range(6)]
        os.close(fd)
        return worst(out)
    return each_runner(one)


def pr_11():
    mine = os.readlink("/proc/self/ns/pid")
    if mine != env["host_pidns"]:
        return DENIED, "own pid namespace %s" % mine
    try:
        os.kill(env["host_pid"], 0)
    except PermissionError:
        return DENIED, "the host's pid namespace, but its processes can't be signalled"
    return ALLOWED, "the host's pid namespace"


def pr_12():
    out = [try_open("/proc/%d/exe" % p, os.O_WRONLY) for p in runners()]
    out.append(try_open("/proc/self/exe", os.O_WRONLY))
    out.append(try_open(os.path.realpath(sys.executable), os.O_WRONLY))
    return worst(out)


def pr_13():
    def lower():
        at = "/proc/self/oom_score_adj"
        now = int(read(at) or 0)
        if now <= -1000:
            return ERROR, "already at the least"
        try:
            fd = os.open(at, os.O_WRONLY)
            os.write(fd, b"%d" % (now - 1))
        except OSError as e:
            return DENIED, "%d to %d: %s" % (now, now - 1, name(e.errno))
        after = int(read(at))
        return (ALLOWED if after < now else ERROR), "%d to %d" % (now, after)

    def same(p):
        at = "/proc/%d/oom_score_adj" % p
        now = read(at)
        if now is None:
            return DENIED, "%s unreadable" % at
        try:
            fd = os.open(at, os.O_WRONLY)
            os.write(fd, now)
            os.close(fd)
        except OSError as e:
            return DENIED, "%s: %s" % (at, name(e.errno))
        return ALLOWED, "%s written" % at
    return worst([child(lower)] + [same(p) for p in runners()])


def pr_14():
    def nice():
        now = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, now - 1)
        except OSError as e:
            return DENIED, "nice %d: %s" % (now - 1, name(e.errno))
        return ALLOWED, "nice %d to %d" % (now, os.getpriority(os.PRIO_PROCESS, 0))

    def realtime(policy):
        def fn():
            try:
                os.sched_setscheduler(0, policy, os.sched_param(1))
            except OSError as e:
                return DENIED, "policy %d: %s" % (policy, name(e.errno))
            return ALLOWED, "policy %d" % os.sched_getscheduler(0)
        return fn

    def io():
        r, e = call("ioprio_set", 1, 0, (1 << 13) | 4)  # real-time class
        return (ALLOWED if r == 0 else DENIED), "ioprio: %s" % name(e)
    return worst([child(nice), child(realtime(os.SCHED_FIFO)), child(realtime(os.SCHED_RR)), child(io)])


def pr_15():
    def fn():
        out = []
        for k in dir(resource):
            if not k.startswith("RLIMIT_"):
                continue
            soft, hard = resource.getrlimit(getattr(resource, k))
            if hard == resource.RLIM_INFINITY:
                continue
            try:
                resource.setrlimit(getattr(resource, k), (soft, hard + 1))
                out.append((ALLOWED, "%s raised above %d" % (k, hard)))
            except (OSError, ValueError) as e:
                out.append((DENIED, "%s %d" % (k, hard)))
        if not out:
            return ALLOWED, "no limit at all"
        return worst(out)
    return child(fn)


def pr_16():
    """What pid 1 tells of its command line: whose, and what of the host."""
    b = read("/proc/1/cmdline")
    if b is None:
        return DENIED, "/proc/1/cmdline unreadable"
    return ALLOWED, "/proc/1/cmdline: %s" % b.replace(b"\0", b" ").decode("utf-8", "replace")[:400]


def pr_17():
    """The server's environment and descriptors by its number outside."""
    pid, out = env["host_pid"], []
    got = start_time(pid)
    if got is not None and got != env["host_start"]:
        return DENIED, "%d is a process of our own" % pid
    for f in ("environ", "cmdline", "maps", "mem", "fd/0", "fd/1", "cwd/", "root/", "exe", "status"):
        out.append(try_open("/proc/%d/%s" % (pid, f), os.O_RDONLY, there=(errno.ENXIO,)))
    return worst(out)
