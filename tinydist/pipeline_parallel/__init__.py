"""Pipeline parallelism: every rank holds some of the layers, and all microbatches pass through them.

stages.py       where to cut a model
schedule.py     a schedule: for each rank, its actions: 2F0, 2B0, 2SEND_F0; placement: which rank has which stage
schedules.py    naive, GPipe, 1F1B, interleaved, breadth-first, zero bubble, DualPipeV
list_scheduler.py   which pass next: one rule, from which a schedule follows; or every order of few passes
schedule_search.py  search for the best schedule, given a placement, costs and a memory limit
messages.py     adds sends and receives to a schedule, and checks that they match
steps.py        what ends a training step, added: reduction, norm, optimizer; and the next step
verifier.py     is it right? The rules, and where one is broken
replay.py       followed through time
analysis.py     what each action costs; how long a schedule takes, what is idle, what is held
torch_csv.py    to torch's own schedules and back
one_f_one_b.py  1F1B as a plain loop: warm-up, steady state, cool-down
worker.py       executes a schedule with real tensors: forward and backward of a rank's stages
p2p.py          point-to-point communication with the neighboring stages
backward.py     split backward (input gradients, weight gradients), and activation recomputation
step_end.py     the end of a training step, with real gradients; a step that was wrong is undone
tied_weights.py  a parameter of two stages
published_pipelines.py  what others measured of pipelines
"""

from .analysis import Analysis, Costs, analyze
from .backward import SplitBackward, with_recomputation
from .messages import with_messages
from .one_f_one_b import step_1f1b
from .schedule import Action, Overlap, Schedule, contiguous, looped, parse, v_shape
from .schedule_search import find_schedule
from .schedules import SCHEDULES, make_schedule
from .stages import balanced, cut, evenly, forward_flops, layers_of, parameter_counts
from .steps import with_steps
from .tied_weights import sum_tied_gradients
from .verifier import ScheduleError, verify
from .worker import Worker

__all__ = [
    "SCHEDULES",
    "Action",
    "Analysis",
    "Costs",
    "Overlap",
    "Schedule",
    "ScheduleError",
    "SplitBackward",
    "Worker",
    "analyze",
    "balanced",
    "contiguous",
    "cut",
    "evenly",
    "find_schedule",
    "forward_flops",
    "layers_of",
    "looped",
    "make_schedule",
    "parameter_counts",
    "parse",
    "step_1f1b",
    "sum_tied_gradients",
    "v_shape",
    "verify",
    "with_messages",
    "with_recomputation",
    "with_steps",
]
