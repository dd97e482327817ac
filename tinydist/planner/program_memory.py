"""The moments at which a program's memory can be at its peak: activations, gradients, and what works.

    loss     all activations that wait, and the logits
    head     the gradients of the logits, of the head's weights, and of its input
    block    a block's own backward; the gradient of its weights is in flight
    end      the same of the embedding
    step     no activations; gradients of the own shard in fp32

Kernels are fused (activations.py). What stays from step to step, the gradients' buffer too, is there at each moment,
and so is what ZeRO 3 gathers outside of blocks (holds.py). In DeepSpeed the last blocks stay gathered (uses.py).
"""

from typing import NamedTuple

from .activations import ITEM, in_flight, shapes_of
from .buckets import block_of, numbers_of, table
from .shares import layers_of, tokens_of
from .uses import blocks_that_stay

MOMENTS, MASTER = 8, 4


class Moment(NamedTuple):
    """Bytes that are held at one moment of a step, besides the states."""

    name: str
    activations: float
    gradients: float
    working: float

    @property
    def held(self):
        return self.activations + self.gradients + self.working


def moments(model, program, plan, rank):
    """Bytes of the states, and the moments."""
    holds, i, by_unit = program.holds, ITEM[plan.precision], plan.zero == 3
    first, last = rank == 0, rank == plan.pp - 1
    part = layers_of(plan, model)[rank], first, last
    dense, experts = (numbers_of(model, plan.tp, *part, of_experts) for of_experts in (False, True))
    numbers, narrow = dense + experts, i < MASTER
    in_shards = dense / plan.shards + experts / plan.expert_shards
    weights = 0 if by_unit and holds.masters and narrow else i * (in_shards if by_unit else numbers)
    states = {"parameters": weights, "optimizer states": (MOMENTS + MASTER * narrow) * in_shards}
    gradient = holds.gradient(plan.precision)
    gradients = gradient * (in_shards if plan.zero > 1 else numbers)
    always = always_there(model, program, plan, numbers, *part)
    found = [
        Moment(moment, live, gradients, always + more)
        for moment, live, more in of_backward(model, program, plan, rank, *part)
    ]
    in_fp32 = MASTER * (gradient < MASTER) * in_shards
    return states, [*found, Moment("step", 0, gradients, always + in_fp32)]


def always_there(model, program, plan, numbers, layers, first, last):
    """Buffers, places for gradients in flight, and what ZeRO 3 gathers outside of blocks."""
    holds, i = program.holds, ITEM[plan.precision]
    words, unit = table(model, plan.tp), block_of(model, plan.tp)
    one = unit - block_of(model, plan.tp, True) * (1 - 1 / model.experts.own) if model.experts else unit  # of a shape
    places = holds.in_flight * (one + words * last) * holds.stays
    gathered = i * (numbers - layers * unit) * (plan.zero == 3)
    input_of_head = i * tokens_of(plan, model) * model.width * bool(plan.sequence_parallel) * last
    filled = holds.bucket * ((plan.zero > 0) + (plan.zero in (1, 2) and plan.overlap_comm))
    return places + gathered + input_of_head + (holds.buckets + filled) * (plan.dp * plan.cp > 1)


def of_backward(model, program, plan, rank, layers, first, last):
    """Moment, bytes of activations, and of what works."""
    holds, i, t = program.holds, ITEM[plan.precision], plan.tp
    a = shapes_of(model, program, plan)
    words, unit = table(model, t), block_of(model, t)
    tokens = tokens_of(plan, model)
    logits = tokens * -(-model.vocabulary // t)
    made = holds.in_flight * (not holds.stays)
    waits = i * words * (holds.masters and first and last and model.tied)  # the head's, until the embedding's comes
    dense = model.dense_layers * first if model.experts else 0
    kept = (
        (layers - dense) * a.block
        + dense * shapes_of(model.dense, program, plan).block
        + a.dropped * first
        + a.own * (holds.outputs and not last)
    )
    flying = in_flight(plan, rank)
    live = flying * kept + last * (flying - 1) * (a.end + i * logits)
    reused = plan.zero == 3 and program.reuse
    stay = blocks_that_stay(program.reuse, model, t, layers, first, last) if reused else 0
    if last:
        x = i * tokens * model.width + a.own * bool(plan.sequence_parallel)
        there = i * unit * stay
        yield "loss", live + a.end, there + logits * (i if program.loss == "fused" else max(i, holds.logit))
        yield "head", live + a.end, there + i * logits + x + max(made * words, waits)
    gathered = i * unit * max(stay, min(2, layers)) * (plan.zero == 3)  # the next one, too
    beside = a.own * (1 + (plan.pp > 1)) + waits + gathered + made * unit  # gradients between blocks; a message
    for working in (a.combined, a.down, a.gate, a.gated, a.up, a.core):
        yield "block", live, beside + working
    if first:
        yield "end", live - kept, a.own + waits + max(i, made) * words
