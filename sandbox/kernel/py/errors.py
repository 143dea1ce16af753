"""An uncaught exception as text: the user's frames, with their lines, bounded."""

text = load("text")
values = load("values")

MESSAGE = 20_000  # characters of one frame or message
TOTAL = 60_000
FRAMES = 40
CHAIN = 40  # exceptions linked by cause or context
LONG = 4_000  # frames after which the middle of a traceback is not even read


def describe(error):
    """Runs user code (__str__ and more), so it runs under the guard. May still raise."""
    import traceback

    links = chain(error)
    for link in links:
        link.__traceback__ = trimmed(link.__traceback__)
    report = traceback.TracebackException(type(error), error, error.__traceback__)
    bound(report, traceback, 0)
    pieces = [text.bounded(piece, MESSAGE) for piece in report.format()]
    return text.bounded("".join(pieces), TOTAL).rstrip("\n")


def chain(error):
    """All exceptions that a report of error will show; a chain that is too long is cut."""
    found, left = [], [error]
    while left:
        link = left.pop()
        if link is None or any(link is other for other in found):
            continue
        found.append(link)
        if len(found) > CHAIN:
            link.__cause__ = link.__context__ = None
            continue
        left.extend((link.__cause__, link.__context__))
        left.extend(tuple(getattr(link, "exceptions", ()))[:CHAIN] if is_group(link) else ())
    return found


def is_group(error):
    return issubclass(type(error), __builtins__.get("BaseExceptionGroup", ()))  # new in 3.11


def trimmed(trace):
    """The traceback from the user's first frame on, without the middle of a very long one."""
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    names = [entry.tb_frame.f_code.co_filename for entry in entries]
    first = next((index for index, name in enumerate(names) if name.startswith("<call ")), None)
    if first is None:
        first = next((index for index, name in enumerate(names) if name not in kernel_files), len(names))
    kept = entries[first:]
    if len(kept) > LONG:
        kept = kept[: LONG // 2] + kept[-LONG // 2:]
    kept = [entry for entry in kept if entry.tb_frame.f_code.co_filename not in kernel_files]
    if len(kept) == len(entries) - first and not len(entries) - first > LONG:
        return entries[first] if kept else None
    rebuilt = None
    for entry in reversed(kept):
        rebuilt = type(entry)(rebuilt, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rebuilt


def bound(report, traceback, depth):
    """Give every stack of a report a bounded format; the report itself knows chains and groups."""

    class Stack(traceback.StackSummary):
        def format(self, **options):
            lines = shortened(self, traceback, options)
            if len(lines) <= FRAMES:
                return lines
            half = FRAMES // 2
            return lines[:half] + ["  ... %d frames left out ...\n" % (len(lines) - FRAMES)] + lines[-half:]

    left, seen = [report], 0
    while left and seen < 10 * CHAIN:
        link = left.pop()
        if link is not None:
            seen += 1
            if link.stack is not None:
                link.stack = Stack(link.stack)
            left.extend((link.__cause__, link.__context__))
            left.extend(getattr(link, "exceptions", None) or ())


def shortened(stack, traceback, options):
    """The lines of a stack: the user's frames in full, the last of them marked; libraries' in short."""
    plain, standard = traceback.StackSummary, traceback.__file__.rpartition("/")[0] + "/"
    marks = ("/site-packages/", "/dist-packages/", standard)
    runs = []  # [whether they are a library's, frames]
    for frame in stack:
        library = is_library(frame.filename, marks)
        if not runs or runs[-1][0] != library:
            runs.append((library, []))
        runs[-1][1].append(frame)
    if not any(not library for library, _ in runs):  # where no code of the user's is on the stack
        return [summary(stack, marks)] if stack else []
    users = [number for number, (library, _) in enumerate(runs) if not library][-1]
    lines = []
    for number, (library, frames) in enumerate(runs):
        if library:
            lines.append(summary(frames, marks))
            continue
        shown = plain(frames).format(**options)
        if number == users:
            for index in range(len(shown) - 1, -1, -1):
                if shown[index].startswith("  File "):
                    shown[index] = shown[index].replace("\n    ", "\n--> ", 1)
                    break
        lines += shown
    return lines


def is_library(name, marks):
    """Compiled modules name the file that they were made from, by a path that leads nowhere."""
    return name.startswith("<frozen ") or name.endswith((".pyx", ".pxi", ".pxd")) or any(mark in name for mark in marks)


def summary(frames, marks):
    """A library's frames, of which the last is where it happened."""
    last = frames[-1]
    where = last.filename
    for mark in marks:
        where = where.rpartition(mark)[2]
    many = "" if len(frames) == 1 else "%d library frames, the last: " % len(frames)
    return "  ... %s%s:%s in %s\n" % (many, where, last.lineno, last.name)


def brief(error):
    """For when describe failed: what can be said without running anything of the user's."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename not in kernel_files:
            lines.append('  File "%s", line %d, in %s' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    if len(lines) > FRAMES:
        del lines[FRAMES // 2 : -FRAMES // 2]
    said = BaseException.__dict__["args"].__get__(error)
    if len(said) == 2 and type(said[0]) is int and type(said[1]) is str:  # an OSError's
        said = ("[Errno %d] %s" % said,)
    said = ": " + text.bounded(said[0], MESSAGE) if len(said) == 1 and type(said[0]) is str else ""
    return "\n".join(lines + [values.name(type(error)) + said])
