# NS: new namespaces, and those of others.
FLAGS = {
    "NEWUSER": 0x10000000, "NEWNS": 0x00020000, "NEWNET": 0x40000000, "NEWPID": 0x20000000,
    "NEWIPC": 0x08000000, "NEWUTS": 0x04000000, "NEWCGROUP": 0x02000000, "NEWTIME": 0x00000080,
}


def unshare(flags, label):
    def fn():
        r, e = call("unshare", flags)
        return (ALLOWED if r == 0 else DENIED), "unshare(%s): %s" % (label, name(e))
    return child(fn)


def clone(flags, label):
    def fn():
        r, e = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
        if r == 0:
            libc._exit(0)
        if r > 0:
            os.waitpid(r, 0)
        return (ALLOWED if r > 0 else DENIED), "clone(%s): %s" % (label, name(e))
    return child(fn)


def ns_01():
    return worst([unshare(FLAGS["NEWUSER"], "NEWUSER"), clone(FLAGS["NEWUSER"], "NEWUSER")])


def ns_02():
    return worst([unshare(FLAGS["NEWNS"], "NEWNS"), clone(FLAGS["NEWNS"], "NEWNS")])


def ns_03():
    return worst([unshare(FLAGS["NEWNET"], "NEWNET"), clone(FLAGS["NEWNET"], "NEWNET")])


def ns_04():
    three = FLAGS["NEWUSER"] | FLAGS["NEWNS"] | FLAGS["NEWNET"]
    out = [unshare(three, "USER|NS|NET"), clone(three, "USER|NS|NET")]
    # Each of the rest alone, with NEWUSER, and by a flag word whose upper half is set.
    for k in ("NEWPID", "NEWIPC", "NEWUTS", "NEWCGROUP", "NEWTIME"):
        out.append(unshare(FLAGS[k], k))
        out.append(unshare(FLAGS[k] | FLAGS["NEWUSER"], k + "|NEWUSER"))
    out.append(clone(three | 1 << 40, "USER|NS|NET|1<<40"))
    return worst(out)


def ns_05():
    kinds = ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup", "time")

    def one(p):
        out = []
        for k in kinds:
            at = "/proc/%d/ns/%s" % (p, k)
            try:
                fd = os.open(at, os.O_RDONLY)
            except OSError as e:
                out.append((DENIED, "%s: %s" % (at, name(e.errno))))
                continue

            def fn():
                r, e = call("setns", fd, 0)
                return (ALLOWED if r == 0 else DENIED), "setns %s: %s" % (at, name(e))
            out.append(child(fn))
            os.close(fd)
        fd, e = call("pidfd_open", p, 0)
        if fd >= 0:
            def by_pidfd():
                r, e = call("setns", fd, FLAGS["NEWNET"])
                return (ALLOWED if r == 0 else DENIED), "setns pidfd of %d: %s" % (p, name(e))
            out.append(child(by_pidfd))
            os.close(fd)
        return worst(out)
    rs = runners()
    if not rs:
        raise NotHere("no process runs this one")
    return worst(one(p) for p in rs)


def ns_06():
    r, e = call("clone3", None, 0)
    if e == errno.ENOSYS:
        return DENIED, "ENOSYS"
    if e == errno.EPERM:
        return ERROR, "EPERM: libc falls back to clone on ENOSYS alone, so that threads fail"
    return ALLOWED, "clone3: %s" % name(e)


def ns_07():
    """Threads and processes of libc still work without clone3."""
    import subprocess, threading
    seen = []
    try:
        t = threading.Thread(target=lambda: seen.append(1))
        t.start()
        t.join()
    except RuntimeError as e:
        return DENIED, str(e)
    rc = subprocess.run([sys.executable, "-I", "-S", "-c", "pass"]).returncode
    return (ALLOWED if seen and rc == 0 else DENIED), "thread %s, process %d" % (seen, rc)
