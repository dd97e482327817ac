"""Pipeline parallel: every rank has some of the layers, and all microbatches pass through it.

stages.py       where to cut a model
actions.py      what a rank does next: 2F0, 2B0, 2SEND_F0
schedule.py     a schedule: for each rank, its actions
schedules.py    naive, GPipe, 1F1B, interleaved, breadth-first, zero bubble, DualPipeV
placement.py    which rank has which stage: one each, in a loop, in a V
list_scheduler.py   which pass next: one rule, from which a schedule follows
branch_and_bound.py  every order of few passes
found.py        the best schedule for a placement, costs and memory
messages.py     sends and receives, added
steps.py        what ends a training step, added: reduction, norm, optimizer; and the next step
verifier.py     is it right? The rules, and where one is broken
pairing.py      do sends and receives pair up?
replay.py       followed through time; costs.py: what each action takes
analysis.py     how long it takes, what is idle, what is held
torch_csv.py    to torch's own schedules and back
worker.py       does what a schedule says, with real tensors
passes.py       forward and backward of its stages
neighbors.py    messages: the ranks of the stages before and after
backward.py     backward in two halves: input, weights
recompute.py    forward once more, instead of holding what it made
ending.py       the end of a training step, with real gradients; a step that was wrong is undone
tied.py         a parameter of two stages
"""

from .actions import Action, Overlap, parse
from .analysis import Analysis, analyze
from .backward import SplitBackward
from .costs import Costs
from .found import find_schedule
from .messages import with_messages
from .placement import in_a_loop, in_a_v, one_each
from .recompute import with_recomputation
from .schedule import Schedule
from .schedules import SCHEDULES, make_schedule
from .stages import balanced, cut, evenly, forward_flops, layers_of, measured_seconds, parameter_counts
from .steps import with_steps
from .tied import sum_tied_gradients
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
    "cut",
    "evenly",
    "find_schedule",
    "forward_flops",
    "in_a_loop",
    "in_a_v",
    "layers_of",
    "make_schedule",
    "measured_seconds",
    "one_each",
    "parameter_counts",
    "parse",
    "sum_tied_gradients",
    "verify",
    "with_messages",
    "with_recomputation",
    "with_steps",
]
