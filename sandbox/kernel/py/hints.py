"""What helps after an error that the sandbox itself may have caused, or a notebook's habits."""

import errno
import sys
from posix import listdir

text = load("text")
values = load("values")

LINKS = 10  # exceptions of a chain
NAMES = 40  # packages in a list
CLOSE = 3
UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
# What people install is not always called what they import.
INSTALLED_AS = {"cv2": "opencv-python", "sklearn": "scikit-learn", "PIL": "pillow", "yaml": "PyYAML", "bs4": "beautifulsoup4", "dateutil": "python-dateutil"}


def give(error, workdir):
    """(what the server is to explain: "network", "path", "package" or "", what we explain ourselves)."""
    for link in chain(error):
        kind = type(link)
        if issubclass(kind, ModuleNotFoundError):
            return missing(link.name)
        if values.name(kind) == "gaierror" or issubclass(kind, OSError) and link.errno in UNREACHABLE:
            return "network", ""
        if issubclass(kind, OSError) and type(link.filename) is str:
            found = path(link, workdir)
            if found != ("", ""):
                return found
        if issubclass(kind, SyntaxError) and type(link.text) is str and link.text.lstrip()[:1] in ("!", "%"):
            return notebooks(link.text.split())
        if issubclass(kind, EOFError) and "reading a line" in str(link):
            return "", "There is nobody to answer input(): pass data as `inputs`."
    return "", ""


def chain(error):
    found, left = [], [error]
    while left and len(found) < LINKS:
        link = left.pop(0)
        if link is not None and not any(link is other for other in found):
            found.append(link)
            left += [link.__cause__, link.__context__]
            if issubclass(type(getattr(link, "reason", None)), BaseException):  # urllib's
                left.append(link.reason)
    return found


def path(error, workdir):
    if error.errno in FORBIDDEN:
        return "path", ""
    if error.errno != errno.ENOENT:
        return "", ""
    folder, _, name = error.filename.rpartition("/")
    if error.filename.startswith("/") and workdir and not error.filename.startswith((workdir + "/", "/tmp/")):
        try:
            close = near(name, listdir(workdir))
        except OSError:
            close = []
        return "path", "Close names in %s: %s." % (workdir, listed(close)) if close else ""
    try:
        there = sorted(listdir(folder or "."))
    except OSError:
        return "", ""
    close = near(name, there)
    where = folder or "the working directory"
    if close:
        return "", "Close names in %s: %s." % (where, listed(close))
    if not there:
        return "", "There are no files in %s." % where
    return "", "In %s there are: %s." % (where, listed(there, 10))


def notebooks(words):
    """As give, for a notebook's line, of which these are the words."""
    said = "Lines that begin with ! or % are a notebook's, not Python's: "
    if {"pip", "pip3", "conda", "uv", "mamba"} & {word.lstrip("!%") for word in words[:4]}:
        return "package", said + "leave it out, and import what there is."
    if words[0].startswith("%"):
        return "", said + "leave them out. Figures are shown without %matplotlib."
    return "", said + "run programs by subprocess.run()."


def missing(name):
    """As give, for a module that is not there."""
    if type(name) is not str or not name:
        return "", ""
    top, _, rest = name.partition(".")
    if rest and top in sys.modules:
        return "", ""  # the package is there, and a part of it is not
    if top == "IPython":
        return "", "IPython is not installed here; display() is a builtin, and needs no import."
    found = packages()
    close = near(top, found)
    said = ["No package %s is installed here." % text.bounded(top, 100)]
    if close:
        said.append("Close names: %s." % listed(close))
    said.append("Besides the standard library there are: %s." % listed(found, NAMES) if found else "There is the standard library alone.")
    # No `pip install` with a name that somebody may only have misspelt.
    if top in INSTALLED_AS:
        said.append("%s comes with the package %s." % (top, INSTALLED_AS[top]))
    return "package", " ".join(said)


def packages():
    """The names of installed packages as one imports them."""
    found = set()
    for entry in sys.path:
        if "site-packages" not in entry and "dist-packages" not in entry:
            continue
        try:
            names = listdir(entry)
        except OSError:
            continue
        for name in names:
            bare, dot, ending = name.partition(".")
            if bare.isidentifier() and not bare.startswith("_") and (not dot or ending == "py" or ending.endswith(("so", "pyd"))):
                found.add(bare)
    return sorted(found - {"pip", "setuptools", "wheel", "pkg_resources", "distutils"}, key=str.lower)


def near(name, names):
    from difflib import get_close_matches

    folded = {}
    for other in names:
        folded.setdefault(other.lower(), other)
    return [folded[found] for found in get_close_matches(name.lower(), list(folded), CLOSE, 0.7)]


def listed(names, most=CLOSE):
    shown = ", ".join(text.bounded(name, 100) for name in names[:most])
    return shown + " and %d more" % (len(names) - most) if len(names) > most else shown
