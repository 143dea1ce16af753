# KN: the kernel's own files.


def rewrite(path):
    """Writes what is there already."""
    now = read(path)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as e:
        return DENIED, "%s: %s" % (path, name(e.errno))
    try:
        if now:
            os.write(fd, now)
        return ALLOWED, "%s written" % path
    except OSError as e:
        return (DENIED if e.errno in REFUSED else ALLOWED), "%s: %s" % (path, name(e.errno))
    finally:
        os.close(fd)


def kn_01():
    out, n = [], 0
    for at in ("kernel/hostname", "kernel/domainname", "kernel/randomize_va_space", "vm/overcommit_memory",
               "net/ipv4/ip_forward", "fs/file-max", "user/max_user_namespaces", "kernel/yama/ptrace_scope",
               "kernel/msgmax", "kernel/shmmax", "net/ipv4/ping_group_range", "kernel/unprivileged_bpf_disabled"):
        if os.path.exists("/proc/sys/" + at):
            out.append(rewrite("/proc/sys/" + at))
    for d, _, files in os.walk("/proc/sys"):
        for f in files:
            n += 1
            p = os.path.join(d, f)
            v = try_open(p, os.O_WRONLY)  # opened, never written
            if v[0] == ALLOWED:
                out.append(v)
    if not out:
        return DENIED, "no /proc/sys"
    v, d = worst(out)
    return v, "%d files; %s" % (n, d)


def kn_02():
    return worst([rewrite("/proc/sys/kernel/core_pattern"), rewrite("/proc/sys/kernel/modprobe"), rewrite("/proc/sys/fs/binfmt_misc/status"),
                  try_open("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY)])


def kn_03():
    return try_open("/proc/sysrq-trigger", os.O_WRONLY)  # opened, never written


def kn_04():
    out = [try_open("/proc/" + f, os.O_RDONLY) for f in ("kcore", "kmsg", "kpageflags", "kpagecount", "kpagecgroup", "vmallocinfo", "slabinfo", "timer_list", "sched_debug")]
    for f in ("kallsyms", "modules", "iomem"):
        text = (read("/proc/" + f, 1 << 16) or b"").decode("utf-8", "replace")
        if f == "kallsyms":
            shown = [l for l in text.splitlines()[:2000] if l and int(l.split()[0], 16)]
        elif f == "modules":
            shown = [l for l in text.splitlines() if l.split()[5:6] and int(l.split()[5], 16)]
        else:
            shown = [l for l in text.splitlines() if int(l.strip().split("-")[0], 16)]
        out.append((ALLOWED if shown else DENIED, "/proc/%s: %s" % (f, shown[:1] or "no addresses")))
    return worst(out)


def kn_05():
    try:
        names = os.listdir("/sys")
    except OSError as e:
        return DENIED, "/sys: %s" % name(e.errno)
    return (ALLOWED, "/sys shows %s" % names[:6]) if names else (DENIED, "/sys is empty")


def kn_06():
    out = []
    tops = ["/sys/fs/cgroup"] + [m[0] for m in mounts() if m[2].startswith("cgroup")]
    for top in dict.fromkeys(tops):
        n = 0
        for d, _, files in os.walk(top):
            n += 1
            for f in files:
                if f in ("release_agent", "cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.kill", "devices.allow"):
                    out.append(try_open(os.path.join(d, f), os.O_WRONLY))  # opened, never written
            if n > 40:
                break
    def mount():
        import tempfile
        d = tempfile.mkdtemp(dir=os.getcwd())
        r, e = call("mount", b"none", d.encode(), b"cgroup2", 0, None)
        if r == 0:
            call("umount2", d.encode(), 2)
        os.rmdir(d)
        return (ALLOWED if r == 0 else DENIED), "mount cgroup2: %s" % name(e)
    out.append(child(mount))
    return worst(out)


def kn_07():
    text = (read("/proc/keys") or b"").decode("utf-8", "replace")
    return (ALLOWED if text else DENIED), "%d keys visible: %s" % (len(text.splitlines()), text[:200])


def kn_08():
    """What tells one host from another."""
    tells = ["nodename %s" % os.uname().nodename, "release %s" % os.uname().release]
    for f in ("cmdline", "sys/kernel/random/boot_id", "version", "uptime", "loadavg", "partitions", "diskstats", "mounts", "bus/pci/devices", "interrupts"):
        if read("/proc/" + f, 1):
            tells.append(f)
    same = os.uname().nodename == env["hostname"]
    return (ALLOWED if same else DENIED), "%s; visible: %s" % ("the host's own name" if same else "another name", ", ".join(tells))
