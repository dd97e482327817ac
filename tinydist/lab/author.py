"""The API for exercise files: everything that a file in solutions/ imports."""

from .cases import Case, Ended, alone, turned
from .communication_targets import Bytes, Collectives, Messages, Own, Waits
from .costs import Flops, Memory, Seconds
from .differences import as_many, contributions, unchanged, weighed
from .errors import Wrong
from .exercise import also, exercise, mistake
from .leaves import kind
from .messages import many
from .results import Part, Values
from .results import Values as Varied
from .target import Malformed, Target, draw_traffic

of_sums = (unchanged, contributions)
