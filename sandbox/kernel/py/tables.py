"""Tables of pandas and polars as compact text: shape, types, and both ends.

Built from the few rows that are shown, so that a frame of any size takes the same time;
no option of either library is touched. Runs library code, so it runs under the guard.
"""

import sys

text = load("text")
values = load("values")

ROWS = 50
COLUMNS = 20
WIDTHS = COLUMNS, 10, 6, 2  # columns that are tried, until ten rows find room
CELL = 50  # characters
TEXT = 8_000  # characters of the rows
CUT = 4_000  # of those of a frame that is not shown in full anyway
WIDE = "object", "str", "string", "category"  # types of pandas whose cells may be long
LEAST = 10  # rows, whatever their width
MOST = 10_000  # characters of it all, whatever else there may be


def told(value):
    """The text of a table."""
    return text.bounded(described(value), MOST)


def described(value):
    kind = values.table_kind(type(value))
    if kind == "Styler":
        return described(value.data)
    if values.table_library(type(value)) == "polars":
        return polars(value, kind)
    return series(value) if kind == "Series" else frame(value)


def html(value):
    """A table's HTML, of the same rows; None if it has none."""
    kind = values.table_kind(type(value))
    try:
        if kind == "Styler":
            return value.to_html(max_rows=ROWS, max_columns=COLUMNS)
        if values.table_library(type(value)) == "polars":
            return value._repr_html_()
        if kind == "Series":
            return None
        return value.to_html(max_rows=ROWS, max_cols=COLUMNS, notebook=True)
    except Exception:
        return None


def counted(number, one):
    return "%d %s%s" % (number, one, "" if number == 1 else "s")


def ends(length, most):
    """The positions that are shown of so many, and after how many of them something is left out (0 = nothing is)."""
    if length <= most:
        return list(range(length)), 0
    half = most // 2
    return list(range(half)) + list(range(length - half, length)), half


def frame(value):
    rows, columns = value.shape
    types = [short(kind) for kind in value.dtypes.iloc[:COLUMNS]]
    head = "DataFrame, %s x %s" % (counted(rows, "row"), counted(columns, "column"))
    if not rows or not columns:
        if not columns:
            return head
        return head + ": " + ", ".join("%s (%s)" % pair for pair in zip(map(short, value.columns[:COLUMNS]), types))
    for most in WIDTHS:
        lines, cut = cells(value, most)
        if max(map(len, lines)) <= widest(rows):
            break
    return fit([head, "types: " + typed(types, columns)], lines, min(rows, ROWS), cut)


def typed(types, columns):
    """The types of columns, in order; many of the same kind in a row are counted."""
    parts, last, times = [], None, 0
    for kind in types + [None]:
        if kind == last:
            times += 1
            continue
        if last is not None:
            parts.append(last if times == 1 else "%s (x%d)" % (last, times))
        last, times = kind, 1
    return ", ".join(parts) + (", ..." if columns > len(types) else "")


def cells(value, most):
    """(lines, rows before the gap) of a frame's two ends, formatted by pandas itself."""
    down, gap = ends(value.shape[0], ROWS)
    across, hole = ends(value.shape[1], most)
    small = value.iloc[down, across]
    small = small.copy()
    small.index, small.columns = labels(small.index), labels(small.columns)
    for position in range(small.shape[1]):
        column = small.iloc[:, position]
        if str(column.dtype) in WIDE:
            small.isetitem(position, list(map(shortened, column)))
    if hole:
        small.insert(hole, ("...",) * value.columns.nlevels if value.columns.nlevels > 1 else "...", "...", allow_duplicates=True)
    return small.to_string(max_rows=None, max_cols=None, line_width=None).split("\n"), gap


def labels(index):
    """An index of pandas whose labels are short, and so are its names."""
    pandas = sys.modules["pandas"]
    if index.nlevels > 1:
        names = [name if name is None else short(name) for name in index.names]
        return pandas.MultiIndex.from_tuples([tuple(map(shortened, label)) for label in index], names=names)
    if index.name is not None:
        index = index.rename(short(index.name))
    if str(index.dtype) not in WIDE:
        return index
    return pandas.Index(list(map(shortened, index)), dtype=object, name=index.name, tupleize_cols=False)


def shortened(cell):
    return short(cell) if type(cell) is str or len(repr(cell)) > CELL else cell


def short(cell):
    shown = cell if type(cell) is str else str(cell)
    return shown if len(shown) <= CELL else shown[: CELL - 3] + "..."


def widest(rows):
    """How wide a line may be, so that the least of rows have room, and their names."""
    return CUT // min(LEAST + 2, rows)


def fit(head, lines, rows, gap):
    """The text of head and a table's lines: with less of its middle if they are too long, and a mark where rows are missing."""
    most = widest(rows)  # beyond it are the labels of many levels at most
    lines = [line if len(line) <= most else line[: most - 3] + "..." for line in lines]
    names, body = lines[: len(lines) - rows], lines[len(lines) - rows:]
    width = max(map(len, lines)) + 1
    room = max(LEAST, ((CUT if gap else TEXT) - sum(map(len, head))) // width - len(names))
    if len(body) > room:
        half = room // 2
        body, gap = body[:half] + body[len(body) - half:], half
    if gap:
        body.insert(gap, "...")
    return "\n".join(head + [line.rstrip() for line in names + body])


def series(value):
    length = len(value)
    named = "" if value.name is None else " %r" % short(value.name)
    head = "Series%s of %s, %s" % (named, counted(length, "value"), short(value.dtype))
    if not length:
        return head
    down, gap = ends(length, ROWS)
    small = value.iloc[down]
    cells = list(map(short, small)) if str(small.dtype) in WIDE else small.array
    small = sys.modules["pandas"].Series(cells, index=labels(small.index), dtype=object if type(cells) is list else small.dtype)
    return fit([head], small.to_string(header=False, index=True, max_rows=None).split("\n"), len(down), gap)


def polars(value, kind):
    if kind == "LazyFrame":
        return values.represent(value)[0]
    if kind == "Series":
        head = "Series %r of %s, %s" % (short(value.name), counted(len(value), "value"), short(value.dtype))
        value = value.to_frame()
    else:
        head = "DataFrame, %s x %s" % (counted(value.height, "row"), counted(value.width, "column"))
    if not value.height or not value.width:
        return head + ": " + ", ".join("%s (%s)" % (short(name), short(kind)) for name, kind in list(value.schema.items())[:COLUMNS])
    down, gap = ends(value.height, ROWS)
    for most in WIDTHS:
        lines = polars_cells(value, down, most)
        if max(map(len, lines)) <= widest(value.height):
            break
    return fit([head], lines, len(down), gap)


def polars_cells(value, down, most):
    """Lines of some rows of a polars frame: names, types, cells."""
    across, hole = ends(value.width, most)
    small = value[down, across]
    rows = [small.columns, [str(kind) for kind in small.dtypes]] + [list(map(cell, row)) for row in small.rows()]
    rows = [list(map(short, row)) for row in rows]
    numeric = [kind.is_numeric() for kind in small.dtypes]
    if hole:
        for row in rows:
            row.insert(hole, "...")
        numeric.insert(hole, False)
    return aligned(rows, numeric)


def cell(value):
    if value is None:
        return "null"
    if type(value) is float:
        return "%.6g" % value
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") if type(value) is str else str(value)


def aligned(rows, numeric):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(shown.rjust(width) if right else shown.ljust(width) for shown, width, right in zip(row, widths, numeric))
        for row in rows
    ]
