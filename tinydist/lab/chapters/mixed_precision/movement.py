"""How far the weights move in a step, beside how far they do in fp32, and what a wrong way comes from."""

from ...errors import Wrong
from .fp16_step import build, flat

BAND = 0.03  # of what the weights move: fp16 has 11 bits, and gradients are sums of some products
ROUNDING = 2.0**-10  # of the weights: what is added by rounding them to fp16


def start():
    return flat(build().parameters())


def moves(trial, step=0):
    """The only step that is made, or the first that is: seen at the model's weights or at the masters."""
    plan = trial.case.expected
    weights, norm = plan.reference[step]
    right = flat(weights) - start()
    for rank, history in enumerate(trial.returned):
        ways = [flat(tensors) - start() for tensors in history[step][1:]]
        moved = max(ways, key=lambda way: way.nan_to_num().norm())
        if not alike(moved, right):
            raise Wrong(f"rank {rank}: {what_differs(plan, moved, right, norm)}")


def alike(way, right, factor=1.0):
    return bool((way - factor * right).norm() <= BAND * abs(factor) * right.norm() + ROUNDING * start().norm())


def what_differs(plan, moved, right, norm):
    ratio = (moved @ right / (right @ right)).item()
    straight = alike(moved, right, ratio)
    reasons = [words for holds, words in causes(plan, ratio, straight, norm) if holds]
    direction = "" if straight else ", and in another direction"
    return [*reasons, f"the weights move {ratio:.3g} times as far as in fp32{direction}"][0]


def causes(plan, ratio, straight, norm):
    """(whether it looks like it, words for it)."""
    k, p, clipped = plan.microbatches, plan.ranks, norm > plan.max_norm

    def times(factor):
        return straight and factor != 1 and abs(ratio / factor - 1) < 0.1

    yield (
        plan.size < 1,
        "the weights do not move as in fp32. The gradients are about 2^-26, too small for fp16; times the scale they "
        "are in its range, and divided by it they must be fp32: .float() first, then / scale",
    )
    yield (
        not clipped and times(plan.max_norm / norm),
        f"the gradient has a norm of {norm:.3g}, and the weights move as if it were {plan.max_norm:g}, max_norm: this "
        "gradient is shorter than max_norm: leave it",
    )
    yield (
        times(1 / k),
        f"the weights move {k} times too little, the number of microbatches: the loss is divided by it, and once more",
    )
    yield (
        times(k),
        f"the weights move {k} times too far, the number of microbatches: the sum of their losses, not the mean",
    )
    yield times(p), f"the weights move {p} times too far, the number of ranks: gradients are added up, and not divided"
    yield times(1 / p), f"the weights move {p} times too little, the number of ranks: they are divided by it twice"
    yield (
        clipped and plan.scale > 1 and abs(ratio) < 0.1,
        f"the weights move {ratio:.2g} of what they should. The gradient is clipped while it is {plan.scale:g} times "
        f"too large, and divided by the scale after that: unscale first, then clip to {plan.max_norm:g}",
    )
    yield (
        clipped and times(norm / plan.max_norm),
        f"the gradient has a norm of {norm:.3g} and is not clipped to {plan.max_norm:g}",
    )
    yield (
        plan.scale > 1 and ratio > plan.scale / 2,
        f"the weights move {ratio:.3g} times too far, about the scale: the gradient is not unscaled",
    )
    yield (
        clipped and not straight,
        "the gradient is clipped to another one: what is clipped is the mean over all ranks, by the norm of all its "
        "numbers together",
    )
    yield straight and abs(ratio) < 0.01, "the weights do not move, and nothing overflows"
