"""What code shows besides text: pictures, HTML, and whatever else knows how it looks.

Each goes to the server at its moment, ahead of the reply: a worker that is killed at
its limit has shown until then what it has shown. How an object looks is found out
by looks.py, and how a Matplotlib figure does by figures.py, which are loaded when they are needed.
"""

import sys
from posix import getpid, write
from select import PIPE_BUF

from _thread import get_ident

frames = load("frames")
text = load("text")

# Bounds of one call. The server refuses more than these, and ends the interpreter for it.
IMAGES = 8  # shown as such
KEPT = 32  # of all kinds
BYTES = 32 << 20
DATA = 2 << 20  # of one that is shown
ORIGINAL = 16 << 20  # of one that is kept beside it, or instead

# Of these exact types nothing can be shown but the value itself.
PLAIN = frozenset((
    type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, type,
    type(len), type(load), type(sys), type(...),
))


class Displays:
    """One for each worker. What other threads show waits for the main thread to write it,
    which alone writes to the channel."""

    def __init__(self, outlet, notes):
        self.outlet = outlet
        self.notes = notes  # a function that takes one
        self.pid = getpid()
        self.main = get_ident()
        self.call = ""  # the id of the request under way; "" between the calls
        self.waiting = []
        self.images = self.count = self.bytes = self.lost = 0

    def begin(self, call):
        self.images = self.count = self.bytes = self.lost = 0
        self.waiting.clear()
        self.call = call

    def end(self):
        """After this nothing is sent but the reply."""
        self.flush()
        self.call = ""
        if self.lost:
            self.notes("%d more display(s) of this call were left out: at most %d, and %d MiB, go with a result" % (self.lost, KEPT, BYTES >> 20))

    def is_idle(self, value):
        """At the end of most calls there is nothing to show, and then nothing more is."""
        if type(value) in PLAIN and not (self.count or self.waiting or self.lost) and "matplotlib.pyplot" not in sys.modules:
            self.call = ""
            return True
        return False

    def open(self):
        return self.call != "" and getpid() == self.pid

    def add(self, mime, data, original=b"", original_mime="", about=""):
        """Show data; original is what there was before it was made to fit, and about says so.

        Without data there is only the original, as something to fetch.
        """
        size = len(data) + len(original)
        if self.count >= KEPT or self.bytes + size > BYTES:
            self.lost += 1
            return
        self.count += 1
        self.bytes += size
        if data and mime.startswith("image/"):
            self.images += 1
        self.waiting.append((mime, data, original, original_mime, about))
        if get_ident() == self.main:
            self.flush()

    def room(self):
        """Whether one more picture is shown as such."""
        return self.images < IMAGES

    def flush(self):
        while self.waiting:
            mime, data, original, original_mime, about = self.waiting.pop(0)
            head = {
                "id": self.call, "mime": mime, "size": len(data),
                "original_mime": original_mime, "original": len(original), "about": about[:1000],
            }
            self.put(frames.DISPLAY, text.compose(head).encode("ascii"))
            for part in (data, original):
                view = memoryview(part)
                for start in range(0, len(view), PIPE_BUF - frames.HEADER):
                    self.put(frames.SHOWN, view[start : start + PIPE_BUF - frames.HEADER])

    def put(self, kind, payload):
        # A pipe takes so few bytes all or none, so that an interrupt, or a handler of the
        # user's own, which may come at any moment here, never leaves half a frame.
        write(self.outlet, frames.frame(kind, payload))

    # What user code calls

    def display(self, *objects, include=None, exclude=None, metadata=None, raw=False, **_):
        """Show objects: pictures, figures, tables, HTML, Markdown, or else their repr."""
        for value in objects:
            if not self.open():
                print(value if type(value) is str else repr(value))
            elif not load("looks").show(self, value, raw):
                print(load("looks").spoken(value))

    def offer(self):
        """Make display a builtin, as it is in a notebook."""

        def display(*objects, **options):
            """Show objects: pictures, figures, tables, HTML, Markdown, or else their repr."""
            self.display(*objects, **options)

        display.__module__ = "builtins"
        display.__qualname__ = "display"
        sys.modules["builtins"].display = display
        self.function = display

    # Repairs of modules that would show things elsewhere: see hooks.py

    def repairs(self):
        return {
            "matplotlib": self.matplotlib,
            "matplotlib.pyplot": self.pyplot,
            "IPython.core.display_functions": self.notebook,
            "IPython.core.display": self.notebook,
            "IPython.display": self.notebook,
            "PIL.Image": self.pillow,
            "plotly.basedatatypes": self.plotly,
        }

    def matplotlib(self, module):
        # Before anything asks for the backend: finding one by trial imports toolkits.
        module.rcParams["backend"] = "agg"

    def pyplot(self, module):
        load("figures").attend(self, module)

    def notebook(self, module):
        if hasattr(module, "display"):
            module.display = self.function

    def pillow(self, module):
        show = self.function
        module.Image.show = lambda self, *_, **__: show(self)

    def plotly(self, module):
        show = self.function
        module.BaseFigure.show = lambda self, *_, **__: show(self)

    # At the end of a call

    def finish(self, deadline):
        """Show the figures that are open; an exception that drawing raised, or None."""
        if "matplotlib.pyplot" in sys.modules and self.open():
            return load("figures").finish(self, deadline)

    def last(self, value):
        """Show the value of the last expression, if there is more to see than text; whether
        nothing is left to say of it."""
        kind = type(value)
        if kind in PLAIN and not (self.count and kind in (list, tuple)) or not self.open():
            return False
        return load("looks").last(self, value)
