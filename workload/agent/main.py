"""The agent: the first process of a remote session's container, an HTTP server in front of one interpreter.

It never runs user code. The interpreter is a process of its own, the very same kernel as
behind the local wall; its channel and its output pass through here unread, as bytes with
offsets, so that nothing is lost or done twice when an answer gets lost.

It is started by a few lines that unpack it from the environment (see agent.go), on an
image of which nothing is known but that it has a Python, 3.9 or newer. Python's standard
library alone, one thread, one loop: no peer can make another wait.
"""

import os
import select
import signal
import sys
import time

modules = {}


def load(name):
    """A module of the bundle, once: the agent's own, or one of the kernel's by kernel/name."""
    module = modules.get(name)
    if module is None:
        module = modules[name] = type(sys)("mcp_sandbox_agent." + name.replace("/", "_"))
        vars(module).update(load=load, bundle=bundle)
        part = bundle["kernel"] if name.startswith("kernel/") else bundle["agent"]
        source = part[name.rpartition("/")[2] + ".py"]
        exec(compile(source, "<%s>" % name, "exec", dont_inherit=True), vars(module))
    return module


files = load("files")
guest = load("guest")
seal = load("seal")
talk = load("talk")
web = load("web")
libc = load("kernel/libc")

LEASE = int(os.environ.get("DRX_LEASE_S") or 180)  # s without a word of the client's, then the session is over
UNCLAIMED = 5 * LEASE  # s until somebody says hello: images are pulled, queues are long
UNPROTECTED = 72  # exit code


class Agent:
    """Owns all there is: the server, the interpreter, the workspace."""

    def __init__(self):
        self.poller = select.poll()
        self.callbacks = {}
        self.masks = {}
        self.protect()
        self.workspace = files.Workspace(files.place(os.environ))
        self.guest = guest.Guest(self, self.workspace.path)
        self.seal = seal.Seal()
        self.talk = talk.Talk(self)
        self.over = False
        self.heard = time.monotonic()
        self.wake, waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.end)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a runner's own time limit
        self.watch(self.wake, select.POLLIN, self.woken)
        self.server = web.Server(self, int(os.environ.get("DRX_PORT") or 8080))

    def protect(self):
        # User code has our uid: it must not read our memory, our environment or our
        # descriptors, where the key and the platform's credentials are. Nor is there a core file.
        try:
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
            if os.getpid() != 1:
                libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
        except OSError as error:
            sys.stderr.write("agent: %s\n" % error)
            os._exit(UNPROTECTED)

    def end(self, *_):
        self.over = True

    clock = staticmethod(time.monotonic)

    # The loop

    def watch(self, fd, mask, callback):
        """Call back when fd is ready; mask 0 forgets it."""
        if mask:
            self.callbacks[fd] = callback
            if mask != self.masks.get(fd):
                self.poller.register(fd, mask)
                self.masks[fd] = mask
        elif fd in self.masks:
            self.poller.unregister(fd)
            del self.masks[fd], self.callbacks[fd]

    def woken(self, _):
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass
        self.guest.reap()

    def run(self):
        while not self.over:
            now = time.monotonic()
            left = self.heard + (LEASE if self.seal.key else UNCLAIMED) - now
            if left <= 0:
                break
            due = min(left, self.talk.due(now), self.server.due(now), self.guest.due(now))
            for fd, event in self.poller.poll(max(due, 0) * 1000 + 0.999):
                callback = self.callbacks.get(fd)
                if callback is not None:  # closed by one before it
                    callback(event)
            now = time.monotonic()
            self.guest.turn(now)
            self.talk.turn(now)
        self.guest.stop()
        self.workspace.remove()
        # A container that ends is started again, and the platform counts that as an error:
        # the client, or who cleans up after it, deletes the workload.
        os._exit(0)

    # Requests

    def answer(self, connection, method, path, body):
        """One request, whole. The answer may come later."""
        if path == "/healthz":
            return connection.reply(200, b"ok\n", "text/plain")
        if method != "POST":
            return connection.reply(405, b"")
        if path == "/v1/hello":
            return self.hello(connection, body)
        try:
            opened = self.seal.open(path, body)
        except seal.Refused as refused:
            return connection.reply(refused.status, refused.text.encode(), "text/plain")
        connection.trusted = True
        self.heard = time.monotonic()
        reply = talk.Reply(connection, self.seal, path, opened.number)
        if opened.replayed:
            return reply.fail("replayed")
        try:
            self.talk.take(path, opened.head, opened.data, reply)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reply.fail("malformed", "%s: %s" % (type(error).__name__, error))
        except OSError as error:
            reply.fail("system", error.strerror or str(error))

    def hello(self, connection, body):
        """The first who speaks sets the key, before there is any user code; nobody can set another."""
        if not self.seal.set_key(body):  # the same key again is the same hello, whose answer got lost
            return connection.reply(409 if self.seal.key else 400, self.seal.boot.hex().encode(), "text/plain")
        self.heard = time.monotonic()
        head = {
            "protocol": "sandboxd/1", "python": "%d.%d.%d" % sys.version_info[:3],
            "workspace": self.workspace.path, "lease_s": LEASE,
        }
        talk.Reply(connection, self.seal, "/v1/hello", 0).send(head)


Agent().run()
