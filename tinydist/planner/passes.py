"""Seconds of a microbatch on one rank: of a block, and of both ends of the model, forward and backward."""

from functools import lru_cache
from typing import NamedTuple

from .machine import Group
from .operators import Operators
from .work import Meanwhile, Memory, Sent


class Pass(NamedTuple):
    """Seconds."""

    products: float = 0.0
    memory: float = 0.0
    sent: float = 0.0  # and waited for

    @property
    def seconds(self):
        return sum(self)


def timed(operators, machine, group, overlap):
    """A Pass, of a list of operators."""
    found = dict.fromkeys(Pass._fields, 0.0)
    for each in operators:
        if isinstance(each, Meanwhile):
            found["products"] += (alone := machine.seconds(each.product, group))
            both = machine.seconds if overlap else machine.in_turns
            found["sent"] += both(each, group) - alone
        else:
            kind = {Memory: "memory", Sent: "sent"}.get(type(each), "products")
            found[kind] += machine.seconds(each, group)
        found["memory"] += machine.gap
    return Pass(**found)


class Times(NamedTuple):
    """Of a microbatch: a block forward, backward, recomputed; and both ends, forward and backward."""

    forward: Pass
    backward: Pass
    recomputed: Pass
    embedding: Pass
    embedding_backward: Pass
    loss: Pass
    loss_backward: Pass

    @property
    def block(self):
        return self.forward.seconds + self.backward.seconds + self.recomputed.seconds

    @property
    def first(self):
        return Pass(*map(sum, zip(self.embedding, self.embedding_backward)))

    @property
    def last(self):
        return Pass(*map(sum, zip(self.loss, self.loss_backward)))


@lru_cache(4096)
def times(model, machine, tp, microbatch, sequence, recompute, flash, fused, overlap):
    operators = Operators(model, tp, microbatch, sequence, flash, fused)
    group = Group.along(tp, 1, machine.cluster)
    parts = [
        operators.forward(), operators.backward(), operators.recomputed(recompute),
        operators.embedding(), operators.embedding_backward(), operators.loss(), operators.loss_backward(),
    ]  # fmt: skip
    return Times(*[timed(part, machine, group, overlap) for part in parts])
