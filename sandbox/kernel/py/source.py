"""The text of a call: made into code, and kept for tracebacks and inspect."""

from sys import modules

import _ast

PARSE_ONLY = 0x400  # ast.PyCF_ONLY_AST; the ast module costs 5 ms
TOP_LEVEL_AWAIT = 0x2000
FUTURES = 0x1FE0000  # the flags of `from __future__ import ...`
KEPT = 16 << 20  # characters of source kept for tracebacks


class Refused(Exception):
    """Text that can't be Python source at all."""


def clean(text):
    """The text as an editor would have saved it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair each, from a client that escapes UTF-16 units.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        for number, line in enumerate(text.split("\n"), 1):
            for char in line:
                if "\ud800" <= char <= "\udfff":
                    raise Refused("line %d holds a lone surrogate (U+%04X)" % (number, ord(char)))
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise Refused("line %d holds a NUL character" % (text.count("\n", 0, text.index("\0")) + 1))
    return text


def parse(text, name):
    flags = PARSE_ONLY | TOP_LEVEL_AWAIT
    try:
        return compile(text, name, "exec", flags, True)
    except IndentationError as error:
        if not indented(text):
            raise
        first = error
    # The whole text is indented. Inside a block it is right as it stands: nothing
    # is cut from lines within strings, and columns stay those of the text.
    try:
        tree = compile("if 1:\n" + text + "\n", name, "exec", flags, True)
    except IndentationError:
        raise first from None
    except SyntaxError as error:
        if error.lineno:
            error.lineno -= 1
        if getattr(error, "end_lineno", None):
            error.end_lineno -= 1
        raise error.with_traceback(None) from None
    if len(tree.body) != 1:
        raise first  # some line is not indented after all
    tree.body = tree.body[0].body
    lift(tree)
    return tree


def indented(text):
    for line in text.split("\n"):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return line[0] in " \t"
    return False


def lift(tree):
    """Every node one line up."""
    left = [tree]
    while left:
        node = left.pop()
        if getattr(node, "lineno", None) is not None:
            node.lineno -= 1
            if node.end_lineno is not None:
                node.end_lineno -= 1
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                left.extend(child for child in value if isinstance(child, _ast.AST))
            elif isinstance(value, _ast.AST):
                left.append(value)


def silenced(text, node):
    """Whether a semicolon follows the last statement."""
    lines = text.split("\n")
    rest = lines[node.end_lineno - 1].encode()[node.end_col_offset:].decode("utf-8", "replace")
    return rest.lstrip(" \t\f\\").startswith(";")


def compiled(text, name):
    """(code of the statements, code of the last expression), each None if there is none."""
    try:
        return divided(text, name)
    except SyntaxError as error:
        # What the compiler finds, and not the parser, comes without its line.
        if error.text is None and error.filename == name and error.lineno:
            error.text = text.split("\n")[error.lineno - 1] + "\n"
        raise


def divided(text, name):
    tree = parse(text, name)
    last = None
    if tree.body and isinstance(tree.body[-1], _ast.Expr) and not silenced(text, tree.body[-1]):
        last = _ast.Expression(tree.body.pop().value)
    flags = TOP_LEVEL_AWAIT
    body = None
    if tree.body:
        body = compile(tree, name, "exec", flags, True)
        flags |= body.co_flags & FUTURES
    if last is not None:
        last = compile(last, name, "eval", flags, True)
    return body, last


class Sources:
    """The sources of the latest calls, by file name, as linecache holds them."""

    def __init__(self):
        self.texts = {}
        self.size = 0

    def add(self, name, text):
        self.texts[name] = text
        self.size += len(text)
        while self.size > KEPT and len(self.texts) > 1:
            oldest = next(iter(self.texts))
            self.size -= len(self.texts.pop(oldest))
            self.cache().pop(oldest, None)
        self.publish()

    def adopt(self, texts):
        """Take over those of a session that was hibernated."""
        self.texts = {name: text for name, text in texts.items() if type(name) is type(text) is str}
        self.size = sum(map(len, self.texts.values()))
        self.publish()

    def cache(self):
        linecache = modules.get("linecache")  # 2 ms to import: not before something else did
        cache = getattr(linecache, "cache", None)
        return cache if isinstance(cache, dict) else {}

    def publish(self, linecache=None):
        """Give linecache what it lacks (or lost in a clearcache)."""
        if "linecache" in modules:
            cache = self.cache()
            for name in reversed(self.texts):  # no copy: there may be very many
                if name in cache:
                    break
                text = self.texts[name]
                # No time of change: checkcache leaves such an entry alone.
                cache[name] = len(text), None, [line + "\n" for line in text.split("\n")], name

    def defining(self, kind):
        """The file name of the call that defined a class of __main__, or None."""
        for value in list(vars(kind).values()):
            code = getattr(getattr(value, "__func__", value), "__code__", None)
            name = getattr(code, "co_filename", None)
            if name in self.texts and "class " + kind.__name__ in self.texts[name]:
                return name
        for name in reversed(list(self.texts)):
            if "class " + kind.__name__ in self.texts[name]:
                return name
        return None
