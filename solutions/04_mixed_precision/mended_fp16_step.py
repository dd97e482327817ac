"""A step of training in fp16 with four bugs, each of which leaves the loss falling for a while."""

from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.lab.author import Case, Own, Target, Waits, Wrong, also, draw_traffic, exercise, many, mistake
from tinydist.rules import ranks_in_words
from tinydist.tracing.record import Issue

from .chapter import HERE, SOLVED
from .fp16_step import Plan, build, flat, train

BAND = 0.03  # of what the weights move: fp16 has 11 bits, and gradients are sums of some products
ROUNDING = 2.0**-10  # of the weights: what is added by rounding them to fp16
MANY = 24  # small steps

PLANS = {
    "2 microbatches on each rank": Plan(3, 2),
    "5 microbatches on each rank": Plan(2, 5),
    "clipping to 0.5, no scale": Plan(2, max_norm=0.5),
    "clipping to 0.5, scale 256": Plan(2, 2, scale=256.0, max_norm=0.5),
    "clipping to 100, which the gradient is shorter than, scale 256": Plan(2, scale=256.0, max_norm=100.0),
    "overflow on rank 1": Plan(2, 2, scale=256.0, overflows=((0, 1),)),
    "overflow on rank 0": Plan(3, scale=256.0, max_norm=0.5, overflows=((0, 0),)),
    "overflow on rank 2, then a good step": Plan(3, steps=2, scale=256.0, overflows=((0, 2),)),
    "gradients of 2^-26, scale 2^16": Plan(2, scale=2.0**16, size=2.0**-14, lr=2.0**26),
    "many small steps": Plan(2, steps=MANY, scale=256.0, lr=2.0**-17),
    "gradients that fit into fp16 on each rank, and their sum does not": Plan(3, scale=3584.0),
    "training": Plan(2, 2, steps=8, scale=256.0, lr=0.1, max_norm=1.0, overflows=((3, 1), (6, 0))),
    "4 microbatches": Plan(1, 4),
    "overflow, then a good step": Plan(1, steps=2, scale=256.0, overflows=((0, 0),)),
}


def test_cases():
    for about, plan in PLANS.items():
        yield Case(plan.ranks, lambda rank, plan=plan: (plan,), about, facts=plan)


class Of(Target):
    """In worlds of which ``holds_in(plan)`` is true."""

    decides = True

    def __init__(self, name, holds, holds_in):
        super().__init__(holds)
        self.name, self.holds_in = name, holds_in

    def concerns(self, trial, exercise):
        return super().concerns(trial, exercise) and self.holds_in(trial.case.facts)


class Overflow(Of):
    """Which ranks make which steps, and what do they return?"""

    def seen(self, trial):
        if trial.error is not None:
            return None
        return [[step_of(old, new) for old, new in pairwise(history)] for history in trial.returned]

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        for step in range(trial.case.facts.steps):
            (made, *_), culprits = its[0][step], [rank for at, rank in trial.case.facts.overflows if at == step]
            moved = [rank for rank, each in enumerate(mine) if each[step][1]]
            told = [rank for rank, each in enumerate(mine) if each[step][0] != made]
            if culprits and moved:
                finite = all(mine[rank][step][2] for rank in moved)
                raise Wrong(
                    f"in step {step + 1} rank {culprits[0]}'s gradients overflow in fp16, and {ranks_in_words(moved)} "
                    f"of {len(mine)} {'makes' if len(moved) == 1 else 'make'} the step: the weights "
                    f"{'have changed' if finite else 'are inf or NaN now'}"
                )
            if told:
                what = f"rank {culprits[0]}'s gradients overflow, no rank steps" if culprits else "nothing overflows"
                raise Wrong(f"in step {step + 1} {what}, and {ranks_in_words(told)} returned {not made}")


def step_of(old, new):
    """(what it returned, have the weights changed, are they finite)."""
    moved = not all(torch.equal(a, b) for a, b in zip(old[1:], new[1:]))
    return new[0], moved, bool(torch.cat(new[1:]).isfinite().all())


class Moves(Of):
    """How far the first good step moves the weights: seen at the model's or at the masters, whichever move."""

    def seen(self, trial):
        if trial.error is not None:
            return None
        plan = trial.case.facts
        step = next(step for step in range(plan.steps + 1) if not any(at == step for at, _ in plan.overflows))
        return [way(*history[: step + 2 : step + 1]) for history in trial.returned] if step < plan.steps else []

    def alike(self, mine, other, right):
        return 2 * all(near(a, b) for a, b in zip(mine, other))

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            if not near(mine, its):
                raise Wrong(f"rank {rank}: the weights {far(mine, its)}{factor(mine, its, trial.case.facts)}")


def way(start, end):
    return max((new - old for old, new in zip(start[1:], end[1:])), key=lambda each: each.nan_to_num().norm())


def near(mine, its, rounding=ROUNDING):
    if not its.isfinite().all():
        return torch.equal(mine.isfinite(), its.isfinite())
    return bool((mine - its).norm() <= BAND * its.norm() + rounding * flat(build().parameters()).norm())


def far(mine, its):
    if not mine.isfinite().all():
        return "are inf or NaN"
    if not mine.any():
        return "do not move, and nothing overflows"
    ratio = (mine @ its / (its @ its)).item()
    return f"move {ratio:.3g} times as far as in fp32{'' if near(mine, ratio * its) else ', and in another direction'}"


def factor(mine, its, plan):
    """What there is so many times too much, or too little, of."""
    ratio = (mine @ its / (its @ its)).item()
    sizes = [each.numel() for each in build().parameters()]
    if len(sizes) > 1 and all(abs(each.norm() / plan.lr / plan.max_norm - 1) < BAND for each in mine.split(sizes)):
        return ". Each tensor has moved by lr max_norm: is each clipped by its own norm? The limit is for all together"
    if abs(mine.norm() / plan.lr / plan.max_norm - 1) < BAND and ratio > 1:
        return ". They move by lr max_norm: a gradient that is shorter than max_norm stays as it is"
    if abs(ratio + 1) < BAND:
        return ", the wrong way: SGD subtracts lr times the gradient"
    once = "the mean over them is divided once by their number"
    counts = {
        plan.ranks: f"There are {plan.ranks} ranks: {once}",
        plan.microbatches: f"There are {plan.microbatches} microbatches on a rank: {once}",
        plan.ranks * plan.microbatches: f"There are {plan.ranks * plan.microbatches} microbatches in all: {once}",
        plan.scale: f"The scale is {plan.scale:g}: divide by it once, before clipping",
    }
    for count, what in counts.items():
        if count > 1 and near(mine, ratio * its) and min(abs(ratio / count - 1), abs(ratio * count - 1)) < BAND:
            return f". {what}"
    return ""


HALVES = (
    ", and all of them are numbers of fp16: do you copy the fp16 weights into them? Small updates are lost there. "
    "Update the masters, in fp32, and let the weights be their copies"
)


class Masters(Of):
    """After all steps: how far the masters are, and whether the model has them, rounded."""

    def seen(self, trial):
        if trial.error is not None:
            return None
        ends = [(history[0][2], *history[-1][1:]) for history in trial.returned]
        return [(masters - start, torch.equal(model, masters.half().float())) for start, model, masters in ends]

    def alike(self, mine, other, right):
        return 2 * all(near(a, b, 0) and x == y for (a, x), (b, y) in zip(mine, other))

    def judge(self, exercise, trial, right):
        for rank, ((mine, rounded), (its, _)) in enumerate(zip(self.seen(trial), self.seen(right))):
            after = f"rank {rank}: after {many(trial.case.facts.steps, 'step')} the masters"
            if not near(mine, its, 0):
                masters = trial.returned[rank][-1][2]
                halves = mine.any() and torch.equal(masters, masters.half().float())
                raise Wrong(f"{after} {'are what they were' if not mine.any() else far(mine, its)}{HALVES * halves}")
            if not rounded:
                raise Wrong(f"{after} are right, and the model's weights are not these, rounded to fp16")


class Once(Target):
    name = "bytes"

    def judge(self, exercise, trial, right):
        steps = trial.case.facts.steps
        most = steps * (flat(build().parameters()).nbytes + 8)
        for rank, program in enumerate(trial.run.record.programs):
            nbytes = sum(entry.transfer.nbytes for entry in program if isinstance(entry, Issue))
            if nbytes > most and trial.case.ranks > 1:
                raise Wrong(
                    f"rank {rank} puts {nbytes:,} bytes into collectives in {many(steps, 'step')}, where {most:,} are "
                    "enough: 4 for each gradient and step, and one number. Add up the microbatches first, and average "
                    "once",
                    draw_traffic(trial),
                )


UNSCALE = "p.grad.float() / scale"
AVERAGE = "    for g in gradients:\n        dist.all_reduce(g)\n        g /= dist.get_world_size()\n"
OVERFLOW = "    overflow = not all(g.isfinite().all() for g in gradients)"
CLIP = "g *= min(1, max_norm / norm)"
UPDATE = "            master -= lr * g\n            p.data.copy_(master)\n"
AS_ONE = """\
    row = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(row)
    row /= dist.get_world_size()
    gradients = [part.view_as(g) for part, g in zip(row.split([g.numel() for g in gradients]), gradients)]
"""


@exercise(
    title="Find four bugs",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    alternatives=[also(AVERAGE, AS_ONE)],
    targets=[
        Own("neither torch's scaler nor the library's", HERE, SOLVED),
        Waits("whatever is started is waited for"),
        Overflow("overflow", "one rank's inf skips the step on all", lambda plan: plan.overflows),
        Moves(
            "mean",
            "the step of one process in fp32 that has all microbatches of 1, 2 or 3 ranks, within 3 %",
            lambda plan: plan.max_norm > 1000 and plan.size == 1,
        ),
        Moves(
            "clipping",
            "the mean gradient, unscaled, has a norm of max_norm at most",
            lambda plan: plan.max_norm < 1000,
        ),
        Moves("unscaling", "gradients of 2^-26 are not lost", lambda plan: plan.size < 1),
        Masters(
            "masters",
            f"{MANY} steps of 2^-17 times the gradient add up as in fp32, within 3 %; and so do 8 larger ones, two of "
            "them skipped",
            lambda plan: plan.steps > 2,
        ),
        Once("4 for each gradient in a step, and 8"),
    ],
    mistakes=[
        mistake(
            "The loss is divided by the number of microbatches, and so are the gradients, once more",
            f"{UNSCALE} for p in weights]  # the loss is divided by the microbatches already",
            f"{UNSCALE} / len(microbatches) for p in weights]",
            given=True,
        ),
        mistake(
            "The gradients of ranks without overflow are finite, and the average with the others is not. Look at what "
            "is averaged, or share the decision",
            f"{OVERFLOW}  # one rank's inf is in the average, on all ranks\n",
            "",
            AVERAGE,
            f"{OVERFLOW}\n{AVERAGE}",
            given=True,
        ),
        mistake(
            "The gradient is clipped while it is `scale` times too large, and divided by the scale after that: unscale "
            "first, then clip to max_norm",
            UNSCALE,
            "p.grad.float()",
            CLIP,
            f"{CLIP}\n        g /= scale",
            given=True,
        ),
        mistake(
            "The fp16 weights are updated in their place, where updates below half of a spacing are lost. Update the "
            "masters, and let the weights be their copies",
            UPDATE,
            "            p.data -= lr * g\n",
            given=True,
        ),
        mistake(
            "Each rank clips its own gradient: what is clipped is the mean over all ranks",
            AVERAGE,
            "    own = torch.cat([g.flatten() for g in gradients]).norm()\n    for g in gradients:\n"
            f"        g *= min(1, max_norm / own)\n{AVERAGE}",
        ),
        mistake(
            "The gradients are about 2^-26, too small for fp16. Times the scale they are in its range, and divided by "
            "it they must be fp32: .float() first, then / scale",
            UNSCALE,
            "(p.grad / scale).float()",
        ),
        mistake(
            "The masters are made from the fp16 weights in each step. Update the masters from themselves, in fp32; the "
            "fp16 weights are copies, never read back",
            "master -= lr * g",
            "master.copy_(p.data.float() - lr * g)",
        ),
        mistake(
            "The model's weights stay what they were: copy the masters back after each step",
            "            p.data.copy_(master)\n",
            "",
        ),
    ],
    hints=[
        "Read from the loss to the weights, and ask at each line: which number has this gradient been multiplied by so "
        "far? By the scale? Divided by the number of microbatches, of ranks?",
        "The mean over microbatches is taken at two places. And max_norm is for the gradient of the loss itself, not "
        "for one that is scale times as large.",
        "overflow is decided before the ranks' gradients are averaged, each by its own. What does a rank without "
        "overflow get from the average with one that has inf? Decide after it.",
        "p.data is fp16: small updates vanish in it. Update master, which is fp32, and let p be its copy: p.data.copy_("
        "master).",
    ],
    why="None of these bugs raises an error, and with each of them the loss falls for a while. They are found by "
    "comparing a few steps with fp32, in one process: the first thing to do with any training loop of your own.",
)
def mended_fp16_step(model, masters, microbatches, scale, lr, max_norm):
    """Mend this step of training in fp16: it has four bugs.

    Every rank has its own ``microbatches`` of (x, y), as many as the others. The step is one of SGD, by the gradient of
    the mean loss over all microbatches of all ranks, clipped to a norm of ``max_norm``. ``masters`` are fp32 copies of
    the model's weights, which are fp16. If the gradients of any rank overflow, no rank steps. Return whether the step
    was made.
    """
    weights = list(model.parameters())
    model.zero_grad()
    for x, y in microbatches:
        loss = F.mse_loss(model(x).float(), y) / len(microbatches)
        (scale * loss).backward()
    gradients = [p.grad.float() / scale for p in weights]  # the loss is divided by the microbatches already
    for g in gradients:
        dist.all_reduce(g)
        g /= dist.get_world_size()
    overflow = not all(g.isfinite().all() for g in gradients)  # one rank's inf is in the average, on all ranks
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
    for g in gradients:
        g *= min(1, max_norm / norm)
    if not overflow:
        for p, master, g in zip(weights, masters, gradients):
            master -= lr * g
            p.data.copy_(master)
    return not overflow
