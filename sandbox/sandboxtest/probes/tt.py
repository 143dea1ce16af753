# TT: terminals.


def tt_01():
    c = ctypes.create_string_buffer(b"x")
    out = []

    def stuff(fd, label):
        # EIO: the kernel itself has TIOCSTI switched off.
        return [reach("ioctl", fd, 0x5412, c, also=(errno.EIO, errno.ENOTTY), label="TIOCSTI on " + label),
                reach("ioctl", fd, 0x541C, c, also=(errno.EIO, errno.ENOTTY, errno.EINVAL), label="TIOCLINUX on " + label)]

    def ours():
        try:
            m, s = os.openpty()
        except OSError as e:
            return DENIED, "openpty: %s" % e
        os.setsid()
        call("ioctl", s, 0x540E, 0)  # TIOCSCTTY: our own
        return worst(stuff(s, "a terminal of our own"))
    out.append(child(ours))
    for fd in (0, 1, 2):
        out += stuff(fd, "fd %d" % fd)
    names = ["/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1"]
    if os.path.isdir("/dev/pts"):
        names += ["/dev/pts/" + n for n in os.listdir("/dev/pts") if n != "ptmx"]
    for n in names:
        try:
            fd = os.open(n, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as e:
            out.append((DENIED, "%s: %s" % (n, name(e.errno))))
            continue
        # On a terminal of others nothing is stuffed: that it opens is enough.
        out.append((ALLOWED, "%s opens" % n))
        os.close(fd)
    return worst(out)


def tt_02():
    out = []
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
        out.append((ALLOWED, "/dev/tty opens"))
    except OSError as e:
        out.append((DENIED, "/dev/tty: %s" % name(e.errno)))
    nr = int(read("/proc/self/stat").rsplit(b")", 1)[1].split()[4])
    out.append((ALLOWED if nr else DENIED, "tty_nr = %d" % nr))
    for fd in (0, 1, 2):
        if os.isatty(fd):
            out.append((ALLOWED, "fd %d is a terminal" % fd))
    return worst(out)
