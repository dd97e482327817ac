"""What a rank of a pipeline does next: one pass of one stage over one microbatch, a message, or what ends a step.

    2F0         stage 2, forward, microbatch 0
    2B0         its backward; or in two halves
    2I0  2W0      the gradient of its input, which stage 1 waits for; the gradients of its weights, which nobody does
    2SEND_F0    its output goes to stage 3, which receives it as 3RECV_F0
    2SEND_B0    the gradient of its input goes to stage 1, which receives it as 1RECV_B0
    (0F3;3B1)OVERLAP_F_B    a forward and a backward at once, of two stages of one rank
    2R0         forward once more, of which only the input was held, before its backward (recompute.py)
    2REDUCE_GRAD0  2WAIT_REDUCE_GRAD0  2NORM0  2CHECK0  2STEP0    of training step 0, once it has gradients (steps.py)

The letters are those of torch.distributed.pipelining, but for R, NORM, CHECK, STEP, which it has not; the halves of
backward are those of Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2 (they call the first B).
"""

import re
from typing import NamedTuple

from ..rules import takes

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = COMPUTE = ("F", "B", "I", "W")
RECOMPUTE = "R"
REDUCE, WAIT_REDUCE, NORM, CHECK, STEP = ENDING = ("REDUCE_GRAD", "WAIT_REDUCE_GRAD", "NORM", "CHECK", "STEP")
DOWN, UP = (FORWARD, NORM), (BACKWARD, CHECK)  # results that go to the next stage, or to the one before
MESSAGES = tuple(f"{way}_{kind}" for kind in DOWN + UP for way in ("SEND", "RECV"))
SEND_F, RECV_F = MESSAGES[:2]

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
    """Both are begun when both can, and done when both are."""

    forward: Action
    backward: Action

    def __str__(self):
        return f"({self.forward};{self.backward}){OVERLAP}"

    @property
    def parts(self):
        return (self.forward, self.backward)


@takes(text=str)
def parse(text) -> Action | Overlap:
    """``str`` backwards. Raises ``ValueError`` for text that is no action."""
    if match := GRAMMAR.fullmatch(text.strip()):
        stage, kind, microbatch = match.groups()
        return Action(int(stage), kind, int(microbatch))
    if match := OVERLAP_GRAMMAR.fullmatch(text.strip()):
        return Overlap(*[parse(part) for part in match.groups()])
    raise ValueError(f"parse: an action is written [stage][kind][microbatch], as in 2F0, got {text!r}")


def result_of(action) -> Action:
    """What a pass makes, under one name: both B and I make the gradient of the stage's input, named B."""
    return action._replace(kind=BACKWARD) if action.kind == BACKWARD_INPUT else action


def needs(action, stages, ranks) -> Action | None:
    """What a pass works on: the result of the stage before in forward, of the one after in backward, or of its own. The
    norm of gradients passes down the first stage of each rank as forward does, and comes back as backward does."""
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
