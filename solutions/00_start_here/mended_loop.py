"""A training loop with four mistakes, to be mended until four ranks train as one does."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tinydist.lab.author import Case, Collectives, Own, Values, also, exercise, mistake
from tinydist.lab.differences import close

from .chapter import numbers

SAMPLES = 12
AVERAGE = """\
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= p
"""
AT_ONCE = """\
        row = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        dist.all_reduce(row)
        model.weight.grad, model.bias.grad = (row[:-1] / p).view(1, -1), row[-1:] / p
"""


def world(ranks, steps, samples=SAMPLES):
    return Case(
        ranks,
        lambda rank: (numbers(4, samples, 3), 2 * numbers(7, samples, 1), steps),
        f"{samples} samples, {steps} step{'s' * (steps > 1)}",
    )


def test_cases():
    for ranks in (2, 3):  # a sample for each: however they are dealt out, rank r has sample r
        yield world(ranks, 1, samples=ranks)
        yield world(ranks, 8, samples=ranks)
    for ranks, steps in [(2, 8), (3, 8), (4, 12), (1, 8)]:
        yield world(ranks, steps)


def one_rank(inputs, targets, steps, rate=0.1, limit=1.0, times=1, after=1, zero=True, each=False, last=False):
    """The weights of one rank that has all samples, and does something otherwise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        if zero:
            optimizer.zero_grad()
        (times * nn.functional.mse_loss(model(inputs), targets)).backward()
        if last:
            optimizer.step()
        for those in [[each] for each in model.parameters()] if each else [list(model.parameters())]:
            clip_grad_norm_(those, limit)
        for parameter in model.parameters():
            parameter.grad *= after
        if not last:
            optimizer.step()
    return model.weight.detach()


def other_ways(inputs, targets, steps, p):
    n = len(inputs)
    yield (
        "Each tensor is clipped by its own norm. The limit is for the norm of all gradients together: one call of "
        "clip_grad_norm_, for all parameters",
        dict(each=True),
    )
    yield (
        "It is the sum that is clipped, and what is left is divided by the number of ranks after that: divide first, "
        "then clip the mean",
        dict(times=p, after=1 / p),
    )
    yield "The mean is clipped, and divided by the number of ranks again", dict(after=1 / p)
    yield "The mean is divided by the number of ranks again, before it is clipped", dict(times=1 / p)
    yield "The gradients of earlier steps are still there: zero_grad before each backward", dict(zero=False)
    yield "Clipping comes after the step, where it changes nothing any more", dict(last=True)
    yield (
        f"The learning rate is {p} times as large: a mean of all samples takes the rate of one rank",
        dict(rate=0.1 * p),
    )
    yield (
        f"The learning rate is {p} times smaller: a mean of all samples takes the rate of one rank",
        dict(rate=0.1 / p),
    )
    yield f"The limit is {p} times as large: the mean is as long as one rank's gradient would be", dict(limit=p)
    yield f"The limit is {p} times smaller: it is for the mean of all ranks, and not for a share", dict(limit=1 / p)
    yield "The loss is the sum over a rank's samples, where it should be their mean", dict(times=n // p)
    yield "The loss is the sum over all samples, where it should be their mean", dict(times=n)
    yield "It makes one step less", dict(steps=steps - 1)
    yield "It makes one step more", dict(steps=steps + 1)
    for by in {1, n // p}:
        words = "The targets are not those of the inputs: both are to be shared in the same way"
        yield words, dict(targets=targets.roll(by, 0))
        yield words, dict(targets=targets.roll(-by, 0))


def otherwise(trial, got, want, own, pick):
    """However the ranks deal out the samples."""
    (inputs, targets, steps), found = trial.case.arguments(0), {}
    for words, how in other_ways(inputs, targets, steps, trial.case.ranks):
        weight = one_rank(**{"inputs": inputs, "targets": targets, "steps": steps, **how})
        if not close(weight, want[0]) and all(close(mine, weight) for mine in got):
            found[words] = how
    return ". Or: ".join(list(found)[:2]) or None


@exercise(
    title="Mend a training loop",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Values("on 1 to 4 ranks, all ranks return the weights that one rank would have", explain=[otherwise]),
        Own("no wrapper of torch", "average the gradients yourself", ["torch.nn.parallel.distributed"]),
        Collectives(
            "each gradient is averaged once: all-reduces of 16 bytes in each step",
            "every gradient once in each step",
            first=["broadcast"],  # of the weights to start with
            together=True,
        ),
    ],
    mistakes=[
        mistake(
            "The ranks start with different weights, and averaging gradients does not bring weights together: the "
            "same seed on all ranks",
            "torch.manual_seed(0)",
            "torch.manual_seed(rank)",
            given=True,
        ),
        mistake(
            "All ranks train on the same share: each needs one of its own",
            "inputs.chunk(p)[rank], targets.chunk(p)[rank]",
            "inputs.chunk(p)[0], targets.chunk(p)[0]",
            given=True,
        ),
        mistake(
            "The gradients are not divided by the number of ranks, so they are too long. Clipping hides that where "
            "both they and the mean are longer than the limit. In all other steps the step itself is too long",
            "            parameter.grad /= p\n",
            "",
            given=True,
        ),
        mistake(
            "Each rank clips its own gradient before anything is averaged. The limit is for the gradient of the whole "
            "batch: average the gradients, and then clip",
            "        loss.backward()\n",
            "        loss.backward()\n        clip_grad_norm_(model.parameters(), 1.0)\n",
            "        clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n",
            "        optimizer.step()\n",
            given=True,
        ),
        mistake(
            "Each rank trains on all samples: they are not shared, and p ranks take as long as one",
            "inputs.chunk(p)[rank], targets.chunk(p)[rank]",
            "inputs, targets",
        ),
        mistake(
            "The gradients are divided by 2, and there are not always 2 ranks: divide by the world size",
            "parameter.grad /= p",
            "parameter.grad /= 2",
        ),
        mistake(
            "Nothing is clipped any more: where the averaged gradient is longer than 1, clip_grad_norm_ shortens it",
            "        clip_grad_norm_(model.parameters(), 1.0)\n",
            "",
        ),
        mistake(
            "Only the gradient of the weight is averaged: the bias is a parameter, too, and drifts apart",
            AVERAGE,
            "        dist.all_reduce(model.weight.grad)\n        model.weight.grad /= p\n",
        ),
    ],
    alternatives=[
        also("inputs.chunk(p)[rank], targets.chunk(p)[rank]", "inputs[rank::p], targets[rank::p]"),
        also(AVERAGE, AT_ONCE),
    ],
    hints=[
        "Compare with one rank, step by step. Before the first step: do all ranks hold the same weights?",
        "Which samples does rank 1 see, and which does rank 2 see?",
        "The mean of the whole batch is the mean of the means of equal shares. Is it a mean, or a sum?",
        "clip_grad_norm_ shortens the gradient that it finds. Which gradient should it find, that of the share or "
        "that of the whole batch?",
    ],
    why="None of the four raises an error, and with each of them the ranks still train something. That is why a "
    "distributed program is first compared with one rank, step by step.",
)
def mended_loop(inputs, targets, steps):
    """Train a linear model for ``steps`` steps on N samples, which the ranks share, and
    return its weights [1, 3]: those of one rank that begins with seed 0. Gradients that
    are longer than 1 are clipped.

    This is a colleague's program. It ends without an error, and yet four ranks do not
    train as one does. It has four mistakes; mend them.

    inputs:   [N, 3], the same on all ranks; N divides evenly among them.
    targets:  [N, 1], likewise.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    my_inputs, my_targets = inputs.chunk(p)[rank], targets.chunk(p)[rank]
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(my_inputs), my_targets)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= p
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()
