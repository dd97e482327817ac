"""08_pipeline_parallel: layers on different ranks, and what to do about the bubble.

programs.py        schedules that an answer writes: asked for, read, verified
order.py           what there is to say of an order of passes
execution.py       a schedule, executed with real tensors in virtual time
gpipe.py           all forwards, then all backwards
one_f_one_b.py     the same bubble, in less memory
interleaved.py     several stages a rank: a smaller bubble
watched_stage.py   a stage that notes which gradients come, and what they should be
gradients.py       a worker's gradients: whose they are, and by what they are divided
virtual_time.py    what a worker takes
mended_pipeline.py a worker with three bugs
lower_bound.py     what no schedule can beat
choices.py         where a rank did one pass, and another had been better
least_bubble.py    the least bubble under a memory budget
"""

from . import gpipe as gpipe  # isort: skip
from . import one_f_one_b as one_f_one_b  # isort: skip
from . import interleaved as interleaved  # isort: skip
from . import mended_pipeline as mended_pipeline  # isort: skip
from . import least_bubble as least_bubble  # isort: skip
