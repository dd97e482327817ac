"""What the file of an exercise is written with."""

from .collectives import Collectives
from .costs import Flops, Memory, Seconds
from .errors import Wrong
from .exercise import also, exercise, mistake
from .leaves import kind
from .messages import many
from .pictures import draw_traffic
from .results import Values
from .sent import Bytes, Messages, Own, Waits
from .sums import contributions, unchanged
from .target import Malformed, Target
from .worlds import Case, alone, turned

of_sums = (unchanged, contributions)

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
