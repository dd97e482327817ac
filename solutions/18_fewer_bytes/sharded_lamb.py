"""LAMB, where ZeRO has cut each tensor into shards: the trust ratio is of the whole tensor."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Collectives, Own, Values, exercise, mistake

from .chapter import INSTEAD, SOLVED, WAITS, numbers

STEPS = 3


def case(ranks, sizes, decay=0.0, zero=(), still=(), empty=()):
    """Tensors that begin with zeros, tensors whose gradients are zeros, and ranks that have nothing of any tensor."""
    about = f"{len(sizes)} tensors, weight decay {decay:g}"
    about += ", one of zeros" * bool(zero) + ", a rank without numbers" * bool(empty)
    about += ", one whose gradient is 0" * bool(still)
    return Case(ranks, lambda rank: (sizes, decay, zero, still, empty), about)


def test_cases():
    yield case(1, [6])
    yield case(2, [8, 5])
    yield case(3, [4, 6, 3], decay=0.1)
    yield case(2, [6, 4], zero=(1,))
    yield case(2, [5, 4], still=(1,))
    yield case(4, [7, 5], decay=0.05, empty=(2,))


def train(answer, sizes, decay, zero, still, empty):
    rank = dist.get_rank()
    lengths = [0 if rank in empty else n + rank for n in sizes]  # shards of different length
    weights = [(0.1 + t) * numbers(n, seed=10 * t + rank) * (t not in zero) for t, n in enumerate(lengths)]
    states = [(torch.zeros(n), torch.zeros(n)) for n in lengths]
    found = {}
    for step in range(1, STEPS + 1):
        gradients = [numbers(n, seed=1000 * step + 10 * t + rank) * (t not in still) for t, n in enumerate(lengths)]
        answer(weights, gradients, states, step, 0.1, decay)
        for t, w in enumerate(weights):
            found[f"the shard of tensor {t} after step {step}"] = w.clone()
    return found


RATIO = "w -= lr * (ratio if ratio.isfinite() and ratio > 0 else 1) * r"


@exercise(
    title="LAMB on shards",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        WAITS,
        Own("your own update, and one all-reduce of torch.distributed", INSTEAD, SOLVED),
        Values("the weights after each of three steps, on 1 to 4 ranks, with and without weight decay", scratch=True),
        Collectives(
            "one all-reduce a step, of two float32 for each tensor",
            "one for each tensor pays as many latencies",
            "It carries two float32 for each tensor",
            name="calls",
        ),
    ],
    mistakes=[
        mistake(
            "The norm of the weights is that of this rank's shard. The trust ratio is of the whole tensor: its ranks "
            "would step with different rates",
            "ratio = norms[0] / norms[1]",
            "ratio = w.norm() / norms[1]",
        ),
        mistake(
            "Norms of shards were added up. It is their squares that add up to the square of the norm",
            "squares = torch",
            "norms = torch",
            ".square().sum()",
            ".norm()",
            "dist.all_reduce(squares)",
            "dist.all_reduce(norms)",
            "squares.sqrt()",
            "norms",
        ),
        mistake(
            "Weight decay is part of the direction, and so of its norm: it is added before the ratio is taken",
            "r = direction + decay * w",
            "r = direction",
            RATIO,
            RATIO + " + lr * decay * w",
        ),
        mistake(
            "Both moments begin with 0, and are too small in the first steps: divide them by 1 - beta ** step",
            "/ (1 - 0.9**step)",
            "/ 1",
            "/ (1 - 0.999**step)",
            "/ 1",
        ),
        mistake(
            "A tensor of zeros never moves with a ratio of 0: there the ratio is 1",
            "if ratio.isfinite() and ratio > 0 else 1",
            "if ratio.isfinite() else 1",
        ),
        mistake(
            "A tensor without a gradient has a direction of 0 (eps is added to the root): there the ratio is 1, and "
            "the weights stay as they are",
            "if ratio.isfinite() and ratio > 0 else 1",
            "if ratio > 0 else 1",
        ),
        mistake(
            "One ratio was taken for all tensors together: each tensor has its own",
            "squares.sqrt()):",
            "squares.sum(0).sqrt().expand(len(weights), 2)):",
        ),
        mistake(
            "The ratio is upside down: it is the norm of the weights over that of the direction",
            "ratio = norms[0] / norms[1]",
            "ratio = norms[1] / norms[0]",
        ),
    ],
    hints=[
        "First compute every tensor's direction, on this rank's shard. Nothing of it needs other ranks.",
        "The square of a norm is a sum over all numbers, and so over all shards: put the sums of squares of all "
        "tensors, of weights and of directions, into one small tensor, and all-reduce that.",
    ],
    why="An optimizer that looks at each number alone, as Adam does, can be cut anywhere. LAMB cannot: with norms of "
    "its own each shard would be another tensor, and the result would depend on the number of ranks. Gradient clipping "
    "has the same all-reduce of squares. DeepSpeed's ZERO_SUPPORTED_OPTIMIZERS (at 1a11c187) has Adam, and no LAMB.",
)
def sharded_lamb(weights, gradients, states, step, lr, decay):
    """One step of LAMB, in place, where each rank has a shard of each tensor.

    ``weights`` and ``gradients`` are lists of flat float32 tensors: this rank's shard of each. Shards may have
    different lengths, or none. Gradients are averaged already. ``states`` has (m, v) of each. ``step`` counts from 1;
    betas are 0.9 and 0.999, and eps is 1e-6, added after the root. The direction is that of Adam with bias correction,
    plus ``decay`` times the weights. The trust ratio, the norm of the weights over that of the direction, is of the
    whole tensor, and 1 where either is 0. Use one all-reduce.
    """
    # ? the direction of each shard
    updates = []
    for w, gradient, (m, v) in zip(weights, gradients, states):
        m.mul_(0.9).add_(gradient, alpha=0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = (v / (1 - 0.999**step)).sqrt()
        direction = m / (1 - 0.9**step) / (root + 1e-6)
        r = direction + decay * w
        updates.append(r)
    # ? the norms of whole tensors
    squares = torch.stack([torch.stack([w.square().sum(), r.square().sum()]) for w, r in zip(weights, updates)])
    dist.all_reduce(squares)
    # ? the steps
    for w, r, norms in zip(weights, updates, squares.sqrt()):
        ratio = norms[0] / norms[1]
        w -= lr * (ratio if ratio.isfinite() and ratio > 0 else 1) * r
