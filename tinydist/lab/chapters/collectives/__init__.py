"""02_collectives: collectives, built from messages alone.

inputs.py               what the exercises are tried on
tree_broadcast.py       a binomial tree
reduce_scatter.py       half of a ring all-reduce
all_reduce.py           the whole of it
mended_all_reduce.py    the same, with two bugs to find
all_to_all.py           pieces whose sizes the receiver does not know
"""

from . import tree_broadcast as tree_broadcast  # isort: skip
from . import reduce_scatter as reduce_scatter  # isort: skip
from . import all_reduce as all_reduce  # isort: skip
from . import mended_all_reduce as mended_all_reduce  # isort: skip
from . import all_to_all as all_to_all  # isort: skip
