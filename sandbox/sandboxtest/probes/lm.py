# LM: limits. Each tries to get half as much again as the session may have, and
# keeps it for a while, since some limits are held by a watch.
import mmap, threading

MB = 1 << 20
HOLD = env.get("hold_s", 2.5)
LIM = env["limits"]
NR["shmdt"] = (67, 197)


def beyond(limit, step, take, slack=0):
    """take(step) until limit * 1.5 is passed; an error is the limit."""
    got = 0
    try:
        while got <= limit * 3 // 2 + slack:
            take(step)
            got += step
        time.sleep(HOLD)
    except (OSError, MemoryError, RuntimeError) as e:
        return HELD, "%s after %d of %d" % (type(e).__name__ + (" " + name(e.errno) if isinstance(e, OSError) and e.errno else ""), got, limit)
    return ALLOWED, "had %d where %d was the limit" % (got, limit)


def lm_01():
    kept = []
    try:
        return beyond(LIM["memory"], 8 * MB, lambda n: kept.append(b"\1" * n))
    finally:
        del kept[:]


def lm_02():
    """Four processes, each below the limit, together at 1.8 of it."""
    r, w = os.pipe()
    each, kids = LIM["memory"] * 45 // 100, []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                kept = []
                for _ in range(each // MB):
                    kept.append(b"\1" * MB)
                os.write(w, b"y")
                time.sleep(HOLD + 6)
            finally:
                os._exit(0)
        kids.append(pid)
    os.close(w)
    got, end = b"", time.monotonic() + 6
    while len(got) < 4 and time.monotonic() < end:
        if select.select([r], [], [], 0.2)[0]:
            got += os.read(r, 8)
        if any(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) for pid in kids):
            break
    if len(got) == 4:
        time.sleep(HOLD)
    alive = 0
    for pid in kids:
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            alive += 1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    os.close(r)
    if len(got) == 4 and alive == 4:
        return ALLOWED, "four processes held %d MB together, the limit is %d" % (4 * each // MB, LIM["memory"] // MB)
    return HELD, "%d got their memory, %d lived" % (len(got), alive)


def lm_03():
    """Memory files, none larger than a file may be, filled and never mapped."""
    kept, each = [], min(LIM["disk"], 16 * MB)

    def take(n):
        fd, e = call("memfd_create", b"probe", 0)
        if fd < 0:
            raise OSError(e, "memfd_create")
        kept.append(fd)
        left = n
        while left:
            left -= os.write(fd, b"\1" * min(left, MB))
        time.sleep(0.02)  # the others are to be answered meanwhile
    try:
        v, d = child(lambda: beyond(LIM["memory"], each, take), timeout=HOLD + 20, deaths=(signal.SIGKILL,))
        return (HELD if v == DENIED else v), d
    finally:
        for fd in kept:
            os.close(fd)


def fill(place, limit, each):
    d = os.path.join(place, "probe-fill")
    try:
        os.mkdir(d)
    except OSError as e:
        return HELD, "%s: %s" % (d, name(e.errno))
    state = {"n": 0, "left": 0, "fd": -1}

    def take(n):
        if state["left"] < n:
            if state["fd"] >= 0:
                os.close(state["fd"])
            state["fd"] = os.open(os.path.join(d, str(state["n"])), os.O_CREAT | os.O_WRONLY)
            state["n"], state["left"] = state["n"] + 1, each
        done = os.write(state["fd"], b"\1" * n)
        if done < n:
            raise OSError(errno.ENOSPC, "short write")
        state["left"] -= n
    try:
        return beyond(limit, MB, take, slack=2 * MB)
    finally:
        if state["fd"] >= 0:
            os.close(state["fd"])
        clear(d)


def clear(d):
    import shutil
    shutil.rmtree(d, ignore_errors=True)


def many(place, limit):
    d = os.path.join(place, "probe-many")
    try:
        os.mkdir(d)
    except OSError as e:
        return HELD, "%s: %s" % (d, name(e.errno))
    n = [0]

    def take(k):
        for _ in range(k):
            os.close(os.open(os.path.join(d, str(n[0])), os.O_CREAT | os.O_WRONLY))
            n[0] += 1
    try:
        return beyond(limit, 50, take, slack=200)
    finally:
        clear(d)


def lm_04():
    return fill("/dev/shm", LIM["shm"], 8 * MB)


def lm_05():
    return fill(TMP, LIM["disk"], LIM["disk"] // 4)


def lm_06():
    return many(TMP, LIM["inodes"])


def lm_07():
    return fill(os.getcwd(), LIM["disk"], LIM["disk"] // 4)


def lm_08():
    return many(os.getcwd(), LIM["inodes"])


def lm_09():
    kids = []

    def take(n):
        for _ in range(n):
            pid = os.fork()
            if pid == 0:
                try:
                    time.sleep(HOLD + 15)
                finally:
                    os._exit(0)
            kids.append(pid)
    try:
        v = beyond(LIM["tasks"], 1, take)
        if v[0] == HELD:
            time.sleep(1.5)  # the others are asked meanwhile
        return v
    finally:
        for pid in kids:
            os.kill(pid, signal.SIGKILL)
        for pid in kids:
            os.waitpid(pid, 0)


def lm_10():
    go, ts = threading.Event(), []

    def take(n):
        t = threading.Thread(target=go.wait, daemon=True)
        t.start()
        ts.append(t)
    try:
        v = beyond(LIM["tasks"], 1, take)
        if v[0] == HELD:
            time.sleep(1.5)
        return v
    finally:
        go.set()
        for t in ts:
            t.join()


def lm_11():
    kept = []
    try:
        return beyond(LIM["open_files"], 1, lambda n: kept.append(os.open("/dev/null", os.O_RDONLY)))
    finally:
        for fd in kept:
            os.close(fd)


def lm_12():
    p = os.path.join(os.getcwd(), "probe-big")
    fd = os.open(p, os.O_CREAT | os.O_RDWR)
    try:
        os.ftruncate(fd, LIM["disk"] * 2)
        return ALLOWED, "one file of %d bytes, the limit is %d" % (os.fstat(fd).st_size, LIM["disk"])
    except OSError as e:
        return HELD, "ftruncate: %s" % name(e.errno)
    finally:
        os.close(fd)
        os.unlink(p)


def lm_13():
    kept = []

    def take(n):
        m = mmap.mmap(-1, n)  # shared, anonymous
        m.write(b"\1" * n)
        kept.append(m)
    try:
        return beyond(LIM["memory"], 8 * MB, take)
    finally:
        for m in kept:
            m.close()


def lm_14():
    """System V shared memory, filled and let go: it belongs to no process then."""
    ids = []

    def take(n):
        shm, e = call("shmget", 0, n, 0o600 | 0o1000)
        if shm < 0:
            raise OSError(e, "shmget")
        ids.append(shm)
        at, e = call("shmat", shm, None, 0)
        if at < 0 and e:
            raise OSError(e, "shmat")
        ctypes.memset(at, 1, n)
        r, e = call("shmdt", at)
        if r < 0:
            raise OSError(e, "shmdt")
        time.sleep(0.02)
    try:
        v, d = child(lambda: beyond(LIM["memory"], 8 * MB, take), timeout=HOLD + 20, deaths=(signal.SIGKILL,))
        return (HELD if v == DENIED else v), d
    finally:
        for line in (read("/proc/sysvipc/shm") or b"").decode().splitlines()[1:]:
            f = line.split()
            if int(f[7]) == os.getuid() and int(f[6]) == 0 and int(f[3]) == 8 * MB:
                call("shmctl", int(f[1]), 0, None)  # IPC_RMID


def lm_15():
    """Every core kept busy by many; others must be answered meanwhile."""
    kids = []
    for _ in range(min(12, LIM["tasks"] // 2)):
        pid = os.fork()
        if pid == 0:
            end = time.monotonic() + HOLD
            while time.monotonic() < end:
                pass
            os._exit(0)
        kids.append(pid)
    for pid in kids:
        os.waitpid(pid, 0)
    return HELD, "%d processes were busy for %g s" % (len(kids), HOLD)
