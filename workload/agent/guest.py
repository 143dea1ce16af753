"""The interpreter: the kernel in a process of its own, its channel and its output as bytes with offsets."""

import fcntl
import marshal
import os
import select
import sys
import time

streams = load("streams")
processes = load("kernel/processes")

CHUNK = 1 << 16
PIPE = 1 << 20  # the most a pipe holds
REST = 0.005  # s that output is let gather: a million prints are not worth a million wakings
BEHIND = 8 << 20  # bytes of the channel that the client has not taken: then the interpreter waits
STOPPING = 10  # s for killed processes to end
MAX_IN = 80 << 20  # bytes for the interpreter that it has not taken

# What the new process runs: it takes the kernel's code from a pipe, since whatever lies in
# a file can be changed by user code, and would be started as its supervisor after a reset.
STARTER = """
import marshal, posix, resource, sys
def taken(fd):
    parts = []
    while True:
        part = posix.read(fd, 1 << 20)
        if not part:
            posix.close(fd)
            return b"".join(parts)
        parts.append(part)
compiled, limits, path = marshal.loads(taken(5))
for name, value in limits.items():
    number = getattr(resource, name)
    hard = resource.getrlimit(number)[1]
    value = value if hard < 0 or value <= hard else hard
    try:
        resource.setrlimit(number, (value, value))
    except (OSError, ValueError):
        if hard < 0 or value + 1 < hard:  # a wall may hold a limit by itself
            raise
__file__ = path
code = compiled["main"]
exec(code, globals())
"""

PASSED = (
    "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TZ", "JAVA_HOME", "R_HOME", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "NVIDIA_VISIBLE_DEVICES", "CUDA_HOME",
)
FOLDER = "/run/mcp-sandbox/kernel/"  # a name for tracebacks; there is no such place


def environment(given, workspace):
    """Made of nothing: the platform puts credentials into the container's."""
    temporary = next((path for path in ("/tmp", "/dev/shm") if os.access(path, os.W_OK)), workspace)
    threads = str(min(os.cpu_count() or 1, 4))
    found = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": temporary, "TMPDIR": temporary, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
        "MPLBACKEND": "Agg", "MPLCONFIGDIR": temporary + "/.matplotlib", "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "NUMEXPR_NUM_THREADS": threads,
    }
    found.update((name, given[name]) for name in PASSED if name in given)
    return found


class Guest:
    """At most one interpreter at a time; each start makes the next generation."""

    def __init__(self, agent, workspace):
        self.agent = agent
        self.workspace = workspace
        self.environment = environment(os.environ, workspace)
        self.compiled = {
            name[: -len(".py")]: compile(source, FOLDER + name, "exec", dont_inherit=True)
            for name, source in bundle["kernel"].items()
        }
        self.generation = 0
        self.pid = 0
        self.status = None  # of the process, once it has ended
        self.ends = {}  # name -> descriptor of ours
        self.resting = {}  # name of an output -> when to look at it again
        self.asked = lambda: None  # called before the interpreter gets a request
        self.reset()

    def reset(self):
        self.inbox = bytearray()  # what the interpreter has yet to take
        self.requests = streams.Requests()
        self.received = 0  # bytes of the channel from the client
        self.channel = streams.Channel()
        self.output = {"stdout": streams.Output(), "stderr": streams.Output()}

    def start(self, generation, options, limits):
        """The interpreter, fresh. The one before, and all that it started, has ended."""
        self.stop()
        self.reset()
        self.generation, self.status = generation, None
        pairs = {name: os.pipe() for name in ("in", "out", "stdout", "stderr", "code")}
        theirs = {"in": 0, "out": 1, "stdout": 1, "stderr": 1, "code": 0}
        null = os.open("/dev/null", os.O_RDONLY)
        numbers = {"stdout": 1, "stderr": 2, "in": 3, "out": 4, "code": 5}
        # Above the numbers that they get: none may be overwritten before it is moved.
        high = {name: high_copy(pairs[name][theirs[name]]) for name in numbers}
        moves = [(os.POSIX_SPAWN_DUP2, null, 0)] + [(os.POSIX_SPAWN_DUP2, high[name], numbers[name]) for name in numbers]
        arguments = [sys.executable or "python3", "-I", "-S", "-c", STARTER, "--in", "3", "--out", "4", "--workdir", self.workspace]
        for name, value in options.items():
            arguments += ["--" + name, str(value)]
        try:
            # Signals that we ignore or handle are the new process's as Python has them.
            self.pid = os.posix_spawn(arguments[0], arguments, self.environment, file_actions=moves, setsigdef=[n for n in range(1, 32) if n not in (9, 19)])
        finally:
            os.close(null)
            for name, pair in pairs.items():
                os.close(high[name])
                os.close(pair[theirs[name]])
        self.ends = {name: pair[1 - theirs[name]] for name, pair in pairs.items()}
        for name, fd in self.ends.items():
            os.set_blocking(fd, False)
        self.code = bytearray(marshal.dumps((self.compiled, limits, FOLDER + "main.py")))
        self.agent.watch(self.ends["code"], select.POLLOUT, self.push_code)
        self.agent.watch(self.ends["out"], select.POLLIN, self.pull_channel)
        for name in ("stdout", "stderr"):
            enlarge(self.ends[name])
            self.look(name)

    def stop(self):
        """SIGKILL all that runs here but ourselves, and wait until it is gone."""
        for name in list(self.ends):
            self.close(name)
        self.resting.clear()
        processes.everything(0)
        pause, end = 0.0005, time.monotonic() + STOPPING
        while self.reap() and time.monotonic() < end:
            select.select([], [], [], pause)
            pause = min(pause * 1.5, 0.02)
            processes.everything(0)
        self.pid = 0

    def reap(self):
        """Whether there are children yet."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status, self.pid = status, 0
                for name in ("stdout", "stderr"):
                    self.drain(name)
                processes.everything(0)  # whom it left can be reached by nobody

    def close(self, name):
        fd = self.ends.pop(name, None)
        if fd is not None:
            self.agent.watch(fd, 0, None)
            os.close(fd)

    # Bytes to the interpreter

    def take(self, offset, data):
        """Bytes of the channel that start at offset; those that are here already are not taken twice."""
        if offset > self.received:
            return False
        fresh = data[self.received - offset :]
        if fresh and "in" in self.ends:
            if len(self.inbox) + len(fresh) > MAX_IN:
                raise ValueError("the interpreter does not take what it is sent")
            if self.requests.put(fresh):
                self.asked()
            self.inbox += fresh
            self.received += len(fresh)
            self.push(select.POLLOUT)
        return True

    def push(self, _):
        try:
            while self.inbox and "in" in self.ends:
                del self.inbox[: os.write(self.ends["in"], self.inbox[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            return self.close("in")  # it has ended
        if "in" in self.ends:
            self.agent.watch(self.ends["in"], select.POLLOUT if self.inbox else 0, self.push)

    def push_code(self, _):
        try:
            del self.code[: os.write(self.ends["code"], self.code[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:
            self.code.clear()
        if not self.code:
            self.close("code")

    # Bytes of the interpreter

    def pull_channel(self, _):
        try:
            data = os.read(self.ends["out"], CHUNK)
        except BlockingIOError:
            return
        if not data:
            return self.close("out")
        if self.channel.put(data):
            # What was written before a reply is here before the reply is handed on.
            for name in ("stdout", "stderr"):
                self.drain(name)
        self.balance()

    def balance(self):
        if "out" in self.ends:
            self.agent.watch(self.ends["out"], 0 if len(self.channel.data) > BEHIND else select.POLLIN, self.pull_channel)

    def look(self, name):
        if name in self.ends:
            self.agent.watch(self.ends[name], select.POLLIN, lambda _: self.pull_output(name))

    def pull_output(self, name):
        size = self.pull(name)
        if size and size < CHUNK:  # the pipe holds the rest meanwhile
            self.agent.watch(self.ends[name], 0, None)
            self.resting[name] = self.agent.clock() + REST

    def due(self, now):
        return min(self.resting.values()) - now if self.resting else 60.0

    def turn(self, now):
        for name in [name for name, end in self.resting.items() if end <= now]:
            del self.resting[name]
            self.look(name)

    def pull(self, name):
        """One piece of output; False where there is none now."""
        if name not in self.ends:
            return False
        try:
            data = os.read(self.ends[name], CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close(name)
            return False
        self.output[name].put(data)
        return len(data)

    def drain(self, name):
        left = PIPE
        while left > 0:
            size = self.pull(name)
            if not size:
                return
            left -= size

    def ended(self):
        """How the process ended, once all of its channel was read."""
        if self.status is None or "out" in self.ends:
            return None
        if os.WIFEXITED(self.status):
            return {"exit": os.WEXITSTATUS(self.status)}
        return {"signal": os.WTERMSIG(self.status)}


def enlarge(fd):
    try:
        fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE)
    except OSError:
        pass  # the user has too many such pipes


def high_copy(fd):
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
