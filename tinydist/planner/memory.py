"""Peak memory of a rank in a training step, by category.

    states         of each parameter the weight, 2, its gradient in fp32, 4, and Adam's, 12; in shards as ZeRO has them,
                   those of experts among fewer ranks: plan.expert_shards
    activations    what blocks keep for backward, of all microbatches under way (activations.py)
    gradients      those of the own shard; and whole ones, until they are reduced (buckets.py)
    working        what is made and soon dropped: logits, a block's own backward, gathered parameters, a step's

Only a few moments can be the peak, and each is evaluated: the start of backward, at the loss; backward of a block's
MLP or attention; its end, with the embedding's gradient; the optimizer step. Each program holds other bytes (holds.py,
program_memory.py); those of this library's engine are evaluated here, to the tensor: its memory ledger has the same.
Allocator and framework overhead are separate: the ledger does not contain them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..plan import Plan
from ..rules import validate, whole
from .activations import ITEM, WIDE, in_flight, shapes_of
from .buckets import (
    DOWN,
    GATED,
    OF_EXPERT,
    OUT,
    UP,
    WholeGradients,
    block_of,
    buckets,
    later,
    numbers_of,
    table,
    times_of,
    whole_gradients,
)
from .checks import refuse
from .model import Model
from .program_memory import MASTER, MOMENTS, Moment
from .program_memory import moments as moments_of_program
from .programs import MEGATRON_LM, Program
from .shares import layers_of, on_ranks

GRADIENT = 4
NONE = WholeGradients(0, 0)

# A part of what PyTorch's allocator reserves has no tensor: 1.5 % and 4 % in Megatron-LM (its issues 965, 525), 6 % as
# SimuMax assumes it (MooreThreads/SimuMax@4dcaae51 configs/strategy, mem_factor), 20 % where it then ran out of memory.
FRAGMENTS = 0.04
# The context, kernels, NCCL's buffers: 1.4 GiB of "non-PyTorch memory" on each of 4 A100s (wbfwonderful/Vad-R1 issue
# 11), 0.5 on a single one (TianheWu/CoSeR issue 10).
FRAMEWORK = 1.5e9

# A data sheet's GB of a GPU's memory are GiB, of which a process gets 98.5 to 99.2 %, by PyTorch's messages: 39.41 of
# an A100's 40 (tatsu-lab/stanford_alpaca issue 308), 79.15 of 80 (huggingface/accelerate issue 1864), 79.10 of an
# H100's 80 (Lightricks/LTX-2 issue 57), 31.74 of a V100's 32 (NVIDIA/Megatron-LM issue 525).
USABLE = 0.985 * 2**30 / 1e9


def room(device):
    """Bytes of a device that a process can have."""
    return device.memory * (USABLE if device.runs_ahead else 1)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes at the peak. ``moment``: when that is."""

    moment: str
    terms: dict

    @property
    def held(self):
        """By tensors: what the ledger of a run has."""
        return sum(self.terms.values())

    @property
    def overhead(self):
        return {"allocator": FRAGMENTS * self.held, "framework": FRAMEWORK}

    @property
    def reserved(self):
        """By PyTorch's allocator."""
        return self.held + self.overhead["allocator"]

    @property
    def total(self):
        return self.held + sum(self.overhead.values())


@validate(model=Model, plan=Plan, program=Program, rank=whole)
def memory(model, plan, rank=0, program=MEGATRON_LM) -> MemoryEstimate:
    """Of rank ``rank`` of a pipeline."""
    if rank >= plan.pp:
        raise ValueError(f"memory: a pipeline of {plan.pp} has ranks 0 to {plan.pp - 1}, got {rank}")
    refuse("memory", plan, model, program=program)
    return peak(model, plan, rank, program)


def peak(model, plan, rank, program):
    """Of a plan that was checked."""
    states, found = moments(model, program, plan, rank)
    moment = max(found, key=lambda each: each.held)
    terms = {"activations": moment.activations, "gradients": moment.gradients, "working": moment.working}
    return MemoryEstimate(moment.name, states | terms)


class Share(NamedTuple):
    """Of the dense part of a rank's parameters, or of its experts: their numbers, and ranks that shard them; the
    gradients that ZeRO shards, and the time of each gradient that comes."""

    numbers: int
    shards: int
    sharded: bool
    times: tuple

    def gradients(self, before, time=None, after=0):
        """Bytes: whole ones, and those of the own shard, of this backward or of one ``before``."""
        whole = NONE if time is None else self.times[time][after]
        if self.sharded:
            return GRADIENT * (whole.numbers + (self.numbers if before else whole.freed) / self.shards)
        return GRADIENT * (self.numbers if before else whole.numbers)


def moments(model, program, plan, rank):
    """Bytes that are held always, by purpose; and the moments, each a Moment."""
    model = on_ranks(model, plan.ep)
    if program.holds:
        return moments_of_program(model, program, plan, rank)
    i, by_unit, sharded = ITEM[plan.precision], plan.zero == 3, plan.zero > 1
    part = model, plan.tp, layers_of(plan, model)[rank], rank == 0, rank == plan.pp - 1, i, by_unit
    shares = []
    for experts, shards in ((False, plan.shards), (True, plan.expert_shards))[: 1 + bool(model.experts)]:
        numbers = numbers_of(*part[:5], experts)
        shares.append(Share(numbers, shards, sharded, whole_gradients(*part, experts, sharded)))
    in_shards = sum(each.numbers / each.shards for each in shares)
    states = {
        "parameters": i * (in_shards if by_unit else sum(each.numbers for each in shares)),
        "optimizer states": (MOMENTS + MASTER * (i < MASTER)) * in_shards,
    }
    found, flying, M = [], in_flight(plan, rank), plan.microbatches
    for before in {min(1, M - 1), 0 if flying > M - 1 else 1}:  # backwards of other microbatches that are done
        found += of_backward(program, plan, part, shares, min(flying, M - before), before)
    kept = sum(GRADIENT * each.numbers / (each.shards if sharded else 1) for each in shares)
    found.append(("step", 0, kept, GRADIENT * of_step(plan.shards, plan.expert_shards, *part)))
    return states, [Moment(*each) for each in found]


@lru_cache(4096)
def of_step(shards, expert_shards, *part):
    """Numbers of Adam, for a bucket: a denominator, what becomes of it, and the one before."""
    sizes = [bucket.numbers / (expert_shards if bucket.experts else shards) for bucket in buckets(*part)]
    return max(2 * size + before for size, before in zip(sizes, [0, *sizes]))


def of_backward(program, plan, part, shares, flying, before):
    model, t, layers, first, last, i, by_unit = part
    a, of_dense = shapes_of(model, program, plan), shapes_of(model.dense, program, plan)
    dense = model.dense_layers * first if model.experts else 0  # the first ones
    words, unit, both = table(model, t), block_of(model, t), first and last and model.tied
    times, experts = times_of(model), model.experts.own if model.experts else 1

    def gradients(*time):
        return sum(each.gradients(before, *time) for each in shares)

    def gathered(*units):
        return i * (sum(units) + words * both) if by_unit else 0

    kept = (layers - dense) * a.block + dense * of_dense.block + (a.dropped if first else a.entered)
    live, waits = flying * kept + last * (flying - 1) * (a.end + a.logits), i * words * both
    if last:
        narrow, head = a.logits * i / WIDE * (i < WIDE), a.entering + i * words + gathered(words * (not both), unit)
        yield "loss", live + a.end, gradients(), 2 * a.logits + narrow
        yield "head", live + a.end, gradients(), (2 * narrow or a.logits) + head
        yield "head", live + a.end, gradients(0), head
    beside = a.own * (1 + (plan.pp > 1 and before + 1 < plan.microbatches)) + waits  # its gradient; a message
    matrix = i * (model.experts or model).inner // t * model.width
    enter = words * (first and not both) + model.tokens * model.width * (first and model.positions == "learned")
    for done in {*range(min(layers - dense, 4)), layers - dense - 1}:
        begins = (done + 1) * times
        there, more = live - done * a.block, beside + gathered(unit, unit if done < layers - 1 else enter)
        if model.experts:
            yield "block", there, gradients(begins - 1, 1), more + a.combined
        for number in {0, experts - 1}:
            at, of_others = begins + OF_EXPERT * number, more + number * a.expert
            yield "block", there, gradients(at + DOWN), of_others + matrix + a.down
            of_others -= a.rows * (number == experts - 1)  # the gradient of what all have made
            yield "block", there, gradients(at + DOWN, 1), of_others + a.gate
            yield "block", there, gradients(at + GATED), of_others + matrix + a.gated
            yield "block", there, gradients(at + UP), of_others + matrix + a.up
        yield "block", there, gradients(begins + later(model) + OUT, 1), more + a.core
    if first:
        end = (layers + 1) * times
        there, more = live - kept + a.dropped, a.own + gathered(enter)
        yield "end", there, gradients(end, 1), more + (3 if both else 1) * i * words  # the head's, and the sum
        yield "end", there, gradients(end + 1), more + i * words
