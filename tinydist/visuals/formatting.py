"""Formatting of seconds and bytes: three significant digits and an SI prefix; and the text below a plot."""

import re
import textwrap
from math import isfinite

from ..console.quantities import BYTES, SECONDS, bytes_text, digits, seconds_text, unit_for  # noqa: F401
from ..rules import whole

PLURALS = [("ch", "ches"), ("ix", "ices")]
LINE = 76  # letters that fit into a page 1100 pixels wide


def tell(text):
    """Print a picture's summary, wrapped between its parts."""
    first, *rest = re.split("(?<=;) ", text)
    lines = [first]
    for part in rest:
        longer = f"{lines[-1]} {part}"
        lines[-1:] = [longer] if len(longer) <= LINE else [lines[-1], "  " + part]
    print("\n".join(textwrap.fill(line, LINE, subsequent_indent="  ") for line in lines))


def number_text(number):
    """Integers in full: 3, 0.50, 1,024."""
    if not isfinite(number):
        return str(number)
    is_whole = abs(number - round(number)) <= 1e-4 * abs(number)
    return f"{number:,.0f}" if abs(number) >= 1000 or is_whole else digits(number)


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
