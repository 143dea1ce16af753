"""The worker: runs user code, in its main thread, in a real __main__.

User code shares this process and can wreck it by force. That may end the
interpreter; it can't make the server believe anything about deaths, limits or
signals, which only the supervisor tells.
"""

import select
import sys
from posix import _exit, close, dup2, environ, getpid, sysconf, write
from sys import _current_frames, getrecursionlimit, modules, setprofile, setrecursionlimit, settrace
from time import perf_counter

displays = load("displays")
forks = load("forks")
frames = load("frames")
home = load("home")
hooks = load("hooks")
interrupts = load("interrupts")
libc = load("libc")
loop = load("loop")
rehearsal = load("rehearsal")  # before user code can have used up the descriptors
replies = load("replies")
requests = load("requests")
reserve = load("reserve")
sources = load("source")
streams = load("streams")
text = load("text")
values = load("values")
verdict = load("verdict")

COROUTINE = 0x80  # inspect.CO_COROUTINE
MISSING = object()
PAUSE = 30  # ms
SECONDS = 0.5  # for drawing what an interrupted call left open


class Worker:
    def __init__(self, channel, workdir):
        inlet, outlet, self.limit, mode, parking = channel
        self.pid = getpid()
        # High numbers: out of the way of code that counts on the lowest free one,
        # and within the smallest usual limit of open files.
        base = min(sysconf("SC_OPEN_MAX"), 256) - 8
        self.inlet = frames.Reader(
            dup2(inlet, base + 3, False), self.limit, (frames.REQUEST, frames.INTERRUPT, frames.DATA, frames.ANSWER)
        )
        self.outlet = dup2(outlet, base + 4, False)
        close(inlet)
        close(outlet)
        self.streams = streams.Streams(base)
        self.poller = select.poll()
        self.poller.register(self.inlet.fd, select.POLLIN)
        self.reserve = reserve.Reserve(base + 6)
        self.interrupts = interrupts.Interrupts(self.streams.flush_held)
        self.verdict = verdict.Verdict(self.interrupts, workdir)
        self.sources = sources.Sources()
        self.loop = None
        self.calls = 0
        self.earlier = 0  # calls before a hibernation
        self.environ = dict(environ)
        self.make_main()
        self.home = home.Home(workdir)
        self.chores = [self.preload]  # for the time between calls
        if self.home.unsited:
            self.chores.append(self.home.site)
        self.notes = []
        self.late_notes = []  # for the next result
        self.identity = ""
        self.externals = None  # a tools.Desk, from the first call that may use it
        self.forks = forks.Forks()
        self.forks.register(self.in_child)
        self.displays = displays.Displays(self.outlet, lambda note: self.notes.append(note))
        self.displays.offer()
        repairs = {
            **self.displays.repairs(),
            "linecache": self.sources.publish,
            "inspect": hooks.inspect_for(self.sources),
            "multiprocessing.context": hooks.multiprocessing_context,
            "random": watch_seeds,
            "numpy.random": watch_seeds,
        }
        self.checkpoints, self.parking = None, -1
        if parking >= 0:
            self.parking = dup2(parking, base + 5, False)
            close(parking)
            self.mode = mode
            self.chores.insert(0, self.prepare)
        hooks.Finder(repairs)

    def make_main(self):
        main = type(sys)("__main__")
        main.__builtins__ = sys.modules["builtins"]
        main.inputs = {}
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        self.kernel_main = sys.modules["__main__"]  # kept: its globals are those of load
        self.main = sys.modules["__main__"] = main
        self.namespace = vars(main)
        sys.argv = [""]

    def in_child(self):
        """In each forked child of user code: it is not the kernel, and must not talk as such."""
        self.displays.call = ""
        for fd in (self.inlet.fd, self.outlet, self.parking, *self.reserve.held):
            try:
                close(fd)
            except OSError:
                pass
        self.streams.in_child()  # externals looks at the pid by itself

    # Between calls

    def serve(self):
        self.interrupts.install()
        self.send(frames.frame(frames.READY))
        while True:
            taken = self.next_frame()
            if taken[0] == frames.REQUEST:
                if self.calls:
                    self.prepare()
                saved = self.checkpoints
                if saved and self.sheltered(saved.before_call):
                    continue  # the request ended with the one that had it
                before = self.calls
                self.answer(taken[frames.HEADER:])
                if saved and self.calls != before:
                    saved.ran()

    def next_frame(self):
        failures = 0
        while True:
            taken = self.inlet.take()
            if taken is not None:
                return taken
            # A first request may be on its way: give it a moment before other work.
            while self.chores and not self.sheltered(self.poller.poll, 0 if self.calls else PAUSE):
                self.sheltered(self.chores.pop())
            if self.checkpoints and self.sheltered(self.checkpoints.at_rest, self.poller):
                continue
            # Handlers of the user's own may run while we wait, and may raise.
            _, error = self.interrupts.guard(self.poller.poll, armed=False)
            if error is not None:
                self.interrupts.guard(sys.__excepthook__, type(error), error, error.__traceback__, armed=False)
                error = None
                failures += 1
                if failures > 1000:
                    _exit(1)  # not handlers: there is no memory even to wait
                continue
            try:
                if not self.inlet.fill():
                    _exit(0)
            except OSError:
                _exit(1)  # the channel was closed under us

    def sheltered(self, function, *arguments):
        """The kernel's own work between the calls; False where a thread of user code threw something at it."""
        try:
            return function(*arguments)
        except BaseException:
            if getpid() != self.pid:
                _exit(1)  # half a standby
            return False

    def revive(self, shared):
        """In a standby that has taken over: be the worker."""
        self.pid = self.interrupts.pid = self.displays.pid = getpid()
        self.inlet.buffer.clear()
        self.poller = select.poll()
        self.poller.register(self.inlet.fd, select.POLLIN)
        own = None
        if self.loop is not None:
            self.loop.pid, own = self.pid, self.loop.loop
        if self.externals is not None:
            self.externals.revive()
        revival = load("revival")
        told, error = self.interrupts.guard(revival.revive, shared, self.forks, armed=False)
        if own is not None and not revival.is_known_loop(own):
            self.loop = None  # of another library, which can't be put right: the next await gets a fresh one
        self.chores.append(self.look_for_wiped)
        self.send(replies.restored(told if error is None else ["the interpreter is not restored in full"]))
        self.send(frames.frame(frames.READY))

    def look_for_wiped(self):
        note = load("revival").wiped()
        self.late_notes = [note] if note else []

    def was_interrupted(self):
        """Whether the server interrupted the request that is about to run."""
        found = False
        buffer = self.inlet.buffer
        while not buffer or buffer[0] in (frames.INTERRUPT, frames.ANSWER):
            taken = self.inlet.take()
            if taken:
                found = found or taken[0] == frames.INTERRUPT  # an answer is one that came too late
            elif not self.poller.poll(0) or not self.inlet.fill():
                break
        return found

    def prepare(self):
        """What checkpoints need; read while there are descriptors for it."""
        if self.checkpoints is None and self.parking >= 0:
            try:
                load("revival")
                self.checkpoints = load("checkpoints").Checkpoints(self, self.mode, self.parking)
            except Exception:
                pass  # no memory, no descriptors: perhaps at the next call

    def preload(self):
        """What a first error would wait for."""
        try:
            import traceback

            load("looks")
        except Exception:
            pass

    # One call

    def answer(self, payload):
        self.notes, self.late_notes, self.identity = self.late_notes, [], ""
        try:
            limit = getrecursionlimit()
            if limit < 1000:  # user code lowered it; nested inputs need some depth
                setrecursionlimit(1000)
            request, error = requests.understand(self, payload)
            if limit < 1000:
                setrecursionlimit(limit)
            if error:
                identity = request.get("id") if isinstance(request, dict) else None
                self.send(replies.refusal(identity if isinstance(identity, str) else "", error))
                return
            self.interrupts.set_aside()
            if request["op"] == "run" or request["op"] == "restore":
                self.calls += 1
            if request["op"] == "run":
                fields = self.run(request)
            elif request["op"] == "warm":
                fields = load("warmth").answer(self, request)
            else:
                fields = load("snapshot").transfer(self, request)
            reply = replies.result(self.identity, fields, self.notes, self.limit)
        except MemoryError:
            self.interrupts.spare = None
            reply = replies.result(self.identity, dict(replies.EXHAUSTED), [], self.limit)
        finally:
            if self.externals is not None:
                self.interrupts.guard(self.externals.channel.end, armed=False)
        self.send(reply)

    def run(self, request):
        """Run the code; the fields of the reply, in JSON."""
        code = request["code"]
        if request.get("inputs") is not None:
            self.namespace["inputs"] = request["inputs"]
        modules["__main__"] = self.main
        self.home.ready(code)
        requests.offer_externals(self, request.get("externals"))
        state = self.interrupts
        state.count = 0
        state.install()
        self.displays.begin(request["id"])
        start = perf_counter()
        value, error = state.guard(self.execute, code)
        if issubclass(type(error), MemoryError):
            verdict.release(error)
        if getpid() != self.pid:
            self.fell_through(error)
        duration = perf_counter() - start
        limit = getrecursionlimit()
        if limit < 1000:  # user code lowered it; the kernel needs some depth
            setrecursionlimit(1000)
        settrace(None)
        setprofile(None)
        fields = {"output": "null", "return_value": "null"}
        returned = self.namespace.pop("_return", MISSING)
        error = self.look(error, value)
        if error is None and not self.seen:
            error = self.encode(fields, "output", value)
        if returned is not MISSING:
            failed = self.encode(fields, "return_value", returned)
            error = error or failed
        value = returned = None
        fields.update(self.verdict.of(error))
        fields["hint"] = self.verdict.hint
        self.settle()
        if self.externals is not None:
            state.guard(self.externals.channel.end, armed=False)
            self.notes += self.externals.channel.notes()
        fields["interrupted"] = state.count > 0
        if state.count > 0:
            threads = len(_current_frames()) - 1
            if threads > 0:  # nothing can end them but the end of the interpreter
                self.notes.append("%d more thread(s) of the code go on running; reset_session ends them" % threads)
        fields["duration_s"] = duration
        if limit < 1000:
            setrecursionlimit(limit)
        self.reserve.fill()
        return fields

    def execute(self, code):
        if self.was_interrupted():
            self.interrupts.count += 1
            raise KeyboardInterrupt
        name = "<call %d>" % (self.earlier + self.calls)
        code = sources.clean(code)
        self.sources.add(name, code)
        body, last = sources.compiled(code, name)
        namespace = self.namespace
        if any(part is not None and part.co_flags & COROUTINE for part in (body, last)):
            if self.loop is None:
                self.loop = loop.Loop(self.interrupts)
            return self.loop.run(self.awaited(body, last))
        if body is not None:
            exec(body, namespace)
        return None if last is None else eval(last, namespace)

    async def awaited(self, body, last):
        value = None
        for part in (body, last):
            value = None
            if part is not None:
                value = eval(part, self.namespace)
                if part.co_flags & COROUTINE:
                    value = await value
        return value

    def look(self, error, value):
        """Show open figures and what the last value looks like; the exception that counts, or None."""
        self.seen = False
        idle = self.displays.is_idle(value)
        if error is not None or not idle:
            self.reserve.release()
        if idle:
            return error
        late = None if self.interrupts.count == 0 else perf_counter() + SECONDS
        _, failed = self.interrupts.guard(self.displays.finish, late)
        if error is None and failed is None:
            self.seen, failed = self.interrupts.guard(self.displays.last, value)
            if failed is not None and issubclass(type(failed), Exception):
                self.notes.append("how the value looks could not be found out (%s)" % values.name(type(failed)))
                failed = None
        self.interrupts.guard(self.displays.end)
        return error or failed

    def encode(self, fields, key, value):
        """Set a field to a value's JSON; an exception that interrupted it, or None."""
        if value is None:
            return None
        found, error = self.interrupts.guard(values.encode, value)
        if error is None:
            fields[key], note = found
            if note:
                self.notes.append(key + ": " + note)
            return None
        fields[key] = text.quote("<%s object>" % values.name(type(value)))
        if issubclass(type(error), Exception):
            self.notes.append("%s: could not be shown (%s)" % (key, values.name(type(error))))
            return None
        return error

    def settle(self):
        """Leave streams, descriptors and hooks as the next call expects them."""
        if self.streams.foreign():
            self.interrupts.guard(self.streams.flush_foreign)
        self.streams.put_back()
        libc.flush()

    def fell_through(self, error):
        """A child that user code forked came back into the kernel's hands: it ends here."""
        status = 0
        try:
            if issubclass(type(error), SystemExit):
                status = self.verdict.exited(error)["exit_code"]
            elif error is not None:
                status = 1
                sys.__excepthook__(type(error), error, error.__traceback__)
            self.settle()
            self.streams.stdout.flush()
            self.streams.stderr.flush()
        finally:
            _exit(status)

    # Replies

    def send(self, data):
        view = memoryview(data)
        try:
            while view:
                view = view[write(self.outlet, view):]
        except OSError:
            _exit(1)  # nobody can hear us: the supervisor starts the next one


def watch_seeds(module):
    """Checkpoints and hibernation alike must know which generators are the user's."""
    load("revival").watch_seeds(module)
