"""What the file of an exercise is written with."""

from .costs import Flops, Memory, Seconds
from .errors import Wrong
from .one_file import also, exercise, mistake
from .results import Values
from .sent import Bytes, Collectives, Messages, Own, Received, Waits
from .sums import contributions, multiple, unchanged
from .sums import misplaced as another_part
from .target import Malformed, Target
from .worlds import Case, alone

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
    "Received",
    "Seconds",
    "Target",
    "Values",
    "Waits",
    "Wrong",
    "alone",
    "also",
    "exercise",
    "mistake",
    "of_sums",
]
