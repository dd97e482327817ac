"""Activation memory: tensors that blocks save for backward, and temporary ones in their backward.

By Korthikanti et al. 2022, table 2, and beyond it for what has no dropout, grouped heads, or a gated MLP. Fused
kernels are as Megatron-LM has them; else a gated model is one of tinydist.attention, where norms are in fp32, rotary
positions keep their tables, a gate keeps its SiLU, and attention writes down each of its steps.
"""

from functools import lru_cache
from typing import NamedTuple

from .latent import numbers

ITEM = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of a weight, and of an activation
WIDE, MASK, STATISTIC, ORDER = 4, 1, 4, 8


class Shapes(NamedTuple):
    """Bytes of one microbatch, on a rank of the tensor group."""

    own: float  # between blocks, of this rank's tokens
    block: float  # kept by a block
    entered: float  # kept of what a stage receives, where its first block does not
    down: float  # more, while its backward is at the last matrix of its MLP
    gate: float  # at what a gate does
    gated: float  # at the matrix of what it does it to
    up: float  # at the first matrix, a gate's if there is one
    core: float  # in attention
    end: float  # kept by the last norm and the head
    entering: float  # gradients of what enters the head
    logits: float  # kept by the loss, in fp32
    dropped: float  # the mask of what is embedded
    combined: float  # more, while outputs of experts are weighted
    expert: float  # and for each expert whose backward is done
    rows: float  # of all experts of a rank


def attention(model, flash, t, b, plain, i, masked=False):
    """Kept of the weights; what their backward takes beyond that. ``masked``: flash attention is given the mask, and
    its output is laid out once more, as in tinydist.attention."""
    rows = b * model.tokens * model.heads // t
    scores = rows * model.tokens * i
    if flash:
        return rows * STATISTIC + (model.tokens**2 + rows * model.head_dim) * i * masked, 0
    if plain:
        return 2 * scores + model.tokens**2 * MASK + 2 * rows * i, 4 * scores
    return scores * (2 * i + MASK) // i if model.dropout else scores, scores


def shapes_of(model, program, plan):
    context = plan.cp, plan.context
    return shapes(
        model, program, plan.tp, plan.microbatch, *context, plan.sequence_parallel, plan.recompute, plan.precision
    )


def of_context(model, program, t, b, cp, context, i):
    """Kept on a rank of a context group beyond queries, keys, values, and output; at its backward's peak, more."""
    c, wide = b * model.tokens // cp, i if program.fused else WIDE
    q, kv = c * model.heads // t * model.head_dim, 2 * c * max(1, model.kv_heads // t) * model.head_dim
    plain, statistics = model.gated, c * model.heads // t * STATISTIC
    angles = plain * c // b * model.head_dim * WIDE
    if context == "ulysses":
        more = max(kv, 2 * cp * c * model.head_dim) - kv  # where ranks share a head of keys
        kept, kv = i * (q + more) + 4 * ORDER * model.tokens + angles, kv + more
        working = i * (2 * q + kv) + wide * (q + kv)
    else:
        kept = i * (q + kv // 2) + angles if plain else i * kv
        if context == "gather":
            working = i * (2 * q + (cp + 1) * kv) + wide * (q + (cp + 2) * kv)
        else:
            working = i * (2 * q + 2 * kv) + wide * (q + (3 + (cp > 2)) * kv)  # at the end; or in a block before
            block = i * (1.5 * q + (2 + (cp > 4)) * kv) + wide * (q + (4 + (cp > 3)) * kv)
            working = max(working, block) if cp > 2 else working
    return (0 if program.holds else kept) + statistics, working - i * q * plain


class Rows(NamedTuple):
    """Bytes of an MLP, or of an expert; and of all experts of a rank."""

    inside: float  # between the matrices
    x: float  # entering
    kept: float
    combined: float = 0.0  # more, while outputs are weighted
    expert: float = 0.0  # more, once backward of an expert is done
    all: float = 0.0  # entering all experts


def of_mlp(model, torchs, t, tokens, i, entered):
    inside, x = tokens * model.inner // t * i, tokens * model.width * i
    return Rows(inside, x, entered + inside * between(model, torchs))


def between(model, torchs):
    """How many tensors an MLP keeps between its matrices."""
    return 2 + model.gated * (1 + torchs)


def of_experts(model, torchs, t, tokens, i, entered):
    """Each expert has as many rows. Torch's operators score tokens, and weight outputs, in fp32; fused ones weight what
    is between the matrices."""
    of, D = model.experts, model.width
    assigned, wide = tokens * of.active, torchs and i < WIDE
    inside, x = assigned * of.inner // t * i, assigned * D * i
    each, scored = inside * between(model, torchs), tokens * D * WIDE if wide else entered
    routed = tokens * (2 * WIDE * of.total + (5 * ORDER + 3 * WIDE) * of.active)
    shared = (entered * wide + each * of.shared / of.active) if of.shared else 0
    weighted = assigned * D * (3 * WIDE + i * wide) if torchs else 2 * x
    kept = scored + routed + shared + x * (1 + torchs) + each
    return Rows(inside / of.own, x / of.own, kept, weighted, (x - each) / of.own, x)


@lru_cache(4096)
def shapes(model, program, t, b, cp, context, sequence_parallel, recompute, precision):
    i, tokens, plain = ITEM[precision], b * model.tokens // cp, model.gated and not program.fused
    x = tokens * model.width * i
    own = x / t if sequence_parallel else x
    mask = own / i * MASK * (model.dropout > 0)
    norm = own * 2 * WIDE / i if plain else own  # what it takes; what it scales, too
    entered = own if sequence_parallel == "regather" and not plain else x
    mixed = tokens * model.heads // t * model.head_dim * i
    keys = tokens * max(1, model.kv_heads // t) * model.head_dim * i
    heads = 2 * mixed + 2 * keys  # queries, output; keys, values
    if model.latent:
        latents, queries, values = numbers(model, t)
        heads = 2 * tokens * (latents + queries + values) * i  # latents once more with their norms
    angles = plain * 4 * tokens // b * model.head_dim * WIDE  # sines and cosines twice, of queries and of keys
    rows = (of_experts if model.experts else of_mlp)(model, not program.fused, t, tokens, i, entered)
    inside = rows.inside
    flash = program.flash or cp > 1
    core, in_core = attention(model, flash, t, b, plain, i, plain and not program.holds)
    if cp > 1:
        core, in_context = of_context(model, program, t, b, cp, context, i)
    mlp = norm + rows.kept + mask
    kept = norm + entered + heads + angles + mask + mlp
    outputs = own + heads + inside + x * model.gated + 2 * own * bool(sequence_parallel)  # per_op's
    outputs += core if flash else b * model.heads // t * model.tokens**2 * i
    again = {"none": 0, "selective": core, "per_op": kept + core - outputs, "full": kept + core - own}[recompute]
    before = again if recompute in ("per_op", "full") else 0
    in_core += mask - mlp + mixed * (4 if recompute == "selective" else 1)
    if cp > 1:
        in_core = in_context - mlp
    return Shapes(
        own,
        {"none": kept + core, "selective": kept, "per_op": outputs, "full": own}[recompute],
        own * (plain and i < WIDE and recompute in ("none", "selective")),
        before + inside + x * bool(sequence_parallel),
        before + 2 * inside * model.gated,
        before + rows.x - inside,
        before + rows.x * (1 + model.gated) - inside * (1 + model.gated + plain),
        0 if flash and cp == 1 and not model.experts else again + in_core,
        norm + entered,
        own + {None: 0, "regather": 3}.get(sequence_parallel, 2) * x + own * bool(sequence_parallel),
        WIDE * tokens * -(-model.vocabulary // t),
        mask,
        before + rows.combined,
        rows.expert,
        rows.all,
    )


def in_flight(plan, rank):
    """Microbatches whose activations a rank holds at once, over all its stages."""
    P, M, v = plan.pp, plan.microbatches, plan.chunks
    if plan.schedule == "gpipe":
        return M
    if v == 1:
        return min(P - rank, M)
    return min((v - 1) * P + 2 * (P - 1 - rank) + 1, M * v) / v
