# SY: system calls that have no business here. EPERM and ENOSYS are refusals;
# EINVAL, EFAULT, EBADF or ENOENT mean that the call was reached.
import mmap

BUF = ctypes.create_string_buffer(65536)


def sy_01():
    # The id of the session keyring; searching it; joining a new one.
    return child(lambda: worst([reach("keyctl", 0, -3, 0), reach("keyctl", 10, -3, b"user", b"probe", 0), reach("keyctl", 1, None)]))


def sy_02():
    # The process keyring goes with the child.
    return child(lambda: worst([reach("add_key", b"user", b"probe", b"x", 1, -2), reach("request_key", b"user", b"probe-none", None, 0)]))


def sy_03():
    return child(lambda: reach("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def sy_04():
    return child(lambda: worst([reach("userfaultfd", os.O_CLOEXEC), reach("userfaultfd", 1, label="userfaultfd(user mode only)"),
                                try_open("/dev/userfaultfd", os.O_RDWR)]))


def sy_05():
    prog = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0))
    lic = ctypes.create_string_buffer(b"GPL")
    load = ctypes.create_string_buffer(struct.pack("<IIQQIIQII", 1, 2, ctypes.addressof(prog), ctypes.addressof(lic), 0, 0, 0, 0, 0), 128)
    make = ctypes.create_string_buffer(struct.pack("<IIIII", 2, 4, 4, 1, 0), 128)  # BPF_MAP_CREATE, an array
    return child(lambda: worst([reach("bpf", 5, load, 48, label="bpf(PROG_LOAD)"), reach("bpf", 0, make, 20, label="bpf(MAP_CREATE)"),
                                reach("bpf", 11, make, 8, label="bpf(PROG_GET_NEXT_ID)")]))


def sy_06():
    attr = ctypes.create_string_buffer(struct.pack("<IIQQQQQ", 1, 112, 0, 0, 0, 0, 1 | 1 << 5 | 1 << 6), 112)
    return child(lambda: reach("perf_event_open", attr, 0, -1, -1, 0))


def sy_07():
    # Unknown flags: EINVAL, after the permission check. No segment is given.
    return child(lambda: worst([reach("kexec_load", 0, 0, None, 0xFF00), reach("kexec_file_load", -1, -1, 0, None, 0xFF00)]))


def sy_08():
    # No image at all: ENOEXEC or EBADF, after the permission check.
    return child(lambda: worst([reach("init_module", BUF, 0, b""), reach("finit_module", -1, b"", 0),
                                reach("delete_module", b"probe_no_such_module", os.O_NONBLOCK)]))


def sy_09():
    return child(lambda: reach("reboot", 0, 0, 0, None))


def sy_10():
    return child(lambda: worst([reach("syslog", 3, BUF, len(BUF), label="syslog(READ_ALL)"), reach("syslog", 10, None, 0, label="syslog(SIZE_BUFFER)")]))


def sy_11():
    return child(lambda: worst([reach("swapon", b"/probe/none", 0), reach("swapoff", b"/probe/none")]))


def sy_12():
    return child(lambda: reach("acct", b"/probe/none"))


def sy_13():
    def fn():
        return worst([reach("iopl", 3), reach("ioperm", 0x80, 1, 1)])
    return child(fn)


def sy_14():
    return child(lambda: worst([reach("fanotify_init", 0, os.O_RDONLY), reach("fanotify_init", 0x200, os.O_RDONLY, label="fanotify_init(REPORT_FID)")]))


def sy_15():
    return child(lambda: worst([reach("kcmp", os.getpid(), os.getpid(), 0, 0, 0)] + [reach("kcmp", p, os.getpid(), 1, 0, 0) for p in runners()]))


def sy_16():
    return child(lambda: reach("quotactl", (0x800001 << 8) & 0xFFFFFFFF, None, 0, None))  # Q_SYNC


def sy_17():
    return child(lambda: reach("modify_ldt", 0, BUF, 64))


def sy_18():
    return child(lambda: reach("personality", 0x0040000))


def sy_19():
    def fn():
        os.setsid()  # without a terminal of ours to hang up
        return reach("vhangup")
    return child(fn)


def sy_20():
    return child(lambda: reach("memfd_secret", 0))


def sy_21():
    def fn():
        t = time.clock_gettime_ns(time.CLOCK_REALTIME)
        ts = ctypes.create_string_buffer(struct.pack("qq", t // 10**9, t % 10**9))
        return reach("clock_settime", 0, ts)
    return child(fn)


def sy_22():
    n = os.uname().nodename.encode()
    d = (read("/proc/sys/kernel/domainname") or b"(none)\n").strip()
    return child(lambda: worst([reach("sethostname", n, len(n)), reach("setdomainname", d, len(d))]))


def sy_23():
    if not X86:
        raise NotHere("x32 is of x86_64")

    def fn(nr, label):
        r, e = call(0x40000000 | nr, 0, 0, 0)
        return (ALLOWED if r >= 0 else DENIED), "x32 %s: %d %s" % (label, r, name(e))
    return worst([child(lambda: fn(39, "getpid")), child(lambda: fn(102, "getuid")), child(lambda: fn(520 + 1, "ptrace"))])


def machine_code(code):
    """A function of (long, long, long, long) in an executable page below 4 GiB."""
    size = 4096
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    at = libc.mmap(None, size, 7, 0x22 | 0x40, -1, 0)  # MAP_PRIVATE|ANONYMOUS|32BIT
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap of an executable page")
    ctypes.memmove(at, code, len(code))
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)(at)


def sy_24():
    """32-bit system calls by int 0x80, which carry other numbers."""
    if not X86:
        raise NotHere("int 0x80 is of x86")
    # push rbx; mov eax,edi; mov ebx,esi; mov r8d,edx; mov edx,ecx; mov ecx,r8d; int 0x80; pop rbx; ret
    code = b"\x53\x89\xf8\x89\xf3\x41\x89\xd0\x89\xca\x44\x89\xc1\xcd\x80\x5b\xc3"

    def one(nr, label, *a):
        def fn():
            r = machine_code(code)(nr, *(list(a) + [0, 0, 0])[:3])
            if r >= 0:
                return ALLOWED, "32-bit %s = %d" % (label, r)
            # ENOSYS and EPERM are refusals; any other error came from the call.
            return (DENIED if -r in (errno.ENOSYS, errno.EPERM) else ALLOWED), "32-bit %s: %s" % (label, name(-r))
        return child(fn, deaths=(signal.SIGSEGV,))
    return worst([one(20, "getpid"), one(288, "keyctl", 0, -3, 0), one(310, "unshare", 0x10000000), one(425, "io_uring_setup", 0, 0)])


def sy_25():
    """ioctl numbers are compared on 32 bits by the kernel: so must a filter."""
    c = ctypes.create_string_buffer(b"x")

    try:
        m, s = os.openpty()
    except OSError:
        # No terminal to try it on: the filter alone is asked. ENOTTY comes after it.
        return worst([reach("ioctl", 0, 0x5412 | 1 << 32, c, label="TIOCSTI|1<<32 on fd 0"), reach("ioctl", 0, 0x541C | 1 << 40, c, label="TIOCLINUX|1<<40 on fd 0")])

    def fn():
        os.setsid()
        call("ioctl", s, 0x540E, 0)  # TIOCSCTTY
        return worst([reach("ioctl", s, 0x5412 | 1 << 32, c, also=(errno.EIO,), label="TIOCSTI|1<<32"),
                      reach("ioctl", s, 0x541C | 1 << 40, c, also=(errno.EIO,), label="TIOCLINUX|1<<40")])
    try:
        return child(fn)
    finally:
        os.close(m), os.close(s)
