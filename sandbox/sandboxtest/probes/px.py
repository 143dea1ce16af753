# PX: what belongs to this product. These attack the kernel in their own
# process, where nothing is sacred: what must hold is the other side. So most of
# them report nothing; the table looks at the calls that follow.
import builtins, fcntl, gc, threading

TOKEN = "FOR" + "GED"  # in one word nowhere else, so that an echo of source is no hit


def channels():
    """Descriptors above 2 that are no files of ours: the kernel's."""
    out = []
    for fd in range(3, 1024):
        try:
            m = os.fstat(fd).st_mode
        except OSError:
            continue
        if stat.S_ISFIFO(m) or stat.S_ISSOCK(m):
            out.append(fd)
    return out


def shove(fd, data, seconds=1.0):
    """Writes what can be written without blocking for long."""
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return
    end = time.monotonic() + seconds
    try:
        os.set_blocking(fd, False)
        while data and time.monotonic() < end:
            if not select.select([], [fd], [], 0.1)[1]:
                continue
            data = data[os.write(fd, data[:1 << 16]):]
    except OSError:
        pass
    finally:
        try:
            os.set_blocking(fd, True)
        except OSError:
            pass


def shapes(body):
    n = len(body)
    return [struct.pack(">I", n) + body, struct.pack("<I", n) + body, struct.pack(">Q", n) + body, struct.pack("<Q", n) + body,
            b"W" + struct.pack(">I", n) + body, b"S" + struct.pack(">I", n) + body, b"r" + struct.pack(">I", 0),
            body + b"\n", b"Content-Length: %d\r\n\r\n" % n + body, b"%d\n" % n + body]


def reply(ident):
    keys = {"type": "result", "kind": "result", "op": "result", "t": "result", "event": "result", "status": "ok", "state": "kept",
            "stdout": TOKEN, "stderr": TOKEN, "output": TOKEN, "value": TOKEN, "return": TOKEN, "return_value": TOKEN, "error": "",
            "exit_code": 0, "exit": 0, "notes": [TOKEN], "ok": True, "done": True, "result": {"output": TOKEN, "return_value": TOKEN}}
    keys["id"] = keys["seq"] = keys["request"] = ident
    return json.dumps(keys).encode()


def px_01():
    """Forged frames of every likely shape, with ids that are not this call's."""
    fds = channels()
    for fd in fds:
        for ident in (2**31 - 7, -1, "nobody", None):
            for s in shapes(reply(ident)):
                shove(fd, s, 0.2)
    return HELD, "written into %s" % fds


def px_02():
    """Sits between the kernel and its channels, to record what goes out."""
    g = globals()
    g["recorded"], g["originals"] = [], {}
    for fd in channels():
        keep = os.dup(fd)
        try:
            s = os.fstat(fd)
            if stat.S_ISFIFO(s.st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                os.close(keep)
                continue
            if stat.S_ISSOCK(s.st_mode):  # what comes in must pass as well
                near, far = socket.socketpair()
                os.dup2(near.detach(), fd)
                r = far.detach()
                threading.Thread(target=pump, args=(keep, r, None), daemon=True).start()
            else:
                r, w = os.pipe()
                os.dup2(w, fd)
                os.close(w)
            originals[fd] = keep
            threading.Thread(target=pump, args=(r, keep, recorded), daemon=True).start()
        except OSError:
            pass
    return HELD, "STALE-" + TOKEN.lower()


def pump(r, w, log):
    try:
        while True:
            b = os.read(r, 1 << 16)
            if not b:
                return
            if log is not None:
                log.append((w, b))
            os.write(w, b)
    except OSError:
        pass


def px_02b():
    """Says again what was said in the call before."""
    for w, b in list(recorded):
        try:
            os.write(w, b)
        except OSError:
            pass
    return HELD, "replayed %d pieces" % len(recorded)


def px_03():
    for fd in channels():
        shove(fd, b"W" + struct.pack(">I", 0x7FFFFFFF), 0.2)
        shove(fd, struct.pack(">I", 0x7FFFFFFF), 0.2)
    return HELD, "2 GiB announced, big-endian"


def px_03b():
    for fd in channels():
        shove(fd, struct.pack("<Q", 0x80000000), 0.2)
        shove(fd, b"\xff" * 16, 0.2)
    return HELD, "2 GiB and more announced, little-endian"


def px_04():
    os.closerange(3, 1024)
    return HELD, "closed all above 2"


def px_05():
    if os.fork() == 0:
        try:
            end = time.monotonic() + 1.5
            fds = channels()
            for fd in fds:
                os.set_blocking(fd, False)
            while time.monotonic() < end:
                for fd in fds:
                    for act in (lambda: os.read(fd, 1 << 16), lambda: os.write(fd, shapes(reply(7))[0])):
                        try:
                            act()
                        except OSError:
                            pass
                time.sleep(0.01)
        finally:
            os._exit(0)
    time.sleep(0.3)  # so that it comes before our reply
    return HELD, "a child reads and writes all channels"


def px_06():
    import ast, io, traceback, types
    liar = lambda *a, **k: TOKEN
    saved = [os.write, json.dumps]
    for m, names in ((json, ("dumps", "loads", "dump", "load")), (os, ("write", "read", "fork", "waitpid", "dup2", "close")),
                     (traceback, ("format_exception", "format_exc", "print_exc", "TracebackException")), (ast, ("parse", "fix_missing_locations")),
                     (struct, ("pack", "unpack")), (builtins, ("print", "repr", "exec", "compile", "input", "open", "len"))):
        for n in names:
            setattr(m, n, liar)
    sys.displayhook = sys.excepthook = sys.unraisablehook = liar
    fake = types.ModuleType("__main__")
    fake.__dict__.update(globals())
    sys.modules["__main__"] = fake
    sys.modules["json"] = sys.modules["os"] = sys.modules["traceback"] = fake
    sys.stdout = sys.stderr = sys.stdin = liar
    return HELD, "everything lies now"


def px_07():
    """Reaches the kernel's frames and objects by way of gc and the stack."""
    mine, n = globals(), 0
    f = sys._getframe()
    while f is not None:
        g = f.f_globals
        if g is not mine:
            for k, v in list(g.items()):
                if callable(v) and not k.startswith("__"):
                    g[k] = lambda *a, **kw: TOKEN
                    n += 1
        f = f.f_back
    for o in gc.get_objects():
        try:
            if isinstance(o, socket.socket) or (hasattr(o, "fileno") and not isinstance(o, type) and o.fileno() > 2):
                o.close()
                n += 1
        except Exception:
            pass
    return HELD, "%d things broken" % n


def px_08():
    def tracer(frame, event, arg):
        if frame.f_globals is not mine:
            raise RuntimeError(TOKEN)
        return tracer
    mine = globals()
    threading.settrace(tracer)
    sys.setprofile(tracer)
    sys.settrace(tracer)
    return HELD, "traced"


def px_09():
    import atexit

    def last():
        for fd in channels():
            shove(fd, shapes(reply(1))[0], 0.2)
        time.sleep(1000)
    atexit.register(last)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return HELD, "an exit handler and a thread that never end"


def px_10():
    signal.signal(signal.SIGUSR1, lambda *a: None)
    for fd in channels():
        try:
            os.set_blocking(fd, False)
            signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
            for _ in range(50):
                os.kill(os.getpid(), signal.SIGUSR1)
            os.set_blocking(fd, True)
        except (OSError, ValueError):
            pass
    return HELD, "signals write into the channels"


def px_11():
    """A daemon: new session, two forks, its own name in the list of processes."""
    import subprocess
    code = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(300) # %s" % env["token"]
    subprocess.run([sys.executable, "-I", "-S", "-c", code])
    time.sleep(0.2)
    return HELD, "daemon started"


LIBRARY = ("json", "pickle", "struct", "ast", "traceback", "linecache", "signal", "types", "io", "os", "sitecustomize", "usercustomize",
           "threading", "asyncio", "codecs", "encodings", "site", "__main__", "_bootstrap", "select", "socket", "base64")


def places():
    """Where the probe may leave files for good: the workspace; the other private
    places if they are private indeed, which the host's canary in /tmp tells."""
    out = [os.getcwd()]
    if env["canary_file"] and not os.path.exists(os.path.dirname(env["canary_file"])):
        out += [TMP, "/dev/shm", os.path.expanduser("~")]
    return list(dict.fromkeys(os.path.realpath(p) for p in out if p != "/"))


def plant(files, elsewhere):
    """Leaves files in places(). What is elsewhere belongs to the host if there is
    no wall: there a file is made and removed at once, which is proof enough."""
    mine, n = places(), 0
    for d in elsewhere:
        if os.path.isdir(d) and not within(d, *(mine + [TMP, "/dev/shm"])):
            v = touch(d)
            if v[0] == ALLOWED:
                return v
    for d in mine:
        for f, body in files.items():
            try:
                os.makedirs(os.path.dirname(os.path.join(d, f)), exist_ok=True)
                with open(os.path.join(d, f), "wb") as h:
                    h.write(body)
                n += 1
            except OSError:
                pass
    return HELD, "%d files planted in %s" % (n, mine)


def px_12():
    """What a later interpreter might load by itself."""
    import site, sysconfig
    evil = b"print('%s')\nopen('poisoned', 'w').close()\n" % TOKEN.encode()
    user = ".local/lib/python%d.%d/site-packages/" % sys.version_info[:2]
    files = {}
    for f in ("sitecustomize.py", "usercustomize.py", "pythonstartup.py"):
        files[f] = files[user + f] = evil
    files["probe.pth"] = files[user + "probe.pth"] = b"import os; print('%s')\n" % TOKEN.encode()
    os.environ["PYTHONSTARTUP"], os.environ["PYTHONPATH"] = "pythonstartup.py", os.getcwd()
    return plant(files, [p for p in sys.path if p] + list(sysconfig.get_paths().values()))


def px_13():
    """A workspace that holds the names of the library, also compiled."""
    import py_compile
    os.makedirs("__pycache__", exist_ok=True)
    for m in LIBRARY:
        with open(m + ".py", "w") as h:
            h.write("print('%s')\nraise SystemExit(9)\n" % TOKEN)
        py_compile.compile(m + ".py", "__pycache__/%s.%s.pyc" % (m, sys.implementation.cache_tag), doraise=False)
    return HELD, "%d modules planted" % len(LIBRARY)


def px_14():
    """Links for the server to follow."""
    for n, to in (("probe-link", env["canary_file"]), ("probe-up", "../" * 30 + env["canary_file"].lstrip("/")), ("probe-root", "/"),
                  ("probe-proc", "/proc/self/root"), ("probe-fd", "/proc/self/fd/0")):
        try:
            os.symlink(to, n)
        except FileExistsError:
            pass
    return HELD, "links planted"


def px_15():
    """A state of another's making."""
    class Evil(object):
        def __reduce__(self):
            return exec, ("print('FOR' + 'GED')\nforged_state = 'FOR' + 'GED'",)
    import pickle
    blob = pickle.dumps({"mark": Evil(), "x": Evil()})
    files = {f: blob for f in ("state.pkl", "state.pickle", ".state.pkl", "checkpoint.pkl")}
    return plant(files, [os.path.dirname(os.getcwd()), "/"] + [m[0] for m in mounts()])


def px_16():
    body = json.dumps({"status": "ok", "output": TOKEN, "return_value": TOKEN, "exit_code": 0, "stdout": TOKEN})
    for stream in (sys.stdout, sys.stderr):
        for s in ("__DR_SANDBOX_RESULT__:" + body, "\n__DR_SANDBOX_RESULT__: " + body, '{"jsonrpc":"2.0","id":1,"result":%s}' % body):
            stream.write(s + "\n")
        stream.flush()
    return HELD, "the markers are printed"


def own_pidns():
    try:
        os.kill(env["host_pid"], 0)
    except PermissionError:
        return  # the same one perhaps, but signals don't leave the session
    except OSError:
        pass
    if os.readlink("/proc/self/ns/pid") == env["host_pidns"] or not env["host_pidns"].startswith("pid:"):
        raise NotHere("the host's pid namespace: not tried")


def px_17():
    own_pidns()
    for p in runners():
        for s in range(1, 65):
            try:
                os.kill(p, s)
            except OSError:
                pass
    time.sleep(0.5)
    return HELD, "all signals sent to %s" % runners()


def px_18():
    """By a child, since the caller itself is spared."""
    own_pidns()
    if os.fork() == 0:
        try:
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    time.sleep(2)
    return HELD, "survived"


def px_19():
    fds = channels()
    for fd in fds:
        shove(fd, b"W" + struct.pack(">I", 16 << 20) + b"A" * (64 << 20), 2)
    return HELD, "64 MiB into %s" % fds


def px_20():
    for fd in channels():
        try:
            os.dup2(1, fd)
            os.dup2(fd, 2)
        except OSError:
            pass
    return HELD, "standard output in place of the channels"


def px_21():
    """The worker ends behind its kernel's back, a child answers in its place."""
    if os.fork():
        os._exit(0)
    return HELD, "answered by a child of the dead worker"


def px_22():
    """Stops the parent and all that can be stopped."""
    own_pidns()
    for p in pids():
        if p != os.getpid():
            try:
                os.kill(p, signal.SIGSTOP)
            except OSError:
                pass
    return HELD, "all others stopped"
