"""How an object looks: the methods by which notebooks ask it, and pictures made to fit.

Runs user code (the methods of its objects), so it runs under the guard.
"""

import sys

text = load("text")
values = load("values")

EDGE = 2000  # pixels of a picture's longer side: beyond it models' vendors scale or refuse
DATA = 2 << 20  # bytes of a picture that is shown
ORIGINAL = 16 << 20  # bytes of what is kept beside it
SHOWN = 20_000  # characters of Markdown, LaTeX or JSON
AREA = 40 << 20  # pixels that are worth encoding, or decoding, in full

# From what a model sees best to what it sees least.
METHODS = (
    ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"), ("image/svg+xml", "_repr_svg_"),
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
)
CHARTS = {"plotly": "application/vnd.plotly.v1+json", "altair": "application/vnd.vegalite.v5+json"}
ALIASES = {"image/jpg": "image/jpeg"}
TEXTS = {"text/markdown", "text/latex", "application/json", "text/plain"}
WHOLE, BESIDE = "whole", "beside"  # what is shown says all; its text is still to be said


def show(displays, value, raw=False):
    """For display(): whether nothing is left to print."""
    if raw and type(value) is dict:
        plain = value.get("text/plain")
        if offer(displays, value, None) is None:
            if plain is not None:
                print(plain)
            else:
                displays.notes(unshown(value))
        return True
    return look(displays, value) is WHOLE


def unshown(bundle):
    """A note on a bundle of which nothing can be shown."""
    if not bundle:
        return "display(raw=True): the dict is empty, so nothing is shown"
    kinds = ", ".join(text.bounded(str(kind), 100) for kind in list(bundle)[:5])
    return "display(raw=True): nothing can be shown of %s; what can be: images as bytes or base64, and text/plain, text/html, text/markdown, text/latex, application/json" % kinds


def last(displays, value):
    """For the value of the last expression: whether nothing is left to say."""
    if displays.count and drawing(value):
        return True  # what plot() and title() return is of no use beside the figure
    return look(displays, value) is WHOLE


def spoken(value):
    """What display() prints of an object that has no looks."""
    kind = type(value)
    if kind is str:
        return value
    if values.is_table(kind):
        return load("tables").told(value)
    return values.represent(value)[0]


def look(displays, value):
    """Show what there is to see: WHOLE, BESIDE, or None if there is nothing."""
    kind = type(value)
    if issubclass(kind, type):
        return None
    module = values.module(kind)
    if module.startswith("matplotlib.") and hasattr(kind, "savefig"):
        load("figures").show_figure(displays, value)
        return WHOLE
    if module.startswith("PIL.") and hasattr(kind, "thumbnail"):
        pillow(displays, value)
        return WHOLE
    if values.is_table(kind):
        html(displays, load("tables").html(value))
        return BESIDE
    for library, mime in CHARTS.items():
        if hasattr(kind, "to_json") and any(values.module(base).startswith(library + ".") for base in kind.__mro__):
            chart(displays, mime, value.to_json(), library)
            return WHOLE
    return methods(displays, value, kind)


def drawing(value):
    """Whether a value is a part of a Matplotlib figure, or a container of such."""
    for _ in range(3):
        if values.module(type(value)).startswith("matplotlib."):
            return not hasattr(type(value), "savefig")
        if type(value) in (list, tuple) and value:
            value = value[0]
        elif values.module(type(value)) == "numpy" and getattr(value, "dtype", None) == object and value.size:
            value = value.flat[0]
        else:
            return False
    return False


def methods(displays, value, kind):
    """Ask an object as a notebook does; the first answer that can be shown is."""
    bundle = asked(value, kind, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(bundle, dict):
        found = offer(displays, bundle, value)
        if found is not None:
            return found
    for mime, name in METHODS:
        data = asked(value, kind, name)
        if data is not None:
            found = offer(displays, {mime: data}, value)
            if found is not None:
                return found
    return None


def asked(value, kind, name, **options):
    """What a method says, without its metadata; None if there is none, or it fails."""
    method = getattr(kind, name, None)
    if method is None:
        return None
    try:
        said = method(value, **options)
    except Exception:
        return None  # as in a notebook: another method, or the repr, says it
    return said[0] if type(said) is tuple and len(said) == 2 else said


def offer(displays, bundle, value):
    """Show the best of {media type: data}; WHOLE, BESIDE or None."""
    bundle = {ALIASES.get(mime, mime): data for mime, data in bundle.items() if type(mime) is str}
    for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        data = octets(bundle.get(mime))
        if data:
            picture(displays, mime, data)
            return WHOLE
    for mime, data in bundle.items():
        if mime.startswith("application/vnd.") and ("plotly" in mime or "vega" in mime):
            chart(displays, mime, data, "plotly" if "plotly" in mime else "altair")
            return WHOLE
    for mime, _ in METHODS[2:]:
        data = bundle.get(mime)
        if data is None:
            continue
        if mime not in TEXTS:
            attach(displays, mime, data)
        elif not written(displays, mime, data):
            continue
        bare = mime in ("image/svg+xml", "application/json") or values.module(type(value)).startswith("IPython.")
        return WHOLE if bare else BESIDE
    return None


def octets(data):
    """Bytes of a picture, which a bundle may have in base64."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        from binascii import a2b_base64

        try:
            return a2b_base64(data)
        except ValueError:
            pass
    return None


def encoded(data):
    return data if isinstance(data, bytes) else str(data).encode("utf-8", "replace")


def attach(displays, mime, data):
    """What a model can't see, and a person may want to fetch."""
    data = encoded(data)
    if len(data) > ORIGINAL:
        displays.add(mime, b"", about="%d bytes, more than the %d MiB that are kept" % (len(data), ORIGINAL >> 20))
    else:
        displays.add(mime, b"", data, mime)


def html(displays, data):
    if data:
        attach(displays, "text/html", data)


def written(displays, mime, data):
    """Show text; whether it is any."""
    if mime == "application/json" and not isinstance(data, (str, bytes)):
        data = jsoned(data, str)
    if not isinstance(data, str):
        return False
    if len(data) <= SHOWN:
        displays.add(mime, encoded(data))
    else:
        whole = encoded(data)
        displays.add(mime, encoded(text.bounded(data, SHOWN)), whole if len(whole) <= ORIGINAL else b"", mime, "shortened")
    return True


def jsoned(data, odd):
    """Data as JSON; odd(x) stands for a number that JSON has not: NaN and the infinities."""
    import json

    try:
        return json.dumps(data, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(finite(data, odd, values.DEPTH), ensure_ascii=False, default=str)


def finite(data, odd, depth):
    if depth == 0:
        raise ValueError("nested too deep")
    if isinstance(data, float):
        if data != data:
            return odd("NaN")
        return odd("Infinity" if data > 0 else "-Infinity") if data in (float("inf"), float("-inf")) else data
    if isinstance(data, dict):
        return {finite(key, str, 1): finite(item, odd, depth - 1) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(item, odd, depth - 1) for item in data]
    return data


def chart(displays, mime, data, library):
    """A figure that a browser draws."""
    data = encoded(data if isinstance(data, (str, bytes)) else jsoned(data, lambda _: None))  # null: what a chart leaves out
    how = "fig.write_image() where kaleido" if library == "plotly" else "chart.save() where vl-convert"
    if len(data) > ORIGINAL:
        data = b""
    displays.add(mime, b"", data, mime, "JSON for a browser to draw; for a picture, draw it with Matplotlib, or call %s is installed" % how)


# Pictures


def picture(displays, mime, data, about=""):
    """Show a picture, smaller if need be."""
    size = dimensions(data)
    if not displays.room():
        displays.add(mime, b"", data if len(data) <= ORIGINAL else b"", mime, "not shown, since %d images at most go with a result" % displays.images)
    elif size and mime in ("image/png", "image/jpeg") and max(size) <= EDGE and len(data) <= DATA:
        displays.add(mime, data, about=about)
    else:
        shrink(displays, mime, data, about)


def shrink(displays, mime, data, about):
    """Show a smaller copy, and keep the original."""
    original = data if len(data) <= ORIGINAL else b""
    try:
        from io import BytesIO

        from PIL import Image

        with Image.open(BytesIO(data)) as image:
            if image.size[0] * image.size[1] > 2 * AREA:
                raise ValueError
            said = "scaled down from %d x %d" % image.size if max(image.size) > EDGE or len(data) > DATA else ""
            small, kind = fitted(image)
    except Exception:
        displays.add(mime, b"", original, mime, "not shown: it is too large, or no picture, and Pillow can't make a smaller one of it")
        return
    displays.add(kind, small, original, mime, "; ".join(filter(None, (about, said))))


def pillow(displays, image):
    """Show a PIL image."""
    from io import BytesIO

    width, height = image.size
    if max(width, height) <= EDGE:
        file = BytesIO()
        plain(image).save(file, "PNG")
        return picture(displays, "image/png", file.getvalue())
    data, mime = fitted(image)
    original = b""
    if width * height <= AREA:
        file = BytesIO()
        plain(image).save(file, "PNG", compress_level=1)
        original = file.getvalue()
    about = "scaled down from %d x %d" % (width, height)
    if len(original) > ORIGINAL or not original:
        original, about = b"", about + ", which is too large to be kept: save() writes it to a file"
    if not displays.room():
        data, about = b"", "not shown, since %d images at most go with a result" % displays.images
    displays.add(mime, data, original, "image/png", about)


def plain(image):
    """An image in a mode that PNG has."""
    if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        return image
    if image.mode in ("I", "I;16", "F"):
        low, high = image.getextrema()
        scale = 255 / (high - low) if high > low else 0
        return image.convert("F").point(lambda value: value * scale - low * scale).convert("L")
    return image.convert("RGBA" if "A" in image.mode or "a" in image.mode else "RGB")


def fitted(image):
    """(bytes, media type) of an image made so small that it can be shown."""
    from io import BytesIO

    image = plain(image)
    if image.mode in ("P", "1"):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    edge = min(EDGE, max(image.size))
    for kind in ("PNG",) + ("JPEG",) * 8:
        ratio = edge / max(image.size)
        small = image if ratio >= 1 else image.resize([max(1, round(side * ratio)) for side in image.size], 1)  # LANCZOS
        if kind == "JPEG" and small.mode != "RGB":
            from PIL import Image

            ground = Image.new("RGBA", small.size, "white")
            ground.alpha_composite(small.convert("RGBA"))
            small = ground.convert("RGB")
        file = BytesIO()
        small.save(file, kind, **({"quality": 85} if kind == "JPEG" else {}))
        if len(file.getvalue()) <= DATA:
            return file.getvalue(), "image/" + kind.lower()
        if kind == "JPEG":
            edge = edge * 3 // 4
    raise ValueError("no small copy")


def dimensions(data):
    """(width, height) of a PNG or JPEG by its header, or None."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
