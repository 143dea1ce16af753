# FS: files and devices.
import subprocess, sysconfig


def system_dirs():
    return ["/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/bin", "/sbin", "/lib",
            "/lib64", "/opt", "/home", "/root", "/var", "/var/tmp", "/var/lib", "/dev", "/dev/pts", "/proc", "/sys",
            "/run", "/mnt", "/media", "/srv", "/boot"]


def fs_01():
    priv = [p for p in private_places() if p != "/"]
    out, tmp = [], os.stat("/tmp").st_dev if os.path.isdir("/tmp") else None
    dirs = system_dirs() + [os.path.dirname(os.getcwd()), os.path.dirname(env["canary_file"])]
    for d in dict.fromkeys(dirs):
        if d in priv:
            continue
        if within(d, *priv):
            continue
        try:
            if os.stat(d).st_dev == tmp != os.stat("/").st_dev:
                continue  # the private tmpfs under another name
        except OSError:
            pass
        out.append(touch(d))
    for f in ("/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache", env["canary_file"]):
        out.append(try_open(f, os.O_WRONLY))
        try:
            os.chmod(f, stat.S_IMODE(os.stat(f).st_mode))
            out.append((ALLOWED, "chmod %s" % f))
        except OSError as e:
            out.append((DENIED, "chmod %s: %s" % (f, name(e.errno))))
    return worst(out)


def fs_02():
    p = os.path.join(os.getcwd(), "probe-fs-02")
    with open(p, "w") as f:
        f.write("hello")
    os.rename(p, p + "b")
    with open(p + "b") as f:
        ok = f.read() == "hello"
    os.unlink(p + "b")
    return (ALLOWED if ok else DENIED), "wrote, renamed, read, removed in %s" % os.getcwd()


def fs_03():
    targets = [env["canary_file"], "/etc/passwd", "/etc/hosts", os.path.realpath(sys.executable), os.__file__, "/proc/self/exe"]
    out = []
    for t in targets:
        for place in (os.getcwd(), TMP):
            p = os.path.join(place, "probe-fs-03")
            try:
                os.link(t, p)
                out.append((ALLOWED, "linked %s into %s" % (t, place)))
                os.unlink(p)
            except OSError as e:
                out.append((DENIED, "%s: %s" % (t, name(e.errno))))
            try:
                fd = os.open(t, os.O_RDONLY)
            except OSError:
                continue
            try:
                os.link("/proc/self/fd/%d" % fd, p, follow_symlinks=True)
                out.append((ALLOWED, "linked an open %s into %s" % (t, place)))
                os.unlink(p)
            except (OSError, NotImplementedError) as e:
                out.append((DENIED, "open %s: %s" % (t, e)))
            os.close(fd)
    return worst(out)


def fs_04():
    hits = []
    secrets = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/krb5.keytab", "/root/.bash_history",
               "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/proc/1/environ_of_host",
               "/var/lib/dpkg/status", "/var/log/dpkg.log", "/etc/machine-id", env["canary_file"]]
    for d in ("/etc/ssh", "/root/.ssh", "/root/.aws", "/root/.config", "/root/.docker", "/root/.kube",
              "/var/spool/cron", "/etc/docker", "/etc/NetworkManager", "/etc/ssl/private"):
        try:
            secrets += [os.path.join(d, n) for n in os.listdir(d)]
            hits.append("%s lists" % d)
        except OSError:
            pass
    for p in secrets:
        try:
            if stat.S_ISSOCK(os.stat(p).st_mode):
                hits.append("%s is there" % p)
        except OSError:
            pass
        if read(p, 1):
            hits.append("%s reads" % p)
    for pre in ("/proc/self/root", "/proc/self/cwd/" + "../" * 40, "/proc/thread-self/root"):
        if read(pre + env["canary_file"]) is not None:
            hits.append("canary by way of %s" % pre)
    # A home shows no more than the way to what is mounted on purpose.
    ways = [os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, os.getcwd(), sys.executable)]
    ways += [m[0] for m in mounts()]
    for home in ["/root"] + ["/home/" + h for h in (os.listdir("/home") if os.path.isdir("/home") else [])]:
        try:
            names = os.listdir(home)
        except OSError:
            continue
        other = [n for n in names if not any(within(w, os.path.join(home, n)) for w in ways)]
        if other:
            hits.append("%s shows %s" % (home, other[:5]))
    return (ALLOWED, "; ".join(hits[:6])) if hits else (DENIED, "%d paths tried" % len(secrets))


KNOWN_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0), "ptmx": (5, 2)}


def fs_05():
    out = []
    for place in (os.getcwd(), TMP, "/dev/shm", "/dev"):
        for kind, dev in ((stat.S_IFCHR, (1, 3)), (stat.S_IFBLK, (7, 250))):
            p = os.path.join(place, "probe-fs-05")
            try:
                os.mknod(p, 0o600 | kind, os.makedev(*dev))
                os.unlink(p)
                out.append((ALLOWED, "mknod in %s" % place))
            except OSError as e:
                out.append((DENIED, "mknod in %s: %s" % (place, name(e.errno))))
    for dirpath, _, files in os.walk("/dev"):
        for f in files:
            p = os.path.join(dirpath, f)
            try:
                s = os.lstat(p)
            except OSError:
                continue
            rel = os.path.relpath(p, "/dev")
            if stat.S_ISBLK(s.st_mode):
                out.append((ALLOWED, "block device %s" % p))
            elif stat.S_ISCHR(s.st_mode):
                dev = (os.major(s.st_rdev), os.minor(s.st_rdev))
                if KNOWN_DEVICES.get(rel) != dev and not rel.startswith("pts/"):
                    out.append((ALLOWED, "%s is device %d:%d" % ((p,) + dev)))
    return worst(out)


def fs_06():
    names = ["mem", "kmem", "kmsg", "port", "sda", "vda", "nvme0n1", "xvda", "fuse", "kvm", "net/tun", "loop0", "loop-control",
             "mapper/control", "vhost-net", "vhost-vsock", "vsock", "uinput", "userfaultfd", "vfio/vfio", "dri/card0", "nvram",
             "cpu/0/msr", "rtc0", "console", "tty0", "tty1", "ttyS0", "initctl", "autofs", "btrfs-control", "uhid", "mem0"]
    return worst(try_open("/dev/" + n, flags | os.O_NOCTTY) for n in names for flags in (os.O_RDONLY, os.O_RDWR))


def fs_07():
    p = env.get("dev_null", "/dev/null")
    s = os.stat(p)
    if not stat.S_ISCHR(s.st_mode) or s.st_rdev != os.makedev(1, 3):
        return ALLOWED, "%s is no null device: mode %o, device %x" % (p, s.st_mode, s.st_rdev)
    with open(p, "r+b", buffering=0) as f:
        f.write(b"x" * 100)
        if f.read(1) != b"":
            return ALLOWED, "%s remembers" % p
    return DENIED, "%s is 1:3" % p


def fs_08():
    out = []
    true = next((p for p in ("/bin/true", "/usr/bin/true") if os.path.exists(p)), None)
    if true is None:
        raise NotHere("no true to copy")
    body = read(true, 1 << 26)
    for place in (os.getcwd(), TMP, "/dev/shm"):
        p = os.path.join(place, "probe-fs-08")
        try:
            with open(p, "wb") as f:
                f.write(body)
            os.chmod(p, 0o700)
            rc = subprocess.run([p]).returncode
            out.append("%s runs (%d)" % (place, rc))
        except OSError as e:
            out.append("%s: %s" % (place, name(e.errno)))
        finally:
            if os.path.exists(p):
                os.unlink(p)
    return (ALLOWED if any("runs" in o for o in out) else DENIED), "; ".join(out)


def fs_09():
    fd, e = call("memfd_create", b"probe", 0)
    if fd < 0:
        return DENIED, "memfd_create: %s" % name(e)
    true = next((p for p in ("/bin/true", "/usr/bin/true") if os.path.exists(p)), None)
    if true is None:
        return ALLOWED, "memfd_create works; no program to run from it"
    os.write(fd, read(true, 1 << 26))
    try:
        rc = subprocess.run(["/proc/self/fd/%d" % fd], pass_fds=[fd]).returncode
        return ALLOWED, "ran a program from memory, status %d" % rc
    except OSError as e:
        return ALLOWED, "memfd_create works, exec: %s" % name(e.errno)
    finally:
        os.close(fd)


def fs_10():
    meant = set(KNOWN_DEVICES) | {"fd", "stdin", "stdout", "stderr", "shm", "pts", "mqueue"}
    there = set(os.listdir("/dev"))
    other = sorted(there - meant)
    if not there & {"null", "zero", "urandom"}:
        return ERROR, "no /dev to look at: %s" % sorted(there)
    return (ALLOWED, "besides: %s" % other[:12]) if other else (DENIED, "just %s" % sorted(there))


def fs_11():
    dirs = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable)), os.path.dirname(os.__file__)}
    dirs |= {p for k, p in sysconfig.get_paths().items() if os.path.isdir(p)}
    dirs |= {os.path.join(os.path.dirname(os.__file__), d) for d in ("__pycache__", "encodings", "json", "lib-dynload")}
    out = [touch(d) for d in sorted(dirs) if os.path.isdir(d)]
    out += [try_open(f, os.O_WRONLY) for f in (os.__file__, json.__file__, os.path.realpath(sys.executable))]
    return worst(out)


def fs_12():
    p = os.path.join(os.getcwd(), "probe-fs-12")
    try:
        os.mkfifo(p)
        os.unlink(p)
    except OSError as e:
        return DENIED, "mkfifo: %s" % name(e.errno)
    return ALLOWED, "a named pipe in the workspace: the server must not open it blindly"


def fs_13():
    """Links of its own making lead to nothing that a path would not."""
    out = []
    for target in (env["canary_file"], "/etc/shadow", "/proc/1/root" + env["canary_file"]):
        p = os.path.join(os.getcwd(), "probe-fs-13")
        os.symlink(target, p)
        got = read(p, 1)
        os.unlink(p)
        out.append((ALLOWED if got else DENIED, "link to %s: %r" % (target, got)))
    return worst(out)
