"""Small tables of values."""

from html import escape

from ..rules import finite, named, stated, validate
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
