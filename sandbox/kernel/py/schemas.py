"""JSON Schemas of tools' arguments: as signatures and text for a reader, and as a first check.

The server is the judge. What is checked here are the mistakes that are made most, so that
they cost no call and are told by the name of the argument.
"""

DEPTH = 20
EFFORT = 100000  # schemas looked at in one check: one that refers to itself twice grows without bounds
effort = [EFFORT]
LINE = 160  # characters of a description in a list
KEYS = 8  # of an object that are named
NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}
KEYWORDS = frozenset((
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or",
    "pass", "raise", "return", "try", "while", "with", "yield",
))


def flat(name):
    """An identifier for any name."""
    found = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    if not found.isidentifier():
        found = "n" + found
    if not found.isidentifier():
        found = "".join(letter if letter.isascii() else "_" for letter in found)
    return found + "_" if found in KEYWORDS else found


def by_flat_name(names):
    """{identifier: name}; of two that would be the same, an exact one wins, else the first."""
    found = {}
    for name in names:
        found.setdefault(flat(name), name)
    found.update((name, name) for name in names if name.isidentifier() and name not in KEYWORDS)
    return found


class Input:
    """What a tool takes."""

    def __init__(self, schema):
        self.schema = schema if isinstance(schema, dict) else {}
        properties = self.schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = self.schema.get("required")
        self.required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        first = [name for name in properties if name in self.required]
        self.properties = {name: properties[name] for name in first + [name for name in properties if name not in self.required]}
        self.names = by_flat_name(self.properties)
        # Where the schema says more than a list of properties, others may be meant too.
        told = "properties" in self.schema or self.schema.get("additionalProperties") is False
        self.closed = told and self.schema.get("additionalProperties") in (None, False) and not any(
            key in self.schema for key in ("patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if")
        )

    def bind(self, where, positional, named):
        """{name: value} of a call's arguments, or TypeError."""
        names = list(self.properties)
        if len(positional) > len(names):
            raise TypeError("%s takes at most %d positional arguments, and got %d%s" % (where, len(names), len(positional), self.known()))
        found = dict(zip(names, positional))
        for key, value in named.items():
            name = key if key in self.properties else self.names.get(key, key)
            if name in found:
                raise TypeError("%s got argument '%s' twice" % (where, name))
            if self.closed and name not in self.properties:
                raise TypeError("%s has no argument '%s'%s%s" % (where, key, near(key, self.names), self.known()))
            found[name] = value
        effort[0] = EFFORT
        # A None for what need not be given is one left out, unless None is a value of it.
        for name in [name for name, value in found.items() if value is None and name not in self.required]:
            if name in self.properties and fault(None, self.properties[name], self.schema, 0):
                del found[name]
        missing = [name for name in self.required if name not in found]
        if missing:
            raise TypeError("%s misses argument%s %s%s" % (where, "s" * (len(missing) > 1), ", ".join("'%s'" % name for name in missing), self.known()))
        return found

    def known(self):
        return "; it takes: (%s)" % self.signature() if self.properties else ""

    def check(self, where, arguments):
        """TypeError or ValueError that names what is wrong with arguments, which are JSON."""
        effort[0] = EFFORT
        for name, value in arguments.items():
            schema = self.properties.get(name)
            said = schema is not None and fault(value, schema, self.schema, 0)
            if said:
                path, kind, what = said
                raise kind("%s argument '%s%s' %s" % (where, name, path, what))

    def signature(self):
        parts = []
        for name, schema in self.properties.items():
            part = flat(name) + ": " + hint(schema, self.schema, 0)
            if name not in self.required:
                part += " = " + (default(schema) or "None")
            parts.append(part)
        if not self.closed:
            parts.append("**arguments")
        return ", ".join(parts)


def near(name, names):
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), 1, 0.6)
    return " (did you mean '%s'?)" % found[0] if found else ""


def default(schema):
    value = schema.get("default") if isinstance(schema, dict) else None
    return short(repr(value), 60) if value is not None else ""


# Types


def resolved(schema, root, depth):
    """A schema without its $ref, and how deep that was."""
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        depth += 1
        path, found = schema["$ref"], root
        if depth > DEPTH or not path.startswith("#"):
            return {}, depth
        for key in path[1:].split("/")[1:]:
            found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        schema = found
    return schema if isinstance(schema, dict) else {}, depth


def hint(schema, root, depth):
    """A schema as a Python type's name."""
    schema, depth = resolved(schema, root, depth + 1)
    if depth > 6:
        return "Any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(short(repr(value), 60) for value in schema["enum"][:20]) + (" | ..." if len(schema["enum"]) > 20 else "") or "Any"
    if "const" in schema:
        return short(repr(schema["const"]), 60)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return joined(hint(part, root, depth) for part in schema[key][:10])
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    names = dict(NAMES)
    if "array" in kinds and isinstance(schema.get("items"), dict):
        names["array"] = "list[%s]" % hint(schema["items"], root, depth)
    if "object" in kinds and isinstance(schema.get("properties"), dict) and schema["properties"]:
        names["object"] = shape(schema, root, depth)
    return joined(names.get(kind, "Any") for kind in kinds if isinstance(kind, str)) or "Any"


def shape(schema, root, depth):
    """An object by its keys; those that may be missing have a ?."""
    required = schema["required"] if isinstance(schema.get("required"), list) else []
    keys = list(schema["properties"])
    parts = ["%s%s: %s" % (short(key, 60), "" if key in required else "?", hint(schema["properties"][key], root, depth)) for key in keys[:KEYS]]
    return "{%s}" % ", ".join(parts + ["..."] * (len(keys) > KEYS))


def joined(names):
    found = []
    for name in names:
        if name not in found:
            found.append(name)
    return "Any" if "Any" in found else " | ".join(found)


def annotation(schema, root, depth=0):
    """A schema as a type."""
    import typing

    schema, depth = resolved(schema, root, depth + 1)
    if depth > 6:
        return typing.Any
    if isinstance(schema.get("enum"), list) and schema["enum"] and all(isinstance(value, (str, int, bool, type(None))) for value in schema["enum"]):
        return typing.Literal[tuple(schema["enum"])]
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return typing.Union[tuple(annotation(part, root, depth) for part in schema[key][:10])]
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    types = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "null": None}
    if isinstance(schema.get("items"), dict):
        types["array"] = list[annotation(schema["items"], root, depth)]
    found = [types.get(kind, typing.Any) for kind in kinds if isinstance(kind, str)]
    return typing.Union[tuple(found)] if found else typing.Any


# A first check


def fault(value, schema, root, depth):
    """(path, exception's class, text) of the first thing that is wrong with a JSON value, or None."""
    effort[0] -= 1
    schema, depth = resolved(schema, root, depth + 1)
    if depth > DEPTH or not schema or effort[0] < 0:
        return None
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            found = [fault(value, part, root, depth) for part in schema[key]]
            if all(found):
                return found[0] if len(found) == 1 else ("", found[0][1], "must be %s, not %s" % (hint(schema, root, 0), shown(value)))
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found = fault(value, part, root, depth)
        if found:
            return found
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and kinds and not any(is_kind(value, kind) for kind in kinds):
        return "", TypeError, "must be %s, not %s" % (hint({"type": kinds, "items": schema.get("items")}, root, 0), shown(value))
    if isinstance(schema.get("enum"), list) and not any(same(value, other) for other in schema["enum"]):
        return "", ValueError, "must be one of %s, not %s" % (hint(schema, root, 0).replace(" | ", ", "), shown(value))
    if "const" in schema and not same(value, schema["const"]):
        return "", ValueError, "must be %s, not %s" % (short(repr(schema["const"]), 60), shown(value))
    if isinstance(value, list):
        return first_fault(value, schema.get("items"), root, depth)
    if isinstance(value, dict):
        return fault_in_object(value, schema, root, depth)
    return None


def first_fault(values, schema, root, depth):
    if not isinstance(schema, dict):
        return None
    for index, value in enumerate(values):
        found = fault(value, schema, root, depth)
        if found:
            return "[%d]%s" % (index, found[0]), found[1], found[2]
    return None


def fault_in_object(value, schema, root, depth):
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for name in schema["required"] if isinstance(schema.get("required"), list) else ():
        if isinstance(name, str) and name not in value:
            return "", TypeError, "misses '%s'" % name
    for name, item in value.items():
        if name in properties:
            found = fault(item, properties[name], root, depth)
            if found:
                return "[%r]%s" % (name, found[0]), found[1], found[2]
        elif schema.get("additionalProperties") is False and "patternProperties" not in schema:
            return "", TypeError, "has no '%s'%s" % (short(name, 100), near(name, properties))
    return None


def is_kind(value, kind):
    if kind == "boolean":
        return value is True or value is False
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer()
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "array": list, "object": dict, "null": type(None)}
    return isinstance(value, kinds[kind]) if kind in kinds else True


def same(one, other):
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def shown(value):
    return short(repr(value), 60) + (" (%s)" % type(value).__name__ if value is not None else "")


def first_line(said):
    """A description in a line."""
    for line in str(said).strip().splitlines():
        if line.strip():
            return short(line.strip(), LINE)
    return ""


def short(said, limit):
    return said if len(said) <= limit else said[: limit - 3] + "..."
