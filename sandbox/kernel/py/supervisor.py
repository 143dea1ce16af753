"""The supervisor: PID 1 of the sandbox where it has a PID namespace. It never runs user code.

It owns the channel to the server, tells the truth about deaths on frames that
no user code can write, relays everything else unread, and ends processes.

Nothing here may wait for one peer while another waits for us: every descriptor
is non-blocking, what can't be written is queued, and a queue that has grown
too long stops the reading of its source.
"""

import select
import sys
import time
from posix import (
    WEXITSTATUS, WIFEXITED, WNOHANG, WTERMSIG, _exit, close, fork, getpid, kill, pipe, read,
    set_blocking, set_inheritable, setpgid, waitpid, write,
)

import _signal

frames = load("frames")
libc = load("libc")
processes = load("processes")
queues = load("queues")
standing = load("standing")
standby = load("standby")
text = load("text")

MALFORMED = 70  # exit codes
NEVER_READY = 71
STILLBORN = 5  # workers in a row that died before they were ready
BEHIND = 1 << 20  # bytes that the server has not taken: then the worker has to wait
TAKEOVER = 5  # s that a standby may take to be ready
PARKINGS = 16  # standbys that a worker may name between two requests or replies: it needs three at most

SNAPSHOT = frames.DATA, frames.REWIND, frames.PULL
TO_SERVER = SNAPSHOT + (frames.WORKER, frames.NAME, frames.DISPLAY, frames.SHOWN, frames.EXTERNAL)
FROM_WORKER = TO_SERVER + (frames.READY, frames.CHECKPOINT)

VERSION = "%d.%d.%d" % sys.version_info[:3]


class Supervisor:
    """One for each process; run is called once, and returns only in a forked worker."""

    def __init__(self, inlet, outlet, oom, limit, checkpoint, domain=-1):
        self.inlet = frames.Reader(inlet, limit, (frames.REQUEST, frames.DATA, frames.ANSWER, frames.CONTROL))
        self.outlet = outlet
        self.oom = oom
        self.domain = domain  # a Landlock ruleset, for workers alone; -1 = none
        self.limit = limit
        self.queues = queues.Queues(outlet, self.balance, lambda: self.end(0))
        self.worker = 0
        self.generation = 0
        self.stillborn = 0
        self.bulk = False  # a snapshot has passed
        self.requests = 0  # relayed, to all generations together
        self.parkings = 0  # since the last request or reply
        self.deadline = None  # of a standby that takes over; time.monotonic
        self.ready = False
        self.asked = False  # the coming death of the worker is our doing
        self.deaf = False  # the worker closed its end
        self.call_start = None  # CLOCK_BOOTTIME of the last request
        self.grouped = getpid() != 1 and not processes.visible()
        self.standby = standby.Standby(checkpoint if getpid() == 1 or not self.grouped else "off")
        self.restored = None  # the call after which the worker was saved, if it was a standby
        self.status = None  # of the worker, once reaped
        self.reaped = 0

    def run(self):
        standing.protect(self.domain)
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGXCPU):
            _signal.signal(number, _signal.SIG_IGN)
        self.wake, waker = pipe()
        set_blocking(self.wake, False)
        set_blocking(waker, False)
        self.waker = waker
        _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        for fd in (self.inlet.fd, self.outlet, self.oom):
            if fd >= 0:
                set_blocking(fd, False)
                set_inheritable(fd, False)
        if self.domain >= 0:
            set_inheritable(self.domain, False)
            processes.enclosed = True  # whoever gives us a domain for workers has put us into one
        self.queues.watch(self.inlet.fd, select.POLLIN)
        self.queues.watch(self.wake, select.POLLIN)
        self.standby.open()
        channel = self.spawn()
        while channel is None:
            channel = self.turn()
        return channel

    # Workers

    def spawn(self):
        """Fork a worker; its Channel in the worker, None in the supervisor."""
        requests, self.to_worker = pipe()
        from_worker, replies = pipe()
        standing.prefer_as_victim(self.oom, 800)
        me = getpid()
        pid = fork()
        if pid == 0:
            self.become_worker(me, from_worker)
            channel = requests, replies, self.limit, *self.standby.in_worker()
            vars(self).clear()  # what the server sent is not this process's to keep
            return channel
        standing.prefer_as_victim(self.oom, 0)
        self.standby.renew(requests)
        close(replies)
        if self.grouped:
            self.set_group(pid)
        set_blocking(from_worker, False)
        set_blocking(self.to_worker, False)
        self.from_worker = frames.Reader(from_worker, self.limit, FROM_WORKER)
        self.queues.open(self.to_worker)
        self.queues.watch(from_worker, select.POLLIN)
        self.begin(pid, None)
        return None

    def begin(self, pid, restored):
        self.worker = pid
        self.restored = restored
        self.deadline = None
        self.parkings = 0
        self.generation += 1
        self.ready = self.asked = self.deaf = False
        self.status = None

    def become_worker(self, parent, from_worker):
        standing.restore_signals()
        for fd in (self.inlet.fd, self.outlet, self.oom, self.wake, self.waker, self.to_worker, from_worker):
            if fd >= 0:
                close(fd)
        standing.expose(parent)
        standing.confine(self.domain)

    def set_group(self, pid):
        try:
            setpgid(pid, 0)
        except OSError:
            pass

    def bury(self):
        """The worker is dead and reaped: hand on its last whole frames, end what it left, say so, have the next."""
        status = self.status
        # Its children are orphans that no later code can reach. Before the reading:
        # a copy of the channel may have been left to one of them.
        self.extinguish()
        reader = self.from_worker
        try:
            while reader.fill():
                pass
        except OSError:
            pass
        self.relay()
        exited = WIFEXITED(status)
        self.tell(
            event="died", generation=self.generation, asked=self.asked,
            exit=WEXITSTATUS(status) if exited else None,
            signal=None if exited else WTERMSIG(status),
            requests=self.requests, standby=self.standby.pid != 0,
        )
        if self.standby.pid:
            return self.take_over()
        self.queues.unwatch(reader.fd)
        self.queues.drop(self.to_worker)
        close(reader.fd)
        close(self.to_worker)
        self.stillborn = 0 if self.ready or self.asked else self.stillborn + 1
        if self.stillborn >= STILLBORN:
            self.end(NEVER_READY, "no worker becomes ready")
        return self.spawn()

    def take_over(self):
        """The standby becomes the worker. It says so by itself."""
        reader = self.from_worker
        reader.buffer.clear()  # half a frame of the dead one's
        self.queues.clear(self.to_worker)
        self.begin(self.standby.rouse(reader.fd), self.standby.call)
        self.deadline = time.monotonic() + TAKEOVER
        self.balance()
        return None

    def reap(self):
        while True:
            try:
                pid, status = waitpid(-1, WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.reaped += 1
            if pid == self.worker:
                self.status = status
            elif pid == self.standby.pid:
                self.standby.pid = 0
                self.tell(event="discarded")

    def extinguish(self):
        """SIGKILL all but ourselves and the standby, and wait until none is left."""
        if self.standby.pid:
            if processes.all_but(self.standby, self.reap):
                return
            self.standby.discard()
        group = self.worker if self.grouped else 0
        pause = 0.0
        processes.everything(group)
        while self.reap():
            time.sleep(pause)
            pause = min(pause + 0.0005, 0.02)
            processes.everything(group)
            if self.grouped and self.status is not None and pause == 0.02:
                break  # what left the group can't be found without /proc

    def end(self, code, reason=""):
        """The end of the interpreter, and of all that ran in it."""
        if reason:
            try:
                write(2, b"kernel: " + reason.encode() + b"\n")
            except OSError:
                pass
        self.standby.pid = 0
        group = self.worker if self.grouped else 0
        for _ in range(3):
            processes.everything(group)
        if getpid() != 1:
            self.extinguish()
        _exit(code)

    # The channel

    def turn(self):
        """Wait for something, and deal with it."""
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:  # whatever else happens meanwhile
            self.deadline = left = None
            self.strike(_signal.SIGKILL)  # it does not take over
        for fd, _ in self.queues.poll(left and left * 1000 + 1):
            if fd == self.inlet.fd:
                channel = self.listen()
                if channel:
                    return channel
            elif fd == self.wake:
                try:
                    read(self.wake, 4096)
                except BlockingIOError:
                    pass
                self.reap()
            elif fd == self.from_worker.fd and self.status is None:
                self.hear()
            elif self.queues.waiting(fd):
                self.queues.push(fd)
        if self.status is not None:
            return self.bury()
        return None

    def listen(self):
        """Frames of the server."""
        try:
            if not self.inlet.fill():
                self.end(0)
        except BlockingIOError:
            return None
        except OSError:
            self.end(0)
        try:
            while True:
                taken = self.inlet.take()
                if taken is None:
                    return None
                if taken[0] != frames.CONTROL:
                    if taken[0] == frames.REQUEST:
                        self.requests += 1
                        self.parkings = 0
                        self.call_start = processes.now()
                    self.queues.send(self.to_worker, taken)
                    # The server sends one request at a time. Reading no further
                    # would leave its controls unread, so too many are its fault.
                    if self.queues.waiting(self.to_worker) > 2 * self.limit:
                        raise frames.Malformed
                else:
                    channel = self.control(text.parse(taken[frames.HEADER:]))
                    if channel:
                        return channel
        except (frames.Malformed, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.end(MALFORMED, "malformed frame from the server")

    def hear(self):
        """Frames of the worker."""
        try:
            if self.from_worker.fill():
                self.relay()
                return
        except BlockingIOError:
            return
        # It closed its end, so it can never answer: as good as dead. (One that is
        # dying just now keeps the status it had.)
        self.queues.unwatch(self.from_worker.fd)
        self.deaf = True
        self.strike(_signal.SIGKILL)

    def relay(self):
        try:
            while True:
                taken = self.from_worker.take()
                if taken is None:
                    return
                if taken[0] in TO_SERVER:
                    if taken[0] in SNAPSHOT and not self.bulk:
                        self.bulk = True
                        libc.keep_heap()
                    if taken[0] == frames.WORKER:
                        self.parkings = 0
                    self.queues.send(self.outlet, taken)
                elif taken[0] == frames.CHECKPOINT:
                    self.adopt(text.parse(taken[frames.HEADER:]))
                elif not self.ready:
                    self.ready = True
                    self.deadline = None
                    self.standby.ready()
                    self.tell(
                        event="worker", generation=self.generation, pid=self.worker, python=VERSION,
                        restored=self.restored,
                    )
        except (frames.Malformed, ValueError, KeyError, TypeError, RecursionError):
            self.end(MALFORMED, "malformed frame from the worker")

    def adopt(self, said):
        # The server hears of each, so there must not be many.
        self.parkings += 1
        if self.parkings > PARKINGS:
            raise frames.Malformed
        if self.standby.adopt(said["pid"], said["call"], self.worker):
            self.tell(event="checkpoint", pid=self.standby.pid, call=self.standby.call)

    def control(self, order):
        """Do what the server asks; the channel of a new worker, in that worker."""
        op = order["op"]
        killed = 0
        channel = None
        if op in ("interrupt", "escalate"):
            # The frame first: a worker that has read a request but does not run
            # it yet takes no signals, and looks here before it starts.
            self.queues.send(self.to_worker, frames.frame(frames.INTERRUPT))
        if op == "interrupt":
            self.strike(_signal.SIGINT)
        elif op == "escalate":
            # The signal first: code that waits for a child in C finds it pending
            # when the child's end lets it go, and does not run on.
            self.strike(_signal.SIGXCPU)
            self.strike(_signal.SIGCONT)
            if self.call_start is not None:
                killed = processes.sweep(self.standby.spared(self.worker), self.call_start, self.reap)
        elif op in ("kill", "reset"):
            self.asked = self.status is None
            before = self.reaped
            if op == "reset":
                self.standby.discard()
            self.extinguish()
            killed = self.reaped - before
            channel = self.bury()
            if channel:
                return channel
        elif op == "sweep":
            since = order.get("since")
            since = self.call_start if since is None else float(since)
            if since is not None:
                killed = processes.sweep(self.standby.spared(self.worker), since, self.reap)
        elif op == "discard":
            self.reap()
            killed = int(self.status is None and self.standby.discard())  # not once it is needed
            if killed:
                self.tell(event="discarded")
        elif op != "ping":
            raise ValueError
        self.tell(event="done", op=op, seq=order.get("seq"), killed=killed)
        return None

    def strike(self, number):
        if self.status is None:  # once it is reaped, its pid may be another's
            try:
                kill(self.worker, number)
            except OSError:
                pass

    def tell(self, **event):
        self.queues.send(self.outlet, frames.frame(frames.EVENT, text.compose(event).encode()))

    def balance(self):
        """Read the worker only while the server keeps up."""
        fd = self.from_worker.fd
        if self.queues.waiting(self.outlet) > BEHIND:
            self.queues.unwatch(fd)
        elif not self.deaf:
            self.queues.watch(fd, select.POLLIN)
