"""One call in a container of its own, as the code that the image's runner runs.

The runner's process forks: the child runs the user's code, the parent never does.
It reads what the child writes, stops it at its time, and says in lines of the log
what became of it. Then it stays: a container that ends is started again by the
platform, and the code would run a second time.
"""

import base64
import os
import select
import signal
import sys
import time
import zlib

text = load("text")
values = load("values")
sources = load("source")
verdict = load("verdict")
memory = load("memory")

CHUNK = 8000  # characters of a line: longer ones may be cut on their way
GRACE = 1.0  # seconds from each step of stopping to the next
STAY = 3600  # seconds that the container waits to be deleted
MARKER = "__DR_SANDBOX_RESULT__:"
SCRUBBED = ("DATAROBOT", "DR_", "DRX_", "OTEL_", "MLOPS_", "WORKLOAD_ID")


def main(settings, inputs):
    signal.alarm(0)  # the runner's own limit, which code could take away
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the first process of a container has no default
    code = zlib.decompress(base64.b64decode(os.environ["DRX_CODE_ZB64"]))
    result, outlet = os.pipe()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            Call(outlet, out_end, err_end).run(code, inputs)
        finally:
            os._exit(70)
    for fd in (outlet, out_end, err_end):
        os.close(fd)
    watched = Watch(child, result, out, err, settings)
    watched.wait()
    tell(settings["nonce"], watched.report())
    end = time.monotonic() + STAY
    while time.monotonic() < end:
        reap()
        time.sleep(1)


def reap():
    """End the zombies that fall to the first process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def tell(nonce, fields):
    """The result as lines of the log; each of them can be told from the user's own."""
    packed = base64.b64encode(zlib.compress(fields.encode("ascii"))).decode("ascii")
    parts = [packed[at : at + CHUNK] for at in range(0, len(packed), CHUNK)]
    lines = ["", ""]  # whatever stood in the line ends here
    for number, part in enumerate(parts):
        lines[-1] = "__DRX__%s:%d/%d:%s" % (nonce, number, len(parts), part)
        lines.append("")
    lines[-1] = '%s{"drx":"%s","parts":%d,"sum":%d}' % (MARKER, nonce, len(parts), zlib.crc32(packed.encode("ascii")))
    data = ("\n".join(lines) + "\n").encode("ascii")
    while data:
        data = data[os.write(1, data):]


class Kept:
    """The head and the tail of a stream, and how much there was."""

    def __init__(self, limit):
        self.half = limit // 2
        self.head = self.tail = b""
        self.count = 0

    def add(self, piece):
        self.count += len(piece)
        room = self.half - len(self.head)
        self.head += piece[:room] if room > 0 else b""
        rest = piece[max(room, 0):]
        self.tail = (self.tail + rest)[-self.half:]

    def fields(self, name):
        return {
            name + "_head": base64.b64encode(self.head).decode(),
            name + "_tail": base64.b64encode(self.tail).decode(),
            name + "_bytes": self.count,
        }


class Watch:
    """The parent's view of the child."""

    def __init__(self, child, result, out, err, settings):
        self.child = child
        self.result = result
        self.streams = {out: Kept(settings["output"]), err: Kept(settings["output"])}
        self.out, self.err = self.streams[out], self.streams[err]
        self.said = b""
        self.status = None
        self.start = time.monotonic()
        self.limit = settings["timeout"]
        self.timeout = False
        self.killed = False
        self.kills = memory.Kills()
        self.kills.begin()

    def wait(self):
        """Until the child has answered or ended; it is dead then, and all that it started in its group."""
        open_ends = {self.result} | set(self.streams)
        steps = [(self.limit, signal.SIGINT), (self.limit + GRACE, signal.SIGKILL)]
        while self.status is None and not self.said.endswith(b"\n"):
            passed = time.monotonic() - self.start
            if steps and passed >= steps[0][0]:
                sent = steps.pop(0)[1]
                self.timeout = True
                self.killed = sent == signal.SIGKILL
                self.signal(sent)
            left = steps[0][0] - passed if steps else 0.05
            self.read(open_ends, min(max(left, 0.001), 0.05))
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                self.status = status
        self.duration = time.monotonic() - self.start
        while self.read(open_ends, 0):
            pass
        self.signal(signal.SIGKILL)
        if self.status is None:
            self.status = os.waitpid(self.child, 0)[1]

    def read(self, open_ends, patience):
        ready = select.select(list(open_ends), [], [], patience)[0]
        for fd in ready:
            piece = os.read(fd, 1 << 16)
            if not piece:
                open_ends.discard(fd)
            elif fd == self.result:
                self.said += piece
                if len(self.said) > 8 << 20:
                    self.said = b""
                    self.signal(signal.SIGKILL)
            else:
                self.streams[fd].add(piece)
        return ready and open_ends

    def signal(self, number):
        """An interrupt is for the code alone, which may want to end its children itself."""
        for send in (os.kill,) if number == signal.SIGINT else (os.killpg, os.kill):
            try:
                send(self.child, number)
            except OSError:
                pass

    def report(self):
        fields = {"v": 1, "timeout": self.timeout, "killed": self.killed, "wall_s": self.duration}
        fields["exit"] = os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else -1
        fields["signal"] = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0
        fields["oom_killed"] = self.kills.since() > 0
        fields.update(self.out.fields("out"))
        fields.update(self.err.fields("err"))
        said = "null"
        if self.said.endswith(b"\n"):
            try:
                text.parse(self.said)
                said = self.said.decode("ascii").strip()
            except (ValueError, RecursionError):
                pass  # the user's code wrote there
        return text.compose(fields)[:-1] + ',"reply":' + said + "}"


class Unguarded:
    """In the place of the kernel's Interrupts: what user code does to this process, only its own call suffers."""

    count = 0  # the parent tells of the interrupts, and why they came

    def guard(self, function, *arguments):
        try:
            return function(*arguments), None
        except BaseException as error:
            return None, error


class Call:
    """The child: the user's code, in a real __main__."""

    def __init__(self, outlet, out, err):
        self.pid = os.getpid()
        self.outlet = os.dup2(outlet, 200, False)
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd, to in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, to)
        os.closerange(3, 200)
        self.notes = []
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in list(os.environ):
            if name.startswith(SCRUBBED):
                del os.environ[name]
        for encoding, stream in (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr)):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="surrogateescape" if encoding == "stdin" else "backslashreplace")
        self.enter()

    def enter(self):
        """A directory that can be written, as the root of a container often can't."""
        import tempfile

        for place in (None, "/dev/shm"):
            try:
                os.chdir(tempfile.mkdtemp(prefix="work-", dir=place))
                break
            except OSError:
                pass
        sys.path[:] = [entry for entry in sys.path if entry] + [os.getcwd()]
        sys.argv = [""]
        self.verdict = verdict.Verdict(Unguarded(), os.getcwd())

    def run(self, code, inputs):
        main = type(sys)("__main__")
        main.__builtins__ = sys.modules["builtins"]
        main.inputs = inputs
        sys.modules["__main__"] = main
        self.namespace = vars(main)
        self.sources = sources.Sources()
        fields = {"output": "null", "return_value": "null"}
        start = time.perf_counter()
        value = error = None
        try:
            value = self.execute(code.decode("utf-8", "surrogatepass"))
        except BaseException as raised:
            error = raised
        duration = time.perf_counter() - start
        if os.getpid() != self.pid:
            self.fell_through(error)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from here on, only the end stops it
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))
        if error is None:
            self.encode(fields, "output", value)
        if "_return" in self.namespace:
            self.encode(fields, "return_value", self.namespace["_return"])
        outcome = self.verdict.of(error)
        self.flush()
        parts = ['"%s":%s' % (key, value) for key, value in fields.items()]
        parts.append('"notes":[%s]' % ",".join(text.quote(note) for note in self.notes[:20]))
        outcome["duration_s"] = duration
        data = (text.compose(outcome)[:-1] + "," + ",".join(parts) + "}\n").encode("ascii")
        while data:
            data = data[os.write(self.outlet, data):]
        os._exit(0)

    def fell_through(self, error):
        """A child that the code forked came back into our hands: it ends here."""
        status = 0
        if error is not None:
            status = self.verdict.of(error)["exit_code"]
            if not issubclass(type(error), SystemExit):
                sys.__excepthook__(type(error), error, error.__traceback__)
        self.flush()
        os._exit(status)

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def execute(self, code):
        code = sources.clean(code)
        import linecache

        self.sources.add("<call 1>", code)
        self.sources.publish(linecache)
        body, last = sources.compiled(code, "<call 1>")
        if any(part is not None and part.co_flags & 0x80 for part in (body, last)):  # inspect.CO_COROUTINE
            import asyncio

            return asyncio.run(self.awaited(body, last))
        if body is not None:
            exec(body, self.namespace)
        return None if last is None else eval(last, self.namespace)

    async def awaited(self, body, last):
        value = None
        for part in (body, last):
            value = None
            if part is not None:
                value = eval(part, self.namespace)
                if part.co_flags & 0x80:
                    value = await value
        return value

    def encode(self, fields, key, value):
        if value is None:
            return
        try:
            fields[key], note = values.encode(value)
            if note:
                self.notes.append(key + ": " + note)
        except BaseException as failed:
            fields[key] = text.quote("<%s object>" % values.name(type(value)))
            self.notes.append("%s: could not be shown (%s)" % (key, values.name(type(failed))))
