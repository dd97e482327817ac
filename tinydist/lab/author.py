"""What the file of an exercise is written with."""

from .collectives import Collectives
from .costs import Flops, Memory, Seconds
from .errors import Wrong
from .exercise import also, exercise, mistake
from .messages import many
from .pictures import draw_traffic
from .results import Values
from .sent import Bytes, Messages, Own, Waits
from .sums import contributions, multiple, unchanged
from .sums import misplaced as another_part
from .target import Malformed, Target
from .values import kind
from .worlds import Case, alone, turned

of_sums = (unchanged, multiple, another_part, contributions)

__all__ = [
    "Bytes",
    "Case",
    "Collectives",
    "Flops",
    "Malformed",
    "Memory",
    "Messages",
    "Own",
    "Seconds",
    "Target",
    "Values",
    "Waits",
    "Wrong",
    "alone",
    "also",
    "draw_traffic",
    "exercise",
    "kind",
    "many",
    "mistake",
    "of_sums",
    "turned",
]
