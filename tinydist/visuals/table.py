"""Small tables of values; models beside what was measured, each with its worst row."""

from html import escape

from ..rules import each_of, finite, named, positive, stated, validate, whole
from .formatting import bytes_text, number_text, seconds_text

UNITS = {"bytes": bytes_text, "seconds": seconds_text}  # others stand behind the number

entry = stated("a number or a text", lambda value: finite(value) or isinstance(value, str))
rows_of_entries = stated("a dict, row -> {column: number or text}", lambda rows: named(named(entry))(rows))


@validate(rows=rows_of_entries, unit=stated("a unit or {column: unit}", lambda unit: isinstance(unit, str | dict)))
def table(rows, unit=""):
    """``rows``, name -> {column: number or text}, as a notebook and a terminal show it.

    unit:  "bytes" and "seconds" are scaled, others stand behind the number: of all columns, or {column: unit}.
    """
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    units = dict.fromkeys(columns, unit) if isinstance(unit, str) else unit
    cells = [[written(row.get(column, ""), units.get(column, "")) for column in columns] for row in rows.values()]
    return Table(columns, list(rows), cells)


seconds_by_size = stated(
    "a dict, bytes -> seconds > 0",
    lambda value: isinstance(value, dict) and bool(value) and all(whole(n) and positive(s) for n, s in value.items()),
)


by_size = stated("None or a dict, bytes -> what ran", lambda value: value is None or isinstance(value, dict))


@validate(measured=seconds_by_size, models=named(seconds_by_size), shown=each_of(whole), ran=by_size)
def beside(measured, models, shown, ran=None):
    """Measured seconds by size, and how far each model is off; last, each one's worst of all rows, shown or not.

    ``models``: name -> {bytes: seconds}, with all sizes that were measured.
    ``ran``: {bytes: what ran there}, a column of its own.
    """
    for name, times in models.items():
        if missing := sorted({*measured, *shown} - times.keys() | set(shown) - measured.keys()):
            raise ValueError(
                f"beside: sizes must be in measured and in each model, {name!r} or measured lacks {missing}"
            )
    rows = {
        binary(n): ({"ran": ran[n]} if ran else {})
        | {"measured": measured[n], **{name: off(t[n], measured[n]) for name, t in models.items()}}
        for n in shown
    }
    rows[f"worst of {len(measured)}"] = {
        name: max((off(times[n], measured[n]) for n in measured), key=lambda text: abs(int(text.strip("%"))))
        for name, times in models.items()
    }
    return table(rows, unit={"measured": "seconds"})


def off(model, measured):
    return f"{round(100 * (model / measured - 1)):+d}%"


def binary(nbytes):
    """4096 -> '4 KiB'."""
    units = ["B", "KiB", "MiB", "GiB"]
    while len(units) > 1 and nbytes >= 1024 and nbytes % 1024 == 0:
        nbytes, units = nbytes // 1024, units[1:]
    return f"{nbytes:,} {units[0]}"


def written(value, unit):
    if isinstance(value, str):
        return value
    return UNITS[unit](value) if unit in UNITS else f"{number_text(value)} {unit}".rstrip()


class Table:
    def __init__(self, columns, names, cells):
        self.columns, self.names, self.cells = columns, names, cells

    def __repr__(self):
        lines = [["", *self.columns], *([name, *row] for name, row in zip(self.names, self.cells))]
        first, *widths = (max(map(len, column)) for column in zip(*lines))
        return "\n".join(
            "   ".join([f"{name:{first}}", *(f"{cell:>{width}}" for cell, width in zip(row, widths))])
            for name, *row in lines
        )

    def _repr_html_(self):
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join(
            f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for name, row in zip(self.names, self.cells)
        )
        return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
