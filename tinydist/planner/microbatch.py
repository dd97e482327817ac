"""Seconds of a microbatch on one rank, by kind: a block forward, backward and recomputed; and the ends of a model."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from .buckets import block as parameters_of
from .ends import embedding, embedding_backward, loss, loss_backward
from .machine import Group
from .operators import Beside, CollectiveOp, ContextOp, ExpertOp, MemoryOp, OverlapOp, Ring, launched
from .passes import Operators

KINDS = {MemoryOp: "memory", CollectiveOp: "sent", ContextOp: "context", ExpertOp: "experts"}


class Pass(NamedTuple):
    """Seconds."""

    products: float = 0.0
    memory: float = 0.0
    sent: float = 0.0  # and waited for
    context: float = 0.0  # the same of the context group
    experts: float = 0.0  # and of the expert group
    launches: float = 0.0  # of the CPU
    blocking: bool = False  # each launch waits for the kernel before it

    @property
    def waiting(self):
        """For the CPU, where it launches kernels more slowly than the device runs them, or only when that has ended."""
        if self.blocking:
            return self.launches
        return max(0.0, self.launches - self.products - self.memory - self.sent - self.context - self.experts)

    @property
    def kinds(self):
        return self.products, self.memory, self.sent, self.context, self.experts, self.waiting

    @property
    def seconds(self):
        return sum(self.kinds)


def timed(operators, machine, group, overlap, blocking=False):
    """A Pass, of a list of operators."""
    found, seconds = dict.fromkeys(Pass._fields[:6], 0.0), machine.seconds
    for each in operators:
        if isinstance(each, Ring):
            own, other = (timed(some, machine, group, overlap) for some in (each.own, each.other))
            for kind in ("products", "memory", "launches"):
                found[kind] += getattr(own, kind) + (each.ranks - 1) * getattr(other, kind)
            for step, messages in enumerate(each.messages):
                sent = sum(seconds(ContextOp("send", nbytes, *each[4:]), group) for nbytes in messages)
                meanwhile = 0.0 if step == each.ranks else (other if step else own).seconds
                found["context"] += max(0.0, sent - meanwhile * overlap)
                found["launches"] += machine.launch * len(messages)
            continue
        if isinstance(each, Beside):
            meanwhile = timed(each.operators, machine, group, overlap)
            for kind in ("products", "memory", "sent", "launches"):
                found[kind] += getattr(meanwhile, kind)
            found["experts"] += max(0.0, seconds(each.sent, group) - meanwhile.seconds)
        elif isinstance(each, OverlapOp):
            found["products"] += (alone := seconds(each.product, group))
            both = seconds if overlap else machine.in_turns
            found["sent"] += both(each, group) - alone
        else:
            found[KINDS.get(type(each), "products")] += seconds(each, group)
        found["launches"] += machine.launch * launched(each, group.ranks)
    return Pass(**found, blocking=blocking)


@dataclass(frozen=True)
class Times:
    """Of a microbatch: a block forward, backward, recomputed; and both ends, forward and backward."""

    forward: Pass
    backward: Pass
    recomputed: Pass
    embedding: Pass
    embedding_backward: Pass
    loss: Pass
    loss_backward: Pass
    backward_rest: float = 0.0  # seconds of a block with experts, once their gradients are there

    @cached_property
    def block(self):
        """Seconds by kind."""
        return by_kind(self.forward, self.backward, self.recomputed)

    @cached_property
    def first(self):
        return by_kind(self.embedding, self.embedding_backward)

    @cached_property
    def last(self):
        return by_kind(self.loss, self.loss_backward)


def by_kind(*passes):
    """Of matmuls, of memory, of what is sent in the tensor, context and expert group, and of waiting for the CPU."""
    return [sum(kind) for kind in zip(*(each.kinds for each in passes))]


@lru_cache(4096)
def times(model, program, machine, tp, microbatch, sequence_parallel, recompute, overlap, cp=1, context="ring"):
    block = Operators(model, program, tp, microbatch, sequence_parallel, cp, context)
    group = Group.along(tp, 1, machine.cluster)
    parts = [
        block.forward(), block.backward(), block.recomputed(recompute),
        embedding(block), embedding_backward(block), loss(block), loss_backward(block),
    ]  # fmt: skip
    found = Times(*[timed(part, machine, group, overlap, program.blocking) for part in parts])
    if model.experts:
        rest = timed(block.attention_backward(), machine, group, overlap, program.blocking)
        found = replace(found, backward_rest=rest.seconds)
    added = machine.launch * len(parameters_of(model, tp))  # a kernel adds each gradient to those before
    return replace(found, backward=found.backward._replace(launches=found.backward.launches + added))
