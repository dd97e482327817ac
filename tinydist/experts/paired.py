"""The backward of a microbatch and the forward of the next, in turn, as in DualPipe: both hide the other's transfers.

    microbatch 1    ... backward: experts | combine's transfer . . | attention      | dispatch's . . . |
    microbatch 2                          | forward: attention     | dispatch . . . | experts          | ...

Where backward would wait for a transfer, it lets the forward of the next go on to where that would wait. So every
transfer has compute of the other microbatch beside it, but for the first forward and the last backward.

    held for backward    of M microbatches, one and a little: the one grows as the other is freed
                         (interleave.py: of two; of all, if one backward is for all)

Source: DeepSeek-AI, DeepSeek-V3, 2024, section 3.2.1 (DualPipe; there a pipeline has both directions, and backward of
the weights is apart).
"""

import torch

from ..rules import each_of, validate
from .interleave import phases_of


class Forward:
    """A generator of phases, that others may run; ``transfers`` are those that it began."""

    def __init__(self, phases):
        self.phases, self.transfers, self.result, self.is_done = phases, [], None, False

    def go_on(self):
        """To where it would wait next."""
        try:
            with torch.enable_grad():
                self.transfers.append(next(self.phases))
        except StopIteration as end:
            self.result, self.is_done = end.value, True

    def beside(self):
        """What backward calls where it would wait."""
        if not self.is_done:
            self.go_on()

    def finished(self):
        while not self.is_done:
            self.go_on()
        return self.result


@validate(microbatches=each_of(tuple))
def paired(model, microbatches):
    """Forward and backward of ``microbatches``, (tokens, targets) each. Returns the losses; gradients are of their sum.
    Without auxiliary losses, as in ``losses_of``."""
    losses, before = [], None
    for tokens, targets in microbatches:
        forward = Forward(phases_of(model, tokens))
        if before:
            backward(losses[-1], before, forward.beside)
        logits, before = forward.finished(), forward
        losses.append(model.cross_entropy(logits.flatten(0, 1), targets.flatten()))
        forward.result = logits = None
    backward(losses[-1], before)
    return [loss.detach() for loss in losses]


def backward(loss, forward, meanwhile=None):
    for transfer in forward.transfers:
        transfer.meanwhile = meanwhile
    loss.backward()
