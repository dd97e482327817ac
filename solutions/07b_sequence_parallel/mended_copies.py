"""A training step with sequence parallelism, and three bugs in it that no loss shows."""

import torch
import torch.distributed as dist

from tinydist.collectives import autograd
from tinydist.lab.author import Bytes, Case, Values, Waits, also, exercise, mistake

from .chapter import gradients, leaf, noted, numbers

WIDTH, HIDDEN, SEED = 4, 12, 7
SUMMED = "    dist.all_reduce(scale.grad)\n"
COPIES = "scale.grad.square().sum() / t"
NORM = "    dist.all_reduce(square)\n"


def case(ranks, tokens, max_norm, dtype=torch.float32):
    clipping = "no clipping" if max_norm > 1e3 else f"max_norm={max_norm}"
    kind = "" if dtype == torch.float32 else ", float64"
    return Case(ranks, lambda rank: (tokens, max_norm, dtype), f"{tokens} tokens a rank, {clipping}{kind}")


def test_cases():
    yield case(2, 3, 1e9)
    yield case(3, 2, 1e9)
    yield case(2, 3, 0.5)
    yield case(4, 1, 0.5, torch.float64)
    yield case(3, 2, 0.5)
    yield case(1, 3, 0.5)


def train(answer, tokens, max_norm, dtype):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    scale = leaf(1 + numbers(WIDTH, seed=1, dtype=dtype) / 10)
    up = leaf(numbers(WIDTH, HIDDEN, seed=2, dtype=dtype).chunk(ranks, 1)[rank])
    down = leaf(numbers(HIDDEN, WIDTH, seed=3, dtype=dtype).chunk(ranks, 0)[rank] / 2)
    x, targets = (numbers(tokens, WIDTH, seed=seed + rank, dtype=dtype) for seed in (10, 20))
    norm = answer(scale, up, down, x, targets, mask, SEED, enter, leave, max_norm)
    found = {"the norm": noted(norm) if isinstance(norm, torch.Tensor) else norm}
    return gradients({"scale": scale, "up": up, "down": down}) | found


def enter(x):
    return autograd.all_gather(x)


def leave(summand):
    return autograd.reduce_scatter(summand)


def mask(x, seed):
    """Of dropout, p = 1/2: zeros and twos, the same whenever the seed is the same."""
    kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return 2 * kept.to(x.dtype)


@exercise(
    title="Find three bugs",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        Waits("whatever is started is waited for"),
        Values(
            "the gradients that the whole layer has, clipped by its norm, and the norm; 1, 2, 3 and 4 ranks",
            scratch=True,
        ),
        Bytes(
            "what enters and leaves, forward and backward; an all-reduce of the scale's gradient, and one of a number"
        ),
    ],
    mistakes=[
        mistake(
            "All ranks drop the same places of their parts: hidden is sharded, so its mask is drawn with seed + rank",
            "mask(hidden, seed + rank)",
            "mask(hidden, seed)",
            given=True,
        ),
        mistake(
            "The scale has seen this rank's tokens alone. It is a copy on every rank, and its gradient is the sum over "
            "the ranks; without it the copies drift apart",
            SUMMED,
            "",
            given=True,
        ),
        mistake(
            "The norm counts the scale once for each rank, and it is one parameter: each of t copies counts 1/t",
            COPIES,
            COPIES.removesuffix(" / t"),
            given=True,
        ),
        mistake(
            "Each rank clips by the norm of what it has itself. Squares of all ranks are added up",
            NORM,
            "",
        ),
        mistake(
            "up and down are in parts, of which each is on one rank alone: they count once as they are",
            "up.grad.square().sum() + down.grad.square().sum()",
            "(up.grad.square().sum() + down.grad.square().sum()) / t",
        ),
        mistake(
            "up is in parts: its gradient is this rank's own, and is not added up",
            SUMMED,
            SUMMED + "    dist.all_reduce(up.grad)\n",
        ),
        mistake("Nothing was clipped", "parameter.grad *= factor", "parameter.grad *= 1"),
        mistake("The scale is clipped, too", "(scale, up, down)", "(up, down)"),
    ],
    alternatives=[
        also(COPIES, "(rank == 0) * scale.grad.square().sum()"),
        also(COPIES + " + ", "", NORM, NORM + "    square += scale.grad.square().sum()\n"),
    ],
    hints=[
        "Which of scale, up and down is a copy on every rank, and which is in parts? What has each of them seen: all "
        "tokens, or the rank's own?",
        "Three rules for copies: the same random numbers only where all compute alike; gradients that are equal on all "
        "ranks; counted once in a norm.",
        "The mask of what is sharded is another on each rank. The scale sees a rank's own tokens. And the squares of "
        "all ranks are added up, those of the scale's copies too.",
    ],
    why="None of the three shows in the loss of a step. Megatron-LM keeps two states of random numbers, all-reduces "
    "the gradients of norms in finalize_model_grads, and asks param_is_not_tensor_parallel_duplicate before it counts.",
)
def mended_copies(scale, up, down, x, targets, mask, seed, enter, leave, max_norm):
    """One step's gradients, clipped, of y = x + dropout(tanh(norm(x) up)) down with sequence parallelism. Three bugs.

    ``x`` and ``targets`` [T/t, D] are this rank's tokens; ``scale`` [D], the norm's weight, is a copy on every rank;
    ``up`` [D, H/t] and ``down`` [H/t, D] are this rank's parts. ``enter`` and ``leave`` are right: all-gather and
    reduce-scatter, with their conjugates. ``mask(like, seed)`` draws dropout's mask: with ``seed`` for what all ranks
    compute alike, with ``seed + rank`` for what is sharded. The loss is the sum over all tokens. Returns the norm of
    all gradients before they are clipped; each parameter counts once.
    """
    rank, t = dist.get_rank(), dist.get_world_size()

    normed = x / x.square().mean(-1, keepdim=True).sqrt() * scale
    hidden = torch.tanh(enter(normed) @ up)
    hidden = hidden * mask(hidden, seed + rank)
    y = x + leave(hidden @ down)
    (y - targets).square().sum().backward()

    dist.all_reduce(scale.grad)
    square = scale.grad.square().sum() / t + up.grad.square().sum() + down.grad.square().sum()
    dist.all_reduce(square)
    norm = square.sqrt()
    factor = (max_norm / norm).clamp(max=1.0)
    for parameter in (scale, up, down):
        parameter.grad *= factor
    return norm
