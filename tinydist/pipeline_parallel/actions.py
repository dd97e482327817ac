"""What a rank of a pipeline does next: one pass of one stage over one microbatch, or a message.

    2F0         stage 2, forward, microbatch 0
    2B0         its backward; or in two halves
    2I0  2W0      the gradient of its input, which stage 1 waits for; the gradients of its weights, which nobody does
    2SEND_F0    its output goes to stage 3, which receives it as 3RECV_F0
    2SEND_B0    the gradient of its input goes to stage 1, which receives it as 1RECV_B0
    (0F3;3B1)OVERLAP_F_B    a forward and a backward at once, of two stages of one rank

The letters are those of torch.distributed.pipelining; the halves of backward are those of Qi et al., Zero Bubble
Pipeline Parallelism, 2024, section 2 (they call the first B).
"""

import re
from typing import NamedTuple

from ..rules import takes

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = COMPUTE = ("F", "B", "I", "W")
SEND_F, RECV_F, SEND_B, RECV_B = MESSAGES = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")

GRAMMAR = re.compile(rf"(\d+)({'|'.join(MESSAGES + COMPUTE)})(\d+)")
OVERLAP_GRAMMAR = re.compile(r"\(([^;]+);([^;]+)\)OVERLAP_F_B")


class Action(NamedTuple):
    stage: int
    kind: str  # of COMPUTE or MESSAGES
    microbatch: int

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
        return f"({self.forward};{self.backward})OVERLAP_F_B"

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


def needs(action, stages) -> Action | None:
    """What a pass works on: the result of the stage before in forward, of the one after in backward, or of its own."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        return Action(stage - 1, FORWARD, microbatch) if stage else None
    if kind == BACKWARD_WEIGHT:
        return Action(stage, BACKWARD, microbatch)
    if stage == stages - 1:
        return Action(stage, FORWARD, microbatch)
    return Action(stage + 1, BACKWARD, microbatch)


def message_of(result) -> tuple[Action, Action]:
    """The send and the receive that bring a result to the stage that needs it."""
    stage, kind, microbatch = result
    if kind == FORWARD:
        return Action(stage, SEND_F, microbatch), Action(stage + 1, RECV_F, microbatch)
    return Action(stage, SEND_B, microbatch), Action(stage - 1, RECV_B, microbatch)
