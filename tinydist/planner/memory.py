"""How many bytes a rank holds at the peak of a step, by what they are for.

    states         of each parameter the weight, 2, its gradient in fp32, 4, and Adam's, 12; in shards as ZeRO has them
    activations    what blocks keep for backward, of all microbatches under way (Korthikanti et al. 2022, table 2)
    working        what is made and soon dropped: logits, a block's own backward, a bucket's whole gradients, a step's

Few moments of a step can be its peak, and each is added up: backward begins, at the loss; it is in the first block that
it meets; it ends, with the gradient of the embedding; the optimizer steps. What the allocator adds, and the framework,
stands apart: no ledger has them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

BUCKET = 25 * 2**20  # bytes of parameters that travel together (zero/optimizer_states.py)
ITEM = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of a weight, and of an activation
GRADIENT, MOMENTS, MASK, STATISTIC = 4, 8, 1, 4

# A part of what PyTorch's allocator reserves has no tensor; and the context, kernels, NCCL's buffers. Rules of thumb.
FRAGMENTS, FRAMEWORK = 0.04, 1.5e9


@dataclass(frozen=True)
class Memory:
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
    def total(self):
        return self.held + sum(self.overhead.values())


# Parameters.


def block_sizes(model, t):
    """Of each parameter of a block, on a rank of the tensor group: matrices and their biases in parts, norms whole."""
    D, E, F = model.width, model.head_dim, model.inner // t
    heads, keys = model.heads // t * E, max(1, model.kv_heads // t) * E
    norm = [D] * (2 if model.norm == "layer" else 1)
    up = [F * D] * (1 + model.gated)
    qkv, b = heads + 2 * keys, model.biases
    attention = [qkv * D, *[qkv] * b, D * heads, *[D] * b]
    return [*norm, *attention, *norm, *up, *[F] * b, D * F, *[D] * b]


def table(model, t):
    return -(-model.vocabulary // t) * model.width


@lru_cache(4096)
def buckets(model, t, layers, first, last, item):
    """Numbers of each, as zero fills them: from the last parameter on, until there are enough bytes."""
    D, words = model.width, [table(model, t)]
    apart = model.tied and first != last  # a table that another rank has, too, has a bucket of its own
    begin = [*words * (not apart), *[model.tokens * D] * (model.positions == "learned")] if first else []
    norm = [D] * (2 if model.norm == "layer" else 1)
    end = [*norm, *words * (not model.tied)] if last else []
    found = [0]
    for size in reversed([*begin, *block_sizes(model, t) * layers, *end]):
        if found[-1] * item >= BUCKET:
            found.append(0)
        found[-1] += size
    return (*words * (apart and last), *found, *words * (apart and first))


@lru_cache(4096)
def block_of(model, t):
    """Numbers of a block, and of its largest matrix."""
    sizes = block_sizes(model, t)
    return sum(sizes), max(sizes)


# Activations.


class Shapes(NamedTuple):
    """Bytes of one microbatch, on a rank of the tensor group."""

    own: float  # between blocks, of this rank's tokens
    block: float  # kept by a block, its input among it
    backward: float  # more, while its backward runs
    end: float  # kept by the last norm and the head
    entering: float  # gradients of what enters the head
    logits: float  # kept by the loss, in fp32
    dropped: float  # the mask of what is embedded


@lru_cache(4096)
def shapes(model, t, b, sequence, recompute, flash, precision):
    i, tokens, drops = ITEM[precision], b * model.tokens, model.dropout > 0
    x = tokens * model.width * i
    own = x / t if sequence else x
    entered = own if sequence == "again" else x
    mixed = tokens * model.heads // t * model.head_dim * i
    keys = tokens * max(1, model.kv_heads // t) * model.head_dim * i
    inside = tokens * model.inner // t * i
    weights = b * model.heads // t * model.tokens**2 * ((2 * i + MASK) if drops else i)
    core = tokens * model.heads // t * STATISTIC if flash else weights
    mask = own / i * MASK * drops
    mlp = own + entered + inside * (3 if model.gated else 2) + mask
    kept = own + entered + mixed + 2 * keys + mixed + mask + mlp
    again = {"none": 0, "selective": core, "full": kept + core - own}[recompute]
    heads = weights * i // (2 * i + MASK * drops) if drops else weights
    in_mlp = inside + x * bool(sequence)
    in_core = 0 if flash else heads - mlp + mask + mixed * (4 if recompute == "selective" else 1)
    backward = max(in_mlp, again + in_core) if recompute == "selective" else again + max(in_mlp, in_core)
    kept = {"none": kept + core, "selective": kept, "full": own}[recompute]
    entering = own + {None: 0, "again": 3}.get(sequence, 2) * x + own * bool(sequence)
    return Shapes(own, kept, backward, own + entered, entering, 4 * tokens * -(-model.vocabulary // t), mask)


def in_flight(plan, rank):
    """Microbatches of which a rank has activations at once, of all its stages."""
    P, M, v = plan.pp, plan.microbatches, plan.chunks
    if plan.schedule == "gpipe":
        return M
    if v == 1:
        return min(P - rank, M)
    return min((v - 1) * P + 2 * (P - 1 - rank) + 1, M * v) / v


# All of it.


def memory(model, plan, rank=0) -> Memory:
    """Of rank ``rank`` of a pipeline."""
    states, found = moments(model, plan, rank)
    moment, *more = max(found, key=lambda each: each[1] + each[2] + each[3])
    return Memory(moment, states | dict(zip(("activations", "gradients", "working"), more)))


def reached(full, numbers):
    """Numbers in buckets that have gradients, once so many have theirs, and the next one."""
    total = 0
    for bucket in full:
        total += bucket
        if total > numbers:
            break
    return total


def moments(model, plan, rank):
    """What is held always; and for each moment its name, and bytes of activations, gradients, and what works."""
    first, last = rank == 0, rank == plan.pp - 1
    layers, i, s = plan.layers(model)[rank], ITEM[plan.precision], plan.shard
    full, (block, matrix) = buckets(model, plan.tp, layers, first, last, i), block_of(model, plan.tp)
    numbers, words = sum(full), table(model, plan.tp)
    both = first and last and model.tied  # then the head's gradient waits for the embedding's
    a = shapes(model, plan.tp, plan.microbatch, plan.sequence, plan.recompute, plan.flash, plan.precision)
    kept = layers * a.block + last * a.end + first * a.dropped
    states = {
        "parameters": i * numbers / (s if plan.zero == 3 else 1),
        "optimizer states": (MOMENTS + (4 if i < 4 else 0)) * numbers / (s if plan.zero else 1),
    }
    whole = GRADIENT * numbers / (s if plan.zero > 1 else 1)
    unit = block if plan.zero == 3 else max(full[:-1], default=0)  # what is reduced at once
    waits, largest = i * words * both, i * matrix
    messages = 2 * a.own * (plan.pp > 1)
    flying = in_flight(plan, rank)

    found = []
    for before in {0, min(1, plan.microbatches - 1)}:  # backwards of other microbatches that are done
        number = min(flying, plan.microbatches - before)
        live, gradients = number * kept + last * (number - 1) * a.logits, whole * before
        if last:
            narrow = a.logits * i / 4 * (i < 4)
            found.append(("loss", live, gradients, 2 * a.logits + narrow))
            gathered = i * (words + unit) if plan.zero == 3 else 0
            found.append(("head", live, gradients, (2 * narrow or a.logits) + a.entering + i * words + gathered))
            begun = 0 if both else GRADIENT * (words if plan.zero == 3 else full[0] if plan.zero or not before else 0)
            found.append(("head", live, gradients + begun, a.entering + i * words + gathered))
        for done in {*range(min(layers, 3)), layers - 1}:
            follows = words * first if done == layers - 1 else unit
            gathered = i * (unit + follows) if plan.zero == 3 else 0
            passing = GRADIENT * min(unit * (done + 1), numbers) if plan.zero > 1 else 0
            begun = (
                GRADIENT * reached(full, done * block + (0 if plan.flash else block // 2))
                if plan.zero < 2 and not before
                else 0
            )
            working = a.backward + messages + largest + gathered + waits + passing
            found.append(("block", live - done * a.block, gradients + begun, working))
        left = live - kept + (a.own if first else a.block)
        if first:
            sharded = GRADIENT * (1 - (not before) / s) + i * (plan.zero == 3)
            working = i * words * (3 if both else 1) + sharded * full[-1] * (plan.zero > 1)
        else:
            working = a.backward + messages + largest + gathered
        found.append(("end", left, whole, working))
    longest, share = full.index(max(full)), (s if plan.zero else 1)
    previous = full[longest - 1] if longest and (both or not first) else 0
    found.append(("step", 0, whole, GRADIENT * (2 * full[longest] + previous) / share))
    return states, found
