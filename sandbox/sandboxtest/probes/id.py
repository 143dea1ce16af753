# ID: who the code is.
import subprocess


def status_of(pid):
    out = {}
    for line in (read("/proc/%s/status" % pid) or b"").decode("utf-8", "replace").splitlines():
        k, _, v = line.partition(":")
        out[k] = v.strip()
    return out


def id_01():
    r = libc.prctl(39, 0, 0, 0, 0)  # PR_GET_NO_NEW_PRIVS
    if r not in (0, 1):
        return ERROR, "prctl: %s" % name(ctypes.get_errno())
    return (DENIED if r == 1 else ALLOWED), "no_new_privs = %d" % r


def id_02():
    bad, seen = [], 0
    for pid in pids():
        s = status_of(pid)
        if not s or s.get("State", "").startswith("Z"):
            continue
        if "CapEff" not in s:
            return ERROR, "no capability lines in the status of %d" % pid
        seen += 1
        for k in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
            if int(s[k], 16):
                bad.append("%d %s %s" % (pid, k, s[k]))
    if not seen:
        return ERROR, "no process to look at"
    return (ALLOWED, "; ".join(bad[:6])) if bad else (DENIED, "%d processes, all sets empty" % seen)


def id_03():
    rows = [tuple(map(int, l.split())) for l in read("/proc/self/uid_map").decode().splitlines()]
    if not rows:
        return ERROR, "no uid_map"
    full = rows == [(0, 0, 4294967295)]
    outside = None
    for inside, out, n in rows:
        if inside <= os.getuid() < inside + n:
            outside = out + os.getuid() - inside
        if not full and out == 0:
            return ALLOWED, "uid_map maps root of the outer namespace: %s" % rows
    if outside == 0:
        return ALLOWED, "uid %d is 0 outside" % os.getuid()
    return DENIED, "uid %d is %s outside, map %s" % (os.getuid(), outside, rows)


def id_04():
    if os.getuid() == 0 or os.geteuid() == 0:
        return ALLOWED, "uid is 0 already"
    zero = (ctypes.c_uint * 1)(0)
    tries = [("setuid", 0), ("setresuid", 0, 0, 0), ("setgroups", 1, zero)]
    if os.getgid() != 0:
        tries += [("setgid", 0), ("setresgid", 0, 0, 0)]

    def one(t):
        def fn():
            r, e = call(*t)
            return (ALLOWED if r == 0 else DENIED), "%s: %s" % (t[0], name(e))
        return fn
    return worst(child(one(t)) for t in tries)


def id_05():
    found, tried = [], []
    for d in ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/lib/openssh", "/usr/libexec"):
        try:
            entries = list(os.scandir(d))
        except OSError:
            continue
        for e in entries:
            try:
                m = e.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(m.st_mode) and m.st_mode & stat.S_ISUID and m.st_uid != os.getuid():
                found.append(e.path)
    # Those that say --version and end.
    for path in sorted(found):
        if os.path.basename(path) not in ("su", "mount", "umount", "passwd", "chsh", "chfn", "gpasswd", "newgrp", "sudo", "pkexec"):
            continue
        try:
            p = subprocess.Popen([path, "--version"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError as e:
            tried.append("%s: %s" % (path, name(e.errno)))
            continue
        # Not reaped yet, its status still shows the identity that it ran with.
        os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
        s = status_of(p.pid)
        if not s:  # no /proc to be read, but the directory's owner is whom it ran as
            try:
                s = {"Uid": "%d %d %d" % (os.getuid(), os.stat("/proc/%d" % p.pid).st_uid, os.getuid())}
            except OSError:
                pass
        p.wait()
        ids = s.get("Uid", "").split()
        if len(ids) < 3:
            return ERROR, "no Uid line for %s" % path
        if len(set(ids[:3])) > 1 or int(s.get("CapPrm", "0"), 16):
            return ALLOWED, "%s ran with uids %s" % (path, ids)
        tried.append("%s: no effect" % path)
    if found and not tried:
        return ERROR, "set-uid files, none that can be tried: %s" % found[:5]
    return DENIED, "; ".join(tried[:4]) or "none visible"


def id_06():
    s = status_of("self")
    if "Seccomp" not in s:
        return ERROR, "no Seccomp line"
    return (DENIED if s["Seccomp"] == "2" else ALLOWED), "Seccomp: %s, filters: %s" % (s["Seccomp"], s.get("Seccomp_filters"))
