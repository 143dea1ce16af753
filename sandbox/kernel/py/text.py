"""JSON without the json package, whose import (re, enum and more) costs as much as a bare Python."""

import sys

try:
    from _json import encode_basestring_ascii as quote, make_scanner

    class _Context:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = {
            "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
        }.__getitem__

    scan = make_scanner(_Context())
    scan("{}", 0)
except Exception:  # an interpreter without the C accelerator, or with another one
    from json import JSONDecoder
    from json.encoder import py_encode_basestring_ascii as quote

    scan = JSONDecoder().raw_decode


def unlimited():
    """Lift the limit of an integer's digits, where this Python has one; the limit as it was."""
    if not hasattr(sys, "set_int_max_str_digits"):
        return 0
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    return limit


def parse(data):
    """A JSON value from UTF-8 bytes; ValueError (or RecursionError) otherwise."""
    text = data.decode("utf-8").strip()
    limit = unlimited()  # of digits: the data is bounded already
    try:
        value, end = scan(text, 0)
    except StopIteration:
        raise ValueError("not JSON") from None
    finally:
        if limit:
            sys.set_int_max_str_digits(limit)
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


def compose(fields):
    """A flat object of None, bools, ints, floats and strings."""
    return "{" + ",".join(quote(key) + ":" + plain(value) for key, value in fields.items()) + "}"


def plain(value):
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else repr(value)


def bounded(text, limit):
    """text itself, or its head and tail around a line that counts what is missing."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
