# Runs behind the wall for the doctor: says what holds around it. What it says of
# namespaces the server compares with its own.
import os
import resource


def status():
    with open("/proc/self/status") as f:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    names = ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")
    return {name: lines[name].strip() for name in names if name in lines}


def asked():
    # Where /proc is closed the kernel can be asked.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_uint32 * 6)()
    if libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), words):
        return {}
    sets = {name: "%08x%08x" % (words[i + 3], words[i]) for i, name in enumerate(("CapEff", "CapPrm", "CapInh"))}
    sets["CapAmb"] = sets["CapPrm"]  # a capability is ambient only while it is permitted
    return {"Seccomp": str(libc.prctl(21, 0, 0, 0, 0)), "NoNewPrivs": str(libc.prctl(39, 0, 0, 0, 0)), **sets}


def namespaces():
    seen = {}
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        try:
            seen[name] = os.readlink("/proc/self/ns/" + name)
        except OSError:
            pass
    return seen


def landlock():
    # We may open these, says the file system; so who refuses is Landlock.
    for path, want, mode in (("/proc/self/oom_score_adj", os.W_OK, os.O_WRONLY), ("/proc/self/status", os.R_OK, os.O_RDONLY)):
        if not os.access(path, want):
            continue
        try:
            os.close(os.open(path, mode))
        except PermissionError:
            return "holds"
        except OSError:
            pass
    return ""


def limits():
    names = ("NPROC", "NOFILE", "DATA", "FSIZE")
    return {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1] for name in names if hasattr(resource, "RLIMIT_" + name)}


def attempt(action, default):
    try:
        return action()
    except Exception:
        return default


_return = {
    "status": attempt(status, None) or attempt(asked, {}),
    "namespaces": attempt(namespaces, {}),
    "landlock": attempt(landlock, ""),
    "limits": attempt(limits, {}),
    "pid": os.getpid(),
    "uid": os.getuid(),
    "processes": attempt(lambda: sorted(int(p) for p in os.listdir("/proc") if p.isdigit()), []),
}
