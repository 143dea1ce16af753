"""Matplotlib's figures: each is shown once for each state that it was in."""

import sys
from time import perf_counter

looks = load("looks")

EDGE = 8000  # pixels of one side that are drawn; a larger figure is drawn with less resolution
shown = []  # [weak reference to a figure] of those shown and not changed since


def attend(displays, pyplot):
    """Show what user code wants to see at its moment, and number figures by their making."""
    from itertools import count

    numbers = count()

    def show(*_, block=None, **__):
        """Show all open figures, and close them. With block=False they are shown at the end of the call."""
        if block is not False and displays.open():
            _, fault = show_open(displays)
            if fault is not None:
                raise fault

    def show_managed(manager, *_, **__):
        show_one(manager.canvas.figure)

    def show_one(figure, *_, **__):
        if displays.open():
            show_figure(displays, figure)

    pyplot.show = show
    helpers = sys.modules["matplotlib._pylab_helpers"].Gcf
    activate = helpers.set_active.__func__

    def set_active(kind, manager):
        if not hasattr(manager, "made_as"):
            manager.made_as = next(numbers)
        activate(kind, manager)

    helpers.set_active = classmethod(set_active)
    sys.modules["matplotlib.backend_bases"].FigureManagerBase.show = show_managed
    sys.modules["matplotlib.figure"].Figure.show = show_one


def managers():
    found = list(sys.modules["matplotlib._pylab_helpers"].Gcf.figs.values())
    found.sort(key=lambda manager: getattr(manager, "made_as", manager.num))
    return found


def show_open(displays, deadline=None):
    """Show and close all; how many there was no time for, and the first exception that drawing
    raised, or None: a figure that can't be drawn costs no other."""
    plt = sys.modules["matplotlib.pyplot"]
    left, fault = managers(), None
    while left:
        if deadline is not None and perf_counter() > deadline:
            break
        figure = left.pop(0).canvas.figure
        plt.close(figure)  # first: one that can't be drawn must not come again
        try:
            show_figure(displays, figure)
        except Exception as error:
            fault = fault or error
    late = len(left)
    for manager in left:
        plt.close(manager.canvas.figure)
    return late, fault


def show_figure(displays, figure):
    """Show a figure, unless it is known as it is; whether it was shown."""
    if is_shown(figure):
        return False
    # A figure without anything in it: code made it and went another way.
    if not figure.get_children()[1:]:
        return False
    looks.picture(displays, "image/png", *drawn(figure))
    remember(figure)
    return True


def drawn(figure):
    """(PNG, what to say of it)."""
    from io import BytesIO

    about, dpi = "", figure.dpi
    edge = max(figure.get_size_inches()) * dpi
    if edge > EDGE:
        about = "drawn at %.3g dpi instead of %.3g, since its longer side would be %d pixels; savefig() writes it in full" % (dpi * EDGE / edge, dpi, edge)
        dpi = dpi * EDGE / edge
    file = BytesIO()
    # As notebooks do: labels and legends beside the axes are not cut off.
    figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight")
    return file.getvalue(), about


def is_shown(figure):
    shown[:] = [seen for seen in shown if seen() is not None]
    return any(seen() is figure for seen in shown) and not figure.stale


def remember(figure):
    from weakref import ref

    figure.stale = False
    if not any(seen() is figure for seen in shown):
        shown.append(ref(figure))


def finish(displays, deadline):
    """Show what is open at the end of a call, and leave nothing that would come in the next."""
    late, fault = 0, None
    try:
        late, fault = show_open(displays, deadline)
    finally:
        left = managers()  # where drawing was interrupted
        late += len(left)
        for manager in left:
            sys.modules["matplotlib.pyplot"].close(manager.canvas.figure)
        if late:
            displays.notes("%d open figure(s) were not drawn: there was no time left" % late)
    if fault is not None:
        raise fault
