"""What user code sees of the tools outside: externals, its servers, and their tools as functions.

All of them know names alone. What stands behind a name is asked for when it is needed, so
that they may be kept in variables, and saved, and meet another list of tools later.
"""

import sys

channels = load("externals")
schemas = load("schemas")
toolbox = load("toolbox")

ToolError = channels.ToolError
matching = toolbox.matching
FOUND = 10  # tools that a search gives
NOTE = 300  # characters
USAGE = """Tools of other servers, as functions:

    externals.server.tool(argument=value)       # or externals["server"]["any-name"](...)
    await externals.aio.server.tool(...)        # side by side, with asyncio.gather
    externals.search("words")                   # finds tools
    help(externals.server); help(externals.server.tool)

Structured results are Python values, text is str, pictures and other data are bytes with
.mime; several parts come as a list. A tool that fails raises ToolError.
"""


class Found(list):
    """Tools, one a line."""

    unreachable = ()

    def __repr__(self):
        lines = [repr(tool) for tool in self] or ["no such tool"]
        return "\n".join(lines + ["(%s can't be asked: %s)" % entry for entry in self.unreachable])

    def __reduce__(self):
        return list, (list(self),)


def missing(where, key, names):
    return "%s has no %r%s" % (where, key, schemas.near(key, names))


class Externals:
    """The namespace. One for each worker."""

    __module__ = "builtins"
    __slots__ = "_toolbox", "ToolError", "aio"

    def __init__(self, box):
        self._toolbox = box
        self.ToolError = ToolError
        self.aio = Aio(box)

    @property
    def __doc__(self):
        lines = [USAGE, "Servers:"]
        for name, server in self._toolbox.servers.items():
            note = server.get("note", "")
            lines.append("    %s%s" % (schemas.flat(name), ": " + schemas.short(note, NOTE) if note else ""))
        return "\n".join(lines)

    def __getattr__(self, key):
        server = None if key.startswith("__") else self._toolbox.server(key)
        if server is None:
            raise AttributeError(missing("externals", key, self))
        return Server(self._toolbox, server)

    def __getitem__(self, key):
        server = self._toolbox.server(key)
        if server is None:
            raise KeyError(missing("externals", key, self))
        return Server(self._toolbox, server)

    def __iter__(self):
        return iter(list(self._toolbox.servers))

    def __len__(self):
        return len(self._toolbox.servers)

    def __contains__(self, key):
        return self._toolbox.server(key) is not None

    def __dir__(self):
        return sorted({*schemas.by_flat_name(self._toolbox.servers), "aio", "search", "ToolError"})

    def search(self, words=""):
        """The tools whose name or description has these words, the best first."""
        found, unreachable = self._toolbox.search(words)
        tools = Found(Tool(self._toolbox, *names) for names in found[:FOUND])
        tools.unreachable = unreachable
        return tools

    def __repr__(self):
        return "<externals: %s>" % (", ".join(map(schemas.flat, self)) or "no servers")

    def _make(self, kind, *names):
        return KINDS[kind](self._toolbox, *names)

    def __reduce__(self):
        return "externals"


class Server:
    """The tools of one server."""

    __module__ = "builtins"
    __slots__ = "_toolbox", "_name"

    def __init__(self, box, name):
        self._toolbox, self._name = box, name

    @property
    def __doc__(self):
        specs = self._toolbox.tools(self._name)
        note = self._toolbox.servers.get(self._name, {}).get("note", "")
        lines = [note, ""] if note else []
        for spec in specs.values():
            about = schemas.first_line(spec.description)
            lines += [spec.signature()] + ["    " + about] * bool(about)
        return "\n".join(lines)

    def __getattr__(self, key):
        if key.startswith("_") and (key.startswith("__") or self._name not in self._toolbox.known):
            raise AttributeError(missing("externals." + schemas.flat(self._name), key, ()))
        return self._find(key, AttributeError)

    def __getitem__(self, key):
        return self._find(key, KeyError)

    def _find(self, key, fault):
        box, name = self._toolbox, self._name
        tools = box.tools(name)
        tool = matching(key, tools)
        if tool is None:
            tools = box.tools(name, True)
            tool = matching(key, tools)
        if tool is None:
            raise fault(missing("externals." + schemas.flat(name), key, schemas.by_flat_name(tools)))
        return Tool(box, name, tool)

    def __iter__(self):
        return iter(list(self._toolbox.tools(self._name)))

    def __len__(self):
        return len(self._toolbox.tools(self._name))

    def __contains__(self, key):
        return matching(key, self._toolbox.tools(self._name)) is not None

    def __dir__(self):
        return sorted(schemas.by_flat_name(self._toolbox.tools(self._name)))

    def __repr__(self):
        return "<externals.%s>" % schemas.flat(self._name)

    def __reduce__(self):
        return maker(), ("Server", self._name)


class Tool:
    """One tool, to be called."""

    __module__ = "builtins"
    __slots__ = "_toolbox", "_server", "_name"

    def __init__(self, box, server, name):
        self._toolbox, self._server, self._name = box, server, name

    def __call__(self, /, *positional, **named):
        return self._toolbox.call(self._server, self._name, positional, named)

    @property
    def _spec(self):
        return self._toolbox.spec(self._server, self._name)

    @property
    def __name__(self):
        return schemas.flat(self._name)

    @property
    def __doc__(self):
        return self._spec.document()

    @property
    def __signature__(self):
        from inspect import Parameter, Signature

        spec, kind = self._spec, Parameter.POSITIONAL_OR_KEYWORD
        found = spec.input
        parameters = []
        for name in found.properties:
            key = schemas.flat(name)
            if found.names.get(key) != name:
                continue  # another has the same in Python: it goes by **{"its-name": value}
            schema = found.properties[name]
            least = schema.get("default") if isinstance(schema, dict) else None
            parameters.append(Parameter(
                key, kind, default=Parameter.empty if name in found.required else least, annotation=schemas.annotation(schema, found.schema),
            ))
        parameters.sort(key=lambda entry: entry.default is not entry.empty)
        if not found.closed:
            rest = "arguments"
            while rest in found.names:
                rest += "_"
            parameters.append(Parameter(rest, Parameter.VAR_KEYWORD))
        returned = dict if spec.output and not spec.wrapped else Signature.empty
        return Signature(parameters, return_annotation=returned)

    @property
    def __annotations__(self):
        signature = self.__signature__
        found = {name: entry.annotation for name, entry in signature.parameters.items() if entry.annotation is not entry.empty}
        if signature.return_annotation is not signature.empty:
            found["return"] = signature.return_annotation
        return found

    def __repr__(self):
        specs = self._toolbox.known.get(self._server, ("", {}))[1]
        spec = specs.get(self._name)
        return spec.line() if spec else "<externals.%s.%s>" % (schemas.flat(self._server), schemas.flat(self._name))

    def __reduce__(self):
        return maker(), ("Tool", self._server, self._name)


class Aio:
    """externals, a server or a tool of it, by names alone: what is called is a coroutine."""

    __module__ = "builtins"
    __slots__ = "_toolbox", "_names"

    def __init__(self, box, *names):
        self._toolbox, self._names = box, names

    def __getitem__(self, key):
        return self._next(key, KeyError)

    def __getattr__(self, key):
        if key.startswith("_"):
            raise AttributeError(key)
        return self._next(key, AttributeError)

    def _next(self, key, fault):
        box, names = self._toolbox, self._names
        if not names:
            server = box.server(key)
            if server is None:
                raise fault(missing("externals", key, box.servers))
            return Aio(box, server)
        if len(names) == 2:
            raise fault(missing(repr(self), key, ()))
        return Aio(box, *names, key)

    async def __call__(self, /, *positional, **named):
        if len(self._names) < 2:
            raise TypeError("%r is no tool" % self)
        return await self._toolbox.call_async(*self._names, positional, named)

    def __repr__(self):
        return "<externals.aio%s>" % "".join("." + schemas.flat(name) for name in self._names)

    def __reduce__(self):
        return maker(), ("Aio", *self._names)


KINDS = {"Server": Server, "Tool": Tool, "Aio": Aio}


def maker():
    """What makes them again, from whatever externals is there."""
    return sys.modules["builtins"].externals._make


class Desk:
    """Offers externals to code, and takes it back."""

    def __init__(self, worker):
        self.channel = channels.Channel(worker)
        self.toolbox = toolbox.Toolbox(self.channel)
        self.namespace = Externals(self.toolbox)

    def offer(self):
        builtins = sys.modules["builtins"]
        builtins.externals, builtins.ToolError = self.namespace, ToolError

    def begin(self, offer):
        """Before code runs. Without an offer the names are gone."""
        builtins = vars(sys.modules["builtins"])
        if offer is None:
            for name, value in (("externals", self.namespace), ("ToolError", ToolError)):
                if builtins.get(name) is value:
                    del builtins[name]
            return
        self.offer()
        self.toolbox.begin(offer["servers"])
        self.channel.begin(offer)

    def revive(self):
        self.channel.fresh()
        self.toolbox.revive()
