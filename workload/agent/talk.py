"""What the client asks for, and the answers that wait until there is something to tell."""

memory = load("memory")
streams = load("streams")

LONGEST = 60  # s that an answer may wait
MAX_OPTIONS = 16


class Reply:
    """An answer in the making. It is sent once."""

    def __init__(self, connection, seal, path, number):
        self.connection = connection
        self.seal = seal
        self.path = path
        self.number = number

    def send(self, head, data=b""):
        self.connection.reply(200, self.seal.close(self.path, self.number, head, data))

    def fail(self, error, text=""):
        self.send({"error": error, "text": text})


class Waiter:
    """A question for what comes next, from these offsets on."""

    def __init__(self, reply, head, now):
        self.reply = reply
        self.out = whole(head["out"])
        self.offsets = {name: whole(head[name]) for name in ("stdout", "stderr")}
        self.deadline = now + min(whole(head["wait_ms"]) / 1000, LONGEST)
        # What is no reply may wait so long for one: then both come in one answer.
        self.linger = min(whole(head["linger_ms"]) / 1000, LONGEST)
        self.version = head.get("version")  # of the workspace that the client knows; None = it does not ask
        self.since = None


def whole(number):
    if type(number) is not int or not 0 <= number < 1 << 53:
        raise ValueError("a number that is none")
    return number


class Talk:
    def __init__(self, agent):
        self.agent = agent
        self.guest = agent.guest
        self.waiting = None
        self.kills = memory.Kills()
        self.guest.asked = self.begin

    def take(self, path, head, data, reply):
        files = self.agent.workspace
        if path == "/v1/talk":
            self.talk(head, data, reply)
        elif path == "/v1/start":
            self.start(head, reply)
        elif path == "/v1/changes":
            reply.send(files.changes(head.get("version")))
        elif path == "/v1/fetch":
            for piece in head["pieces"]:
                whole(piece["offset"]), whole(piece["size"])
            reply.send(*files.fetch(head["pieces"]))
        elif path == "/v1/put":
            for piece in head["pieces"]:
                whole(piece["offset"]), whole(piece["length"])
            reply.send(files.put(head["pieces"], data))
        elif path == "/v1/remove":
            reply.send(files.delete(head["paths"]))
        elif path == "/v1/shutdown":
            self.guest.stop()
            reply.send({})
            self.agent.end()
        else:
            reply.fail("unsupported")

    def start(self, head, reply):
        generation, options, limits = whole(head["generation"]), head["options"], head["limits"]
        if generation != self.guest.generation:  # else the answer to the first one got lost
            if len(options) > MAX_OPTIONS or not all(type(name) is str and type(value) in (str, int) for name, value in options.items()):
                raise ValueError("options")
            if not all(name.startswith("RLIMIT_") and type(value) is int for name, value in limits.items()):
                raise ValueError("limits")
            self.dismiss()
            self.agent.workspace.open_up()
            self.guest.start(generation, options, limits)
        reply.send({"generation": generation, "pid": self.guest.pid})

    def talk(self, head, data, reply):
        guest = self.guest
        if whole(head["generation"]) != guest.generation or not guest.generation:
            return reply.fail("generation")
        if not guest.take(whole(head["in"]), data):
            return reply.send({"error": "gap", "in": guest.received})
        waiter = Waiter(reply, head, self.agent.clock())
        guest.channel.forget(waiter.out)
        for name, offset in waiter.offsets.items():
            guest.output[name].forget(offset)
        guest.balance()
        self.dismiss()
        self.waiting = waiter
        reply.connection.gone = self.forget

    def begin(self):
        """Before a request. Answers to what its code asks of external tools are none."""
        self.agent.workspace.open_up()
        self.kills.begin()

    def forget(self):
        self.waiting = None

    def dismiss(self):
        """Only the newest question waits."""
        if self.waiting is not None:
            waiter, self.waiting = self.waiting, None
            self.send(waiter)

    def due(self, now):
        waiter = self.waiting
        if waiter is None:
            return LONGEST
        until = waiter.deadline if waiter.since is None else min(waiter.deadline, waiter.since + waiter.linger)
        return until - now

    def turn(self, now):
        waiter = self.waiting
        if waiter is not None and self.ripe(waiter, now):
            self.waiting = None
            self.send(waiter)

    def ripe(self, waiter, now):
        channel = self.guest.channel
        if max(channel.replied, channel.asked) > waiter.out or channel.total - waiter.out >= streams.PART or self.guest.ended():
            return True
        if waiter.since is None and self.pending(waiter):
            waiter.since = now
        return now >= waiter.deadline or waiter.since is not None and now >= waiter.since + waiter.linger

    def pending(self, waiter):
        return self.guest.channel.total > waiter.out or any(
            self.guest.output[name].total > offset for name, offset in waiter.offsets.items()
        )

    def send(self, waiter):
        guest = self.guest
        data = [guest.channel.part(waiter.out)]
        head = {"in": guest.received, "out": [waiter.out, len(data[0])], "ended": None, "kills": 0}
        if waiter.out + len(data[0]) >= guest.channel.total:
            head["ended"] = guest.ended()
        if b'"died"' in data[0]:
            head["kills"] = self.kills.since()
        for name, offset in waiter.offsets.items():
            head[name] = []
            for at, part in guest.output[name].parts(offset):
                head[name].append([at, len(part)])
                data.append(part)
        if waiter.version is not None and guest.channel.replied > waiter.out:
            head["files"] = self.agent.workspace.changes(waiter.version)
        waiter.reply.send(head, b"".join(data))
