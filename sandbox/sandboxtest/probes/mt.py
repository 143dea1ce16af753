# MT: mounts and roots.
import tempfile

AT_FDCWD = -100
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2


def mt_01():
    def one(kind, flags):
        def fn():
            d = tempfile.mkdtemp(dir=os.getcwd())
            r, e = call("mount", b"none" if not flags else b"/", d.encode(), kind, flags, None)
            if r == 0:
                call("umount2", d.encode(), MNT_DETACH)
            os.rmdir(d)
            return (ALLOWED if r == 0 else DENIED), "mount %s: %s" % (kind, name(e))
        return child(fn)
    return worst([one(b"tmpfs", 0), one(b"proc", 0), one(b"", MS_BIND), one(b"ramfs", 0)])


def mt_02():
    targets = [m[0] for m in mounts() if "ro" in m[1]][:6] + ["/", "/usr", sys.prefix]

    def one(d):
        def fn():
            r, e = call("mount", None, d.encode(), None, MS_REMOUNT | MS_BIND, None)
            return (ALLOWED if r == 0 else DENIED), "remount %s: %s" % (d, name(e))
        return child(fn)

    def setattr_():
        attr = struct.pack("QQQQ", 0, 1, 0, 0)  # clear MOUNT_ATTR_RDONLY
        r, e = call("mount_setattr", AT_FDCWD, b"/", 0, attr, len(attr))
        return (ALLOWED if r == 0 else DENIED), "mount_setattr: %s" % name(e)
    return worst([one(d) for d in dict.fromkeys(targets)] + [child(setattr_)])


def mt_03():
    def fn():
        return worst([
            reach("fsopen", b"tmpfs", 0),
            reach("fspick", AT_FDCWD, b"/", 0),
            reach("fsmount", -1, 0, 0),
            reach("move_mount", -1, b"", -1, b"", 0),
        ])
    return child(fn)


def mt_04():
    return child(lambda: worst([reach("open_tree", AT_FDCWD, b"/", 1), reach("open_tree", AT_FDCWD, b"/", 1 | 0x8000)]))


def mt_05():
    targets = ["/proc", "/sys", "/dev", "/tmp", os.getcwd()] + [m[0] for m in mounts() if m[0] != "/"]

    def one(d):
        def fn():
            r, e = call("umount2", d.encode(), MNT_DETACH)
            return (ALLOWED if r == 0 else DENIED), "umount %s: %s" % (d, name(e))
        return child(fn)
    return worst(one(d) for d in list(dict.fromkeys(targets))[:24])


def mt_06():
    def chroot():
        r, e = call("chroot", b".")
        return (ALLOWED if r == 0 else DENIED), "chroot: %s" % name(e)
    # EINVAL would come after the permission check.
    return worst([child(chroot), child(lambda: reach("pivot_root", b".", b"."))])


def mt_07():
    root = os.stat("/")
    starts = [os.getcwd(), "/proc/self/cwd", "/proc/self/root"]
    for f in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISDIR(os.fstat(int(f)).st_mode):
                starts.append("/proc/self/fd/" + f)
        except OSError:
            pass
    if "unreachable" in os.getcwd():
        return ALLOWED, "cwd is %s" % os.getcwd()
    hits, tops = [], []
    for s in starts:
        up = s + "/" + "../" * 40
        try:
            top = os.stat(up)
        except OSError:
            continue
        tops.append(s)
        if (top.st_dev, top.st_ino) != (root.st_dev, root.st_ino):
            hits.append("%s climbs to another root" % s)
        if read(up + env["canary_file"].lstrip("/")) is not None:
            hits.append("%s climbs to the canary" % s)
    if not tops:
        return ERROR, "nothing to climb from"
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "%d starts end at our root" % len(tops))


def mt_08():
    class handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("f", ctypes.c_ubyte * 128)]
    h, mid, out = handle(128, 0), ctypes.c_int(0), []
    r, e = call("name_to_handle_at", AT_FDCWD, b"/usr", ctypes.byref(h), ctypes.byref(mid), 0)
    if r != 0:  # a made-up one: inode 2, as the original exploit did
        h = handle(8, 1)
        h.f[0] = 2
    fd = os.open(os.getcwd(), os.O_RDONLY)
    out.append(reach("open_by_handle_at", fd, ctypes.byref(h), os.O_RDONLY))
    os.close(fd)
    return worst(out)


def mt_09():
    """Every mount that may be written is one that is meant to be."""
    ok = {os.path.realpath(p) for p in private_places()} | {"/proc", "/dev/pts", "/dev/mqueue", "/dev/ptmx"}
    table = mounts()
    if not table:  # then those that there are everywhere
        table = [(d, [], "", [], "") for d in ("/", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/run",
                                               "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp", os.path.dirname(os.getcwd()))]
        ok = {os.path.realpath(os.getcwd()), os.path.realpath(TMP)}
    out = []
    for where, opts, kind, sup, _ in table:
        if "ro" in opts or "ro" in sup or where in ok:
            continue
        try:
            m = os.stat(where).st_mode
        except OSError as e:
            out.append((DENIED, "%s: %s" % (where, name(e.errno))))
            continue
        if stat.S_ISDIR(m):
            out.append(touch(where))
        elif stat.S_ISREG(m):
            out.append(try_open(where, os.O_WRONLY))
    return worst(out) if out else (DENIED, "%d mounts, none writable but %s" % (len(table), sorted(ok)))


def mt_10():
    """What mountinfo tells about the host: the paths that mounts come from."""
    hits = ["%s <- %s" % (w, root) for w, _, _, _, root in mounts() if root not in ("/", w)]
    return (ALLOWED, "; ".join(hits[:8])) if hits else (DENIED, "no path of the host")
