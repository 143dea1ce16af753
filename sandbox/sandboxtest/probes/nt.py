# NT: the network.
import select as _select


def family(f, *kinds, **kw):
    out = []
    for kind in kinds or (socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        for proto in kw.get("protos", (0,)):
            try:
                socket.socket(f, kind, proto).close()
                out.append((ALLOWED, "socket(%d, %d, %d)" % (f, kind, proto)))
            except OSError as e:
                out.append((DENIED, "socket(%d, %d, %d): %s" % (f, kind, proto, name(e.errno))))
    return worst(out)


def nt_01():
    return worst([family(socket.AF_INET, socket.SOCK_RAW, protos=(1, 6, 255)), family(socket.AF_INET6, socket.SOCK_RAW, protos=(58, 255))])


def nt_02():
    return family(17, socket.SOCK_RAW, socket.SOCK_DGRAM, protos=(0, 0x0300))


def nt_03():
    return family(16, socket.SOCK_RAW, socket.SOCK_DGRAM, protos=range(23))


def nt_04():
    return family(40)


def nt_05():
    return family(38, socket.SOCK_SEQPACKET)


def nt_06():
    return worst([family(31, protos=(0, 1)), family(29, protos=(0, 1, 2)), family(44)])


def nt_07():
    try:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(1)
            with socket.create_connection(s.getsockname(), timeout=2):
                return ALLOWED, "loopback of its own works"
    except OSError as e:
        return DENIED, "loopback: %s" % e


def dial(addr, fam, wait=1.0):
    """Whether a TCP connection gets out: a refusal by a peer is also an answer,
    and silence means that a route took the packet."""
    try:
        s = socket.socket(fam, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as e:
        return "socket: %s" % name(e.errno)
    with s:
        e = s.connect_ex(addr)
        if e == errno.EINPROGRESS:
            if not _select.select([], [s], [], wait)[1]:
                return "silence"
            e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return "connected" if e == 0 else name(e)


def nt_08():
    host, port = env["loopback"].rsplit(":", 1)
    out = []
    for fam, a in ((socket.AF_INET, host), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.1.2.3"), (socket.AF_INET6, "::1"),
                   (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET6, "::")):
        got = dial((a, int(port)), fam)
        out.append((ALLOWED if got == "connected" else DENIED, "%s:%s %s" % (a, port, got)))
    return worst(out)


def nt_09():
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(2)
            s.connect("\0" + env["abstract"])
        return ALLOWED, "connected to @%s" % env["abstract"]
    except OSError as e:
        listed = [l.split()[-1] for l in (read("/proc/net/unix") or b"").decode("utf-8", "replace").splitlines() if "@" in l]
        if any(env["abstract"] in l for l in listed):
            return ALLOWED, "the host's sockets are listed: %s" % listed[:4]
        return DENIED, "@%s: %s; %d listed" % (env["abstract"], name(e.errno), len(listed))


def nt_10():
    paths = [env["socket"], "/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
             "/run/systemd/notify", "/run/containerd/containerd.sock", "/tmp/.X11-unix/X0", "/run/snapd.socket", "/dev/log",
             "/run/podman/podman.sock", os.environ.get("SSH_AUTH_SOCK") or "/probe/none"]
    for top in ("/run", "/var/run", "/tmp", "/home", "/root", "/dev"):
        for n, (d, dirs, files) in enumerate(os.walk(top)):
            if n > 200:
                break
            paths += [os.path.join(d, f) for f in files]
    hits, seen = [], 0
    for p in dict.fromkeys(paths):
        try:
            m = os.stat(p)
        except OSError:
            continue
        seen += 1
        if stat.S_ISSOCK(m.st_mode) and m.st_uid != os.getuid() or p == env["socket"]:
            hits.append(p)
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "%d files, none a socket of others" % seen)


def nt_11():
    hits = []
    names = [l.split(":")[0].strip() for l in (read("/proc/net/dev") or b"").decode().splitlines() if ":" in l]
    try:
        names += [n for _, n in socket.if_nameindex()]
    except OSError:
        pass
    hits += ["interface %s" % n for n in sorted(set(names)) if n != "lo"]
    routes = (read("/proc/net/route") or b"").decode().splitlines()[1:]
    hits += ["route by %s" % r.split()[0] for r in routes if r.split()]
    for l in (read("/proc/net/ipv6_route") or b"").decode().splitlines():
        if l.split()[-1] != "lo":
            hits.append("route by %s" % l.split()[-1])
    return (ALLOWED, "; ".join(hits[:5])) if hits else (DENIED, "interfaces: %s" % (sorted(set(names)) or "none"))


def nt_12():
    out = []
    for fam, a in ((socket.AF_INET, "169.254.169.254"), (socket.AF_INET, "169.254.170.2"), (socket.AF_INET, "100.100.100.200"),
                   (socket.AF_INET6, "fd00:ec2::254")):
        got = "not dialled" if env.get("no_dial") else dial((a, 80), fam)
        out.append((ALLOWED if got in ("connected", "silence", "ECONNREFUSED") else DENIED, "%s: %s" % (a, got)))
        try:  # sends nothing: asks for a route
            with socket.socket(fam, socket.SOCK_DGRAM) as s:
                s.connect((a, 53))
                out.append((ALLOWED, "a route to %s from %s" % (a, s.getsockname()[0])))
        except OSError as e:
            out.append((DENIED, "route to %s: %s" % (a, name(e.errno))))
    return worst(out)


def nt_13():
    """Sockets of every family but AF_UNIX, AF_INET and AF_INET6."""
    return worst(family(f) for f in range(64) if f not in (0, 1, 2, 10))


def nt_14():
    """Any address at all, without sending: a route is enough."""
    out = []
    for fam, a in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "10.0.0.1"), (socket.AF_INET, "1.1.1.1"), (socket.AF_INET6, "2001:db8::1"),
                   (socket.AF_INET, "224.0.0.1"), (socket.AF_INET, "255.255.255.255")):
        try:
            with socket.socket(fam, socket.SOCK_DGRAM) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                s.connect((a, 9))
                if s.getsockname()[0] not in ("127.0.0.1", "::1"):
                    out.append((ALLOWED, "a route to %s" % a))
        except OSError as e:
            out.append((DENIED, "%s: %s" % (a, name(e.errno))))
    return worst(out) if out else (DENIED, "loopback alone")
