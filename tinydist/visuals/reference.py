"""Training curves beside a reference: one rank with all data is a wide grey line, and what is compared runs over it."""

from matplotlib.ticker import MaxNLocator

from ..rules import each_of, named, number, stated, validate
from .canvas import canvas, picture
from .curves import LINES, ends_of, name_lines
from .formatting import tell
from .palette import GREY, LINE

NAME = "one rank, all data"
WIDE = 7  # points
CLOSE = 0.01  # of the height of the reference: what lies on it cannot be told from it

two_numbers = stated("(lowest, highest)", lambda pair: isinstance(pair, tuple) and len(pair) == 2)
lines = stated("a dict, name -> numbers", lambda values: values == {} or named(each_of(number))(values))


@validate(reference=each_of(number), values=lines, y=str, limits=two_numbers)
@picture
def against_reference(reference, values, y, limits=None):
    """Draw ``reference``, a number for each step, as a wide grey line, and ``values``, name -> as many, over it.

    limits:  (lowest, highest) of the axis; what is beyond leaves the picture.
    """
    for name, numbers in values.items():
        if len(numbers) != len(reference):
            raise ValueError(
                f"against_reference: the reference has {len(reference)} steps, but {name!r} has {len(numbers)}"
            )
    if len(values) > len(LINES):
        raise ValueError(f"against_reference: at most {len(LINES)} lines are supported, got {len(values)}")
    said = in_words(values, reference)
    tell("; ".join(said) or f"{NAME}: {len(reference)} steps")
    figure, axes = canvas(f"A wide grey line of {y} over {len(reference)} steps, {NAME}; {'; '.join(said) or 'alone'}.")
    steps = range(len(reference))
    axes.plot(steps, reference, color=LINE, linewidth=WIDE)
    for numbers, (color, _, line) in zip(values.values(), LINES):
        axes.plot(steps, numbers, linestyle=line, color=color)
    axes.set(xlabel="step", ylabel=y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(limits)
    axes.margins(x=0.03)
    last = len(reference) - 1
    low, high = axes.get_ylim()
    ends = [(NAME, last, reference[-1], GREY), *ends_of(steps, values)]
    name_lines(axes, [(name, x, min(max(end, low), high), color) for name, x, end, color in ends], last)
    return figure


def in_words(values, reference):
    """Which of them lie on the reference, and which leave it."""
    room = CLOSE * (max(reference) - min(reference))
    away = [name for name, numbers in values.items() if leaves(numbers, reference, room)]
    close = [name for name in values if name not in away]
    groups = {"on the grey line": close, "off the grey line": away}
    return [f"{what}: {', '.join(names)}" for what, names in groups.items() if names]


def leaves(numbers, reference, room):
    return any(not abs(own - right) <= room for own, right in zip(numbers, reference))  # NaN is away
