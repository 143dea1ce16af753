"""What is known of the tools outside, how they are called, and what they give in Python's terms."""

from _thread import allocate_lock

channels = load("externals")
schemas = load("schemas")
text = load("text")

ToolError = channels.ToolError


class Blob(bytes):
    """Bytes that a tool gave, and what they are."""

    mime = ""
    uri = ""

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: bytes(self)} if self.mime.startswith("image/") else None

    def __reduce__(self):
        return bytes, (bytes(self),)


class Spec:
    """A tool as its server describes it."""

    def __init__(self, server, told):
        self.server, self.name = server, told["name"]
        self.description = told.get("description") or told.get("title") or ""
        self.input = schemas.Input(told.get("input"))
        self.output = told.get("output") if isinstance(told.get("output"), dict) else {}
        # FastMCP puts what is no object into one, and says so.
        self.wrapped = self.output.get("x-fastmcp-wrap-result") is True
        self.where = "externals.%s.%s()" % (schemas.flat(server), schemas.flat(self.name))

    def gives(self):
        if self.wrapped and isinstance(self.output.get("properties"), dict):
            return schemas.hint(self.output["properties"].get("result"), self.output, 0)
        return schemas.hint(self.output, self.output, 0) if self.output else ""

    def signature(self):
        gives = self.gives()
        return "%s(%s)%s" % (schemas.flat(self.name), self.input.signature(), " -> " + gives if gives else "")

    def line(self):
        about = schemas.first_line(self.description)
        return "%s.%s%s" % (schemas.flat(self.server), self.signature(), "  # " + about if about else "")

    def document(self):
        lines = [self.signature()]
        if self.description:
            lines += ["", str(self.description).strip()]
        about = []
        for name, schema in self.input.properties.items():
            said = schema.get("description") if isinstance(schema, dict) else None
            if isinstance(said, str) and said.strip():
                about.append("    %s: %s" % (schemas.flat(name), " ".join(said.split())))
        if about:
            lines += ["", "Arguments:"] + about
        if schemas.flat(self.name) != self.name:
            lines += ["", "Its own name is %r." % self.name]
        return "\n".join(lines).strip()


class Toolbox:
    """What is known of servers and tools; one for each worker."""

    def __init__(self, channel):
        self.channel = channel
        self.servers = {}  # name -> what the server told of it
        self.known = {}  # name -> (revision, {name: Spec})
        self.fetching = {}  # (id of a loop, name) -> task
        self.locks = {}  # name -> held while it is asked

    def begin(self, servers):
        self.servers = {server["name"]: server for server in servers}
        for name, (revision, _) in list(self.known.items()):
            if not revision or self.servers.get(name, {}).get("revision") != revision:
                self.known.pop(name, None)
        self.fetching = {}

    def revive(self):
        self.locks = {}

    def keep(self, server, answer):
        told = opened(answer, "externals." + schemas.flat(server))
        specs = {tool["name"]: Spec(server, tool) for tool in told.get("tools", ())}
        self.known[server] = self.servers.get(server, {}).get("revision", ""), specs
        return specs

    def tools(self, server, anew=False):
        """{name: Spec} of a server, asked for if need be."""
        if server not in self.known or anew:
            with self.locks.setdefault(server, allocate_lock()):
                if server not in self.known or anew:
                    return self.keep(server, self.channel.ask(server))
        return self.known[server][1]

    async def tools_async(self, server):
        if server in self.known:
            return self.known[server][1]
        import asyncio

        loop = asyncio.get_running_loop()
        task = self.fetching.get((id(loop), server))
        if task is None or task.done():
            async def fetch():
                return self.keep(server, await self.channel.ask_async(server))

            task = self.fetching[id(loop), server] = loop.create_task(fetch())
        return await asyncio.shield(task)

    def server(self, key):
        """The server that a name or an identifier stands for, or None."""
        return matching(key, self.servers)

    def spec(self, server, tool):
        """As it is now: a list that lacks it may be an old one."""
        specs = self.tools(server)
        if tool not in specs:
            specs = self.tools(server, True)
        if tool not in specs:
            raise ToolError("there is no such tool any longer", "unknown", "%s.%s" % (server, tool))
        return specs[tool]

    def call(self, server, tool, positional, named):
        spec = self.spec(server, tool)
        answer = self.channel.ask(server, tool, self.arguments(spec, positional, named))
        return result(spec, answer)

    async def call_async(self, server, key, positional, named):
        tools = await self.tools_async(server)
        tool = matching(key, tools)
        if tool is None:
            raise ToolError("there is no such tool%s" % schemas.near(key, tools), "unknown", "%s.%s" % (server, key))
        spec = tools[tool]
        answer = await self.channel.ask_async(server, tool, self.arguments(spec, positional, named))
        return result(spec, answer)

    def arguments(self, spec, positional, named):
        """The JSON of a call's arguments, checked."""
        found = spec.input.bind(spec.where, positional, named)
        data = encoded(spec.where, found)
        spec.input.check(spec.where, text.parse(data))
        if len(data) > self.channel.most["arguments"]:
            raise ValueError("%s arguments are %d bytes as JSON; at most %d are allowed" % (spec.where, len(data), self.channel.most["arguments"]))
        return data

    def search(self, words):
        """(server, tool) of each that has one of the words, the best first, and (server, why) of those that can't be asked."""
        words = [word for word in str(words).lower().replace("_", " ").replace("-", " ").split() if word]
        found, unreachable = [], []
        for server, told in self.servers.items():
            try:
                specs = self.tools(server)
            except ToolError as error:
                unreachable.append((server, error.args[0]))
                continue
            for spec in specs.values():
                name = (server + " " + spec.name).lower()
                about = (str(spec.description) + " " + str(told.get("note", ""))).lower()
                rank = sum(4 * (word in name) + (word in about) for word in words)
                if rank or not words:
                    found.append((-rank, len(found), server, spec.name))
        found.sort(key=lambda entry: entry[:2])
        return [entry[2:] for entry in found], unreachable


def matching(key, names):
    """Which of names a name or an identifier stands for, or None."""
    return key if key in names else schemas.by_flat_name(names).get(key)


def encoded(where, arguments):
    import json

    try:
        return json.dumps(arguments, allow_nan=False, default=plain, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ValueError("%s arguments are nested too deep" % where) from None
    except (TypeError, ValueError) as error:
        for name, value in arguments.items():
            try:
                json.dumps(value, allow_nan=False, default=plain)
            except (TypeError, ValueError) as cause:
                raise type(cause)("%s argument '%s' can't be given as JSON: %s" % (where, name, cause)) from None
        raise type(error)("%s %s" % (where, error)) from None


def plain(value):
    """What JSON has for values of libraries."""
    for method in ("tolist", "isoformat"):  # of arrays and their scalars; of dates
        if callable(getattr(type(value), method, None)):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(type(value), "__fspath__"):
        return value.__fspath__()
    raise TypeError("%s is no JSON" % type(value).__name__)


def opened(answer, name):
    """An answer's fields, or the exception that it is."""
    told = text.parse(answer)
    if "fault" in told:
        raise ToolError(told.get("text", ""), told["fault"], name)
    return told


def result(spec, answer):
    """What a tool gave, as Python has it."""
    told = opened(answer, "%s.%s" % (spec.server, spec.name))
    parts = [part(entry) for entry in told.get("content", ())]
    if told.get("error"):
        said = "\n".join(entry for entry in parts if type(entry) is str) or "it failed, and does not say why"
        raise ToolError(said, "tool", "%s.%s" % (spec.server, spec.name))
    if told.get("value") is None:
        return parts[0] if len(parts) == 1 else parts or None
    value = told["value"]
    if spec.wrapped and type(value) is dict and list(value) == ["result"]:
        value = value["result"]
    # Text beside it says the same once more.
    rest = [entry for entry in parts if type(entry) is not str]
    return [value, *rest] if rest else value


def part(entry):
    kind = entry.get("kind")
    if kind == "data":
        from binascii import a2b_base64

        blob = Blob(a2b_base64(entry.get("data", "")))
        blob.mime, blob.uri = entry.get("mime", ""), entry.get("uri", "")
        return blob
    if kind == "link":
        return {key: entry[key] for key in ("uri", "name", "mime", "text") if key in entry}
    return entry.get("text", "")
