"""The bits of one number in several formats: its sign, exponent and mantissa, and what number they are."""

from ..rules import each_of, named, stated, validate
from .canvas import blocks, canvas, picture
from .figure import SMALL
from .formatting import tell
from .palette import BLUE, LINE, ORANGE, tint

FIELDS = ("sign", "exponent", "mantissa")
COLORS = (LINE, tint(ORANGE, 0.4), tint(BLUE, 0.6))
BETWEEN = 0.6  # of a bit: from one field to the next
HIGH = 0.78

digits = stated("a string of 0 and 1", lambda value: isinstance(value, str) and set(value) <= {"0", "1"})
encoded = stated("(sign, exponent, mantissa, value)", lambda bits: len(bits) == 4 and each_of(digits)(list(bits[:3])))


@validate(numbers=named(encoded))
@picture
def bit_fields(numbers):
    """Draw ``numbers``, name of a format -> (sign, exponent, mantissa, value): what ``encode_bits`` gives."""
    said = "; ".join(f"{name} {bits[3]:.5g}" for name, bits in numbers.items())
    tell(said)
    figure, axes = canvas(
        f"Sign, exponent and mantissa of a number in {len(numbers)} formats: {said}.", 0.5 + 0.26 * len(numbers)
    )
    for row, (name, bits) in enumerate(numbers.items()):
        axes.text(-0.8, row, name, ha="right", va="center_baseline", fontsize=SMALL)
        place = 0
        for field, color in zip(bits[:3], COLORS):
            boxes = [(place + bit + 0.03, row - HIGH / 2, 0.94, HIGH) for bit in range(len(field))]
            blocks(axes, boxes, facecolor=color, edgecolor="none")
            for bit, digit in enumerate(field):
                axes.text(place + bit + 0.5, row, digit, ha="center", va="center_baseline", fontsize=SMALL)
            place += len(field) + BETWEEN
        axes.text(place + 0.3, row, f"= {bits[3]:.5g}", va="center_baseline", fontsize=SMALL)
    axes.set(xlim=(-6, 44), ylim=(len(numbers) - 0.4, -0.6), title=" | ".join(FIELDS))
    axes.axis("off")
    return figure
