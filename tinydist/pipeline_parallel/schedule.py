"""A schedule: an ordered list of actions for each rank; and placements, which rank holds which stage.

    rank 0   0F0 0F1 0B0 0B1        a table of steps, not of seconds: how long an action takes, and how long it waits
    rank 1   1F0 1B0 1F1 1B1        for another, follows from it (analysis.py)

It is data: it can be printed, verified (verifier.py), timed (analysis.py), drawn, saved (torch_csv.py), and executed
with real tensors (worker.py). An action is a pass of a stage over a microbatch, a send or receive, or a step-end
action:

    2F0         stage 2, forward, microbatch 0
    2B0         its backward; or split:
    2I0  2W0      the input gradient, which stage 1 waits for; the weight gradients, which no other rank waits for
    2SEND_F0    its output goes to stage 3, which receives it as 3RECV_F0
    2SEND_B0    the gradient of its input goes to stage 1, which receives it as 1RECV_B0
    (0F3;3B1)OVERLAP_F_B    an overlapped forward and backward, of two stages of one rank
    2R0         recomputes the forward before its backward; only the input was saved (backward.py)
    2REDUCE_GRAD0  2WAIT_REDUCE_GRAD0  2NORM0  2CHECK0  2STEP0    of training step 0, once it has gradients (steps.py)

The letters are those of torch.distributed.pipelining, but for R, NORM, CHECK, STEP, which it has not; the halves of
backward are those of Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2 (they call the first B).

A placement is a tuple, stage -> rank:

    contiguous(4)   0 1 2 3                  a microbatch goes down the ranks, and its gradient up again
    looped(4)       0 1 2 3 0 1 2 3          twice around: each stage half as long, so ranks wait half as long
    v_shape(4)      0 1 2 3 3 2 1 0          down and up: the first rank has both ends, so it has the loss at once

Sources: Narayanan et al., Megatron-LM, 2021, section 2.2 (looped); Qi et al., Pipeline Parallelism with Controllable
Memory, 2024, section 4 (V).
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..rules import each_of, integer, listed, validate, whole

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = COMPUTE = ("F", "B", "I", "W")
RECOMPUTE = "R"
REDUCE, WAIT_REDUCE, NORM, CHECK, STEP = ENDING = ("REDUCE_GRAD", "WAIT_REDUCE_GRAD", "NORM", "CHECK", "STEP")
DOWN, UP = (FORWARD, NORM), (BACKWARD, CHECK)  # results that go to the next stage, or to the one before
MESSAGES = tuple(f"{way}_{kind}" for kind in DOWN + UP for way in ("SEND", "RECV"))
SEND_F, RECV_F = MESSAGES[:2]
FORWARDS = (FORWARD, SEND_F, RECV_F)  # of an evaluation

OVERLAP = "OVERLAP_F_B"

GRAMMAR = re.compile(rf"(\d+)({'|'.join((*MESSAGES, *COMPUTE, RECOMPUTE, *ENDING))})(\d+)")
OVERLAP_GRAMMAR = re.compile(rf"\(([^;]+);([^;]+)\){OVERLAP}")


class Action(NamedTuple):
    stage: int
    kind: str  # of COMPUTE, MESSAGES or ENDING, or RECOMPUTE
    microbatch: int  # or, of what ends a training step, the step

    def __str__(self):
        return f"{self.stage}{self.kind}{self.microbatch}"

    @property
    def parts(self):
        return (self,)


class Overlap(NamedTuple):
    """Two overlapped passes: they start when both are ready and end when both have ended."""

    forward: Action
    backward: Action

    def __str__(self):
        return f"({self.forward};{self.backward}){OVERLAP}"

    @property
    def parts(self):
        return (self.forward, self.backward)


@validate(text=str)
def parse(text) -> Action | Overlap:
    """``str`` backwards. Raises ``ValueError`` for text that is no action."""
    if match := GRAMMAR.fullmatch(text.strip()):
        stage, kind, microbatch = match.groups()
        return Action(int(stage), kind, int(microbatch))
    if match := OVERLAP_GRAMMAR.fullmatch(text.strip()):
        return Overlap(*[parse(part) for part in match.groups()])
    raise ValueError(f"parse: an action has the form [stage][kind][microbatch], as in 2F0, got {text!r}")


def result_of(action) -> Action:
    """Canonical name of a pass's result: both B and I produce the gradient of the stage's input, named B."""
    return action._replace(kind=BACKWARD) if action.kind == BACKWARD_INPUT else action


def needs(action, stages, ranks) -> Action | None:
    """Inputs of a pass: the result of the previous stage in forward, of the next one in backward, or of its own. The
    gradient norm is passed along the first stages of the ranks like forward, and comes back like backward."""
    stage, kind, number = action
    if kind in DOWN:
        return Action(stage - 1, kind, number) if stage else None
    if kind == BACKWARD_WEIGHT:
        return Action(stage, BACKWARD, number)
    if kind not in (BACKWARD, BACKWARD_INPUT, CHECK):
        return None
    down, back, turn = (NORM, CHECK, ranks) if kind == CHECK else (FORWARD, BACKWARD, stages)
    return Action(stage, down, number) if stage == turn - 1 else Action(stage + 1, back, number)


def message_of(result) -> tuple[Action, Action]:
    """The send and the receive that bring a result to the stage that needs it."""
    stage, kind, number = result
    to = stage + 1 if kind in DOWN else stage - 1
    return Action(stage, f"SEND_{kind}", number), Action(to, f"RECV_{kind}", number)


@validate(name=str, programs=each_of(tuple | list), stages=listed, microbatches=listed, steps=listed)
@dataclass(frozen=True)
class Schedule:
    name: str
    programs: tuple[tuple[Action | Overlap, ...], ...]  # by rank
    stages: int
    microbatches: int  # of all its training steps
    steps: int = 1

    def __repr__(self):
        size = f"{len(self.programs)} ranks, {self.stages} stages, {self.microbatches} microbatches"
        return f"<schedule {self.name}: {size}>"

    def __str__(self):
        return self.grid()

    @property
    def ranks(self):
        return len(self.programs)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Stage -> its rank."""
        return {part.stage: rank for rank, _, part in self.all_parts()}

    def passes(self, rank) -> list[Action]:
        """The actions of a rank, overlaps as their two parts."""
        self.check_rank(rank)
        return [part for each in self.programs[rank] for part in each.parts]

    def all_parts(self):
        """(rank, step, action), overlaps as their two parts."""
        for rank, program in enumerate(self.programs):
            for step, each in enumerate(program):
                for part in each.parts:
                    yield rank, step, part

    def check_rank(self, rank):
        if not (whole(rank) and rank < self.ranks):
            raise ValueError(f"{self!r} has ranks 0 to {self.ranks - 1}, but rank {rank} was requested")

    def stages_of(self, rank) -> list[int]:
        self.check_rank(rank)
        return sorted(stage for stage, there in self.rank_of.items() if there == rank)

    def step_of(self, microbatch):
        """The training step that it is of."""
        return microbatch * self.steps // self.microbatches

    @cached_property
    def has_messages(self):
        return any(part.kind in MESSAGES for _, _, part in self.all_parts())

    @validate(start=integer, end=integer, mark=tuple)
    def grid(self, start=0, end=None, mark=None):
        """The steps from ``start`` to ``end`` as text. ``mark``, a (rank, step), is pointed at."""
        rows = [
            [f"> {each} <" if (rank, step) == mark else str(each) for step, each in enumerate(program)][start:end]
            for rank, program in enumerate(self.programs)
        ]
        width = max((len(cell) for row in rows for cell in row), default=0)
        label = len(f"rank {self.ranks - 1}")
        lines = [
            f"{f'rank {rank}':{label}}   " + " ".join(f"{cell:{width}}" for cell in row)
            for rank, row in enumerate(rows)
        ]
        return "\n".join(line.rstrip() for line in lines)


@validate(ranks=listed)
def contiguous(ranks):
    return tuple(range(ranks))


@validate(ranks=listed, stages_per_rank=listed)
def looped(ranks, stages_per_rank=2):
    return tuple(range(ranks)) * stages_per_rank


@validate(ranks=listed)
def v_shape(ranks):
    return (*range(ranks), *reversed(range(ranks)))
