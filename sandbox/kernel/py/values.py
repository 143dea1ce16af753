"""Values as JSON text: what JSON can say as it is, all else as bounded text.

Calls user code (__repr__, a subclass's methods), so it runs under the guard.
"""

from itertools import islice

text = load("text")

DEPTH = 50
ENCODED = 1 << 20  # characters of JSON
REPR = 20_000
EXACT = 1 << 53  # integers beyond are strings: a JSON reader may hold them in a double
ITEMS = 5_000  # of a big container that its repr shows at each end
ARRAY = 1_000  # elements of a numpy array that become a list; numpy itself shows no more
TABLES = {"pandas": ("DataFrame", "Series", "Styler"), "polars": ("DataFrame", "Series", "LazyFrame")}
qualified = type.__dict__["__qualname__"].__get__


class Unfit(Exception):
    """No JSON for this value as a whole; the reason as a note."""


def encode(value):
    """(JSON text, note or None)."""
    kind = type(value)
    if kind is str and len(value) > ENCODED // 6:
        return encode_str(value)
    if is_table(kind):
        return text.quote(load("tables").told(value)), None
    pieces = Pieces()
    try:
        pieces.add(value, 0)
        return "".join(pieces.parts), pieces.note
    except Unfit as reason:
        shown, note = represent(value)
        shape = "%s, so it is shown as text" % reason
        return text.quote(shown), shape if note is None else "%s; %s" % (shape, note)


def encode_str(value):
    encoded = text.quote(value)
    if len(encoded) <= ENCODED + 2:
        return encoded, None
    kept = text.bounded(value, ENCODED // 12)
    return text.quote(kept), "a string of %d characters was cut to its head and tail" % len(value)


class Pieces:
    """Builds one value's JSON, and stops as soon as it is too much."""

    def __init__(self):
        self.parts = []
        self.size = 0
        self.note = None
        self.open = set()  # ids of the containers that we are inside of

    def put(self, part):
        self.size += len(part)
        if self.size > ENCODED:
            raise Unfit("a value of more than 1 MiB as JSON")
        self.parts.append(part)

    def add(self, value, depth):
        kind = type(value)
        if value is None or value is True or value is False:
            self.put(text.plain(value))
        elif kind is str:
            if len(value) > ENCODED:
                raise Unfit("a value of more than 1 MiB as JSON")
            self.put(text.quote(value))
        elif kind is int:
            self.put(self.integer(value))
        elif kind is float:
            self.put(self.real(value))
        elif issubclass(kind, (list, tuple)):
            self.nest(value, depth, self.add_list)
        elif issubclass(kind, dict):
            if all(issubclass(type(key), str) for key in dict.keys(value)):
                self.nest(value, depth, self.add_dict)
            else:
                self.add_repr(value)
        elif issubclass(kind, str):
            self.add(str.__str__(value), depth)
        elif issubclass(kind, int):
            self.put(self.integer(int(int.__repr__(value))))
        elif issubclass(kind, float):
            self.put(self.real(float.__float__(value)))
        else:
            self.add_other(value, kind, depth)

    def nest(self, value, depth, add):
        if depth >= DEPTH:
            raise Unfit("a value nested more than %d deep" % DEPTH)
        if id(value) in self.open:
            raise Unfit("a value that contains itself")
        self.open.add(id(value))
        add(value, depth + 1)
        self.open.discard(id(value))

    def add_list(self, value, depth):
        self.put("[")
        first = True
        for item in (list if issubclass(type(value), list) else tuple).__iter__(value):
            if not first:
                self.put(",")
            first = False
            self.add(item, depth)
        self.put("]")

    def add_dict(self, value, depth):
        self.put("{")
        first = True
        for key, item in dict.items(value):
            self.put(("" if first else ",") + text.quote(str.__str__(key)) + ":")
            first = False
            self.add(item, depth)
        self.put("}")

    def integer(self, value):
        if -EXACT <= value <= EXACT:
            return int.__repr__(value)
        try:
            return '"' + int.__repr__(value) + '"'
        except ValueError:  # sys.set_int_max_str_digits
            self.note = "an integer of too many digits is only described"
            return '"<int of about %d digits>"' % (value.bit_length() * 0.30103 + 1)

    @staticmethod
    def real(value):
        if value != value:
            return '"NaN"'
        if value in (float("inf"), float("-inf")):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        return float.__repr__(value)

    def add_other(self, value, kind, depth):
        """numpy's scalars and arrays, known by their looks; numpy is not imported for them."""
        if module(kind).partition(".")[0] == "numpy":
            shape = getattr(value, "shape", None)
            if shape == () and hasattr(value, "item"):
                plain = value.item()
                if type(plain) in (bool, int, float, str):
                    return self.add(plain, depth)
            elif isinstance(shape, tuple) and hasattr(value, "tolist") and value.size <= ARRAY:
                return self.add(value.tolist(), depth)
            elif isinstance(shape, tuple) and hasattr(value, "dtype"):
                self.note = self.note or "an array of more than %d elements is shown by both ends; its tolist() gives all" % ARRAY
                return self.put(text.quote("%s array of shape %s\n%s" % (value.dtype, shape, represent(value)[0])))
        return self.add_repr(value)

    def add_repr(self, value):
        shown, note = represent(value)
        self.note = self.note or note
        self.put(text.quote(shown))


def represent(value):
    """(bounded repr, note or None); never raises an Exception."""
    kind = type(value)
    try:
        cut = big(value, kind)
        shown = str.__str__(cut or repr(value))  # not a subclass with ideas of its own
    except Exception as error:
        return (
            "<%s object at 0x%x>" % (name(kind), id(value)),
            "repr() of %s raised %s" % (name(kind), name(type(error))),
        )
    if len(shown) <= REPR and cut is None:
        return shown, None
    return text.bounded(shown, REPR), "the repr of %s was cut to its head and tail" % name(kind)


def big(value, kind):
    """A repr of a big built-in container without making all of it."""
    if kind in (list, tuple) and len(value) > 2 * ITEMS:
        return "%s, ... %d items ..., %s" % (
            repr(value[:ITEMS])[:-1], len(value) - 2 * ITEMS, repr(value[-ITEMS:])[1:],
        )
    if kind in (set, frozenset) and len(value) > 2 * ITEMS:
        return "%s, ... %d items in all ...}" % (repr(set(islice(value, ITEMS)))[:-1], len(value))
    if kind is dict and len(value) > 2 * ITEMS:
        return "%s, ... %d items in all ...}" % (repr(dict(islice(value.items(), ITEMS)))[:-1], len(value))
    if kind is str and len(value) > 2 * REPR:
        return repr(text.bounded(value, REPR))
    if kind in (bytes, bytearray) and len(value) > 2 * REPR:
        return "%r ... %d bytes ... %r" % (value[: REPR // 4], len(value) - REPR // 2, value[-REPR // 4:])
    return None


def module(kind):
    """The name of a class's module; no metaclass has a say in it."""
    found = type.__getattribute__(kind, "__module__")
    return found if type(found) is str else ""


def is_table(kind):
    return table_kind(kind) is not None


def table_base(kind):
    """The class of pandas or polars that makes a class one of tables, or None. Neither is imported for it."""
    for base in type.__dict__["__mro__"].__get__(kind):
        library = module(base).partition(".")[0]
        if library in TABLES and base.__name__ in TABLES[library]:
            return base
    return None


def table_kind(kind):
    base = table_base(kind)
    return None if base is None else base.__name__


def table_library(kind):
    return module(table_base(kind)).partition(".")[0]


def name(kind):
    """A class's name; no metaclass has a say in it."""
    return qualified(kind)[:200]
