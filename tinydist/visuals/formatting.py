"""Formatting of seconds and bytes: three significant digits and an SI prefix; and the text below a plot."""

import re
import textwrap
from math import isfinite

from ..rules import whole

SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]
PLURALS = [("ch", "ches"), ("ix", "ices")]
BYTES = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]
LINE = 76  # letters that fit into a page 1100 pixels wide


def tell(text):
    """Print a picture's summary, wrapped between its parts."""
    first, *rest = re.split("(?<=;) ", text)
    lines = [first]
    for part in rest:
        longer = f"{lines[-1]} {part}"
        lines[-1:] = [longer] if len(longer) <= LINE else [lines[-1], "  " + part]
    print("\n".join(textwrap.fill(line, LINE, subsequent_indent="  ") for line in lines))


def unit_for(largest, units):
    """(size, name) of the largest unit in which ``largest`` is 1 or more."""
    return next((unit for unit in units if largest >= 0.9995 * unit[0]), units[-1])


def digits(number):
    """Three digits: 3.12, 31.2, 312; two below 0.1: 0.012."""
    if 0 < abs(number) < 0.1:
        return f"{number:.2g}"
    return f"{number:.{max(0, 3 - len(str(int(round(abs(number), 2)))))}f}"


def number_text(number):
    """Integers in full: 3, 0.50, 1,024."""
    if not isfinite(number):
        return str(number)
    is_whole = abs(number - round(number)) <= 1e-4 * abs(number)
    return f"{number:,.0f}" if abs(number) >= 1000 or is_whole else digits(number)


def seconds_text(seconds):
    size, unit = unit_for(seconds, SECONDS)
    return f"{digits(seconds / size)} {unit}" if seconds else "0 s"


def bytes_text(nbytes):
    size, unit = unit_for(nbytes, BYTES)
    return f"{nbytes:.0f} B" if unit == "B" else f"{digits(nbytes / size)} {unit}"


def check_rank(name, rank, run):
    last = len(run.memory) - 1
    if not (whole(rank) and rank <= last):
        raise ValueError(f"{name}: the run has ranks 0 to {last}, but rank {rank} was requested")


def counted(count, name):
    """1 rank, 2 ranks, 3 microbatches, 4 matrices."""
    plural = next((name[: -len(end)] + many for end, many in PLURALS if name.endswith(end)), name + "s")
    return f"{count} {name if count == 1 else plural}"


def ranks_text(count):
    return counted(count, "rank")


def percent(part):
    return f"{100 * part:.0f} %"
