"""A dynamic loss scaler, and its decision, which all ranks share.

Each rank has a part of the model here, as in ZeRO, tensor and pipeline parallelism: one rank's inf is in no other's
gradients.
"""

from functools import partial

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Own, Target, Wrong, draw_traffic, exercise, many, mistake
from tinydist.simulator.matching import ranks_in_words
from tinydist.simulator.record import SIZE_IS_OF_ALL, Issue

from .chapter import HERE, SOLVED
from .parts import Plan, by_turns, train

NBYTES = 8  # one number


def worlds():
    plans = [("overflows on single ranks", Plan(ranks, by_turns(ranks))) for ranks in (2, 3, 4)]
    plans += [
        ("overflows, window 1", Plan(3, by_turns(3), window=1)),
        ("overflows, scale 1.0, window 5", Plan(2, by_turns(2), window=5, scale=1.0)),
        ("no overflow, 2 good steps before the first", Plan(2, good_steps=2)),
        ("what rank 1 tells the others changed on the way in step 18", Plan(3, by_turns(3), steps=18, again=(1, 16))),
        ("overflows, and a rank whose parameters have no gradients", Plan(3, by_turns(2), steps=6, idle=2)),
        ("overflows", Plan(1, by_turns(1))),
    ]
    for about, plan in plans:
        yield Case(plan.ranks, lambda rank, plan=plan: (plan,), about, facts=plan)


class Each(Target):
    """Thing ``at`` of the history of each rank. ``told(plan, step, ranks, mine, right)``: what is wrong in a step, of
    things by step and rank."""

    decides = True

    def __init__(self, name, holds, at, told, draw=None):
        super().__init__(holds)
        self.name, self.at, self.told, self.draw = name, at, told, draw

    def seen(self, trial):
        """(step, rank) -> what is there."""
        if trial.error is not None:
            return None
        pairs = {(step, rank): each for rank, done in enumerate(trial.returned) for step, each in enumerate(done)}
        return {place: pairs[place][self.at] for place in sorted(pairs)}

    def alike(self, mine, other, right):
        return 2 * (not differences(mine, other))

    def judge(self, exercise, trial, right):
        mine, its, plan = self.seen(trial), self.seen(right), trial.case.facts
        wrong = differences(mine, its)
        if wrong:
            step = wrong[0][0]
            ranks = [rank for place, rank in wrong if place == step]
            picture = self.draw and (lambda: self.draw(plan, ranks[0], mine, its))
            raise Wrong(self.told(plan, step, ranks, mine, its), picture)


def differences(mine, its):
    return [place for place in its if not same(mine[place], its[place])]


def same(a, b):
    return torch.allclose(a, b, 1e-5, 1e-6, equal_nan=True) if isinstance(a, torch.Tensor) else a == b


def weights(plan, step, ranks, mine, its):
    rank = ranks[0]
    got, want, old, start = mine[step, rank], its[step, rank], mine[step - 1, rank], its[step - 1, rank]
    if same(want, start):
        reason, rule = found(plan, step)
        change = "changes" if len(ranks) == 1 else "change"
        return f"in step {step} {reason}, and {ranks_in_words(ranks)} {change} the weights nevertheless{rule}"
    if torch.equal(got, old):
        return f"in step {step} nothing is inf or NaN on any rank, and rank {rank} makes no step"
    ratio = ((got - old) / (want - start)).median().item()
    return (
        f"in step {step} rank {rank}'s weights are not those of a step with unscaled gradients: they move {ratio:.6g} "
        "times as far"
    )


def found(plan, step):
    """The reason why no rank steps, and what follows for one that does."""
    if step - 1 not in plan.planted:
        rank, then = plan.again
        return f"rank {rank} tells the others what it did in step {then + 1}, when it had an inf or NaN", FROM_THAT
    each = [f"rank {rank} has {value}" for rank, value in sorted(plan.planted[step - 1].items())]
    return f"{' and '.join(each)} in the gradient of its parameter {(step - 1) % 2}", ""


FROM_THAT = (
    ". The decision must come from what is sent, and that must say whether this rank has an overflow: a barrier says "
    "nothing, and memory in common is not to be had between processes"
)


def number(what, plan, step, ranks, mine, its):
    (rank, *_) = ranks
    happened = "a gradient overflows" if step - 1 in plan.planted else "no gradient overflows"
    return (
        f"after step {step} {what} of rank {rank} is {mine[step, rank]:g}, where {its[step, rank]:g} is right. In this "
        f"step {happened}; the window is {plan.window}, and good steps are counted since the scale last changed"
    )


def draw(plan, rank, mine, its):
    from .scale_picture import scales  # only now: matplotlib takes its time

    return scales(*([scale for (_, r), scale in each.items() if r == rank][1:] for each in (mine, its)), plan.planted)


class OneNumber(Target):
    name = "bytes"

    def judge(self, exercise, trial, right):
        plan = trial.case.facts
        for rank, program in enumerate(trial.run.record.programs):
            calls = [entry.transfer for entry in program if isinstance(entry, Issue)]
            if len(calls) > plan.steps:
                raise Wrong(
                    f"rank {rank} makes {many(len(calls), 'call')} of torch.distributed in {plan.steps} steps, where "
                    "one a step is enough: whether there is an overflow in any gradient of any rank",
                    draw_traffic(trial),
                )
            largest = max(map(size, calls), default=0)
            if largest > NBYTES:
                raise Wrong(
                    f"rank {rank} puts {largest:,} bytes into one {calls[0].name}, where one number of at most "
                    f"{NBYTES} is enough: what is inf or NaN each rank sees for itself; only whether there is any must "
                    "be shared",
                    draw_traffic(trial),
                )


def size(transfer):
    """What one rank puts in."""
    if transfer.name in SIZE_IS_OF_ALL:
        return transfer.nbytes // len(transfer.ranks)
    return sum(transfer.nbytes.values()) if isinstance(transfer.nbytes, dict) else transfer.nbytes


SKIP = "    if overflow:\n        return scale / 2, 0\n"
SHARE = "dist.all_reduce(overflow, dist.ReduceOp.MAX)  # every rank asks, whatever it has found"
UNSCALE = "parameter.grad /= scale"
GROW = "    if good_steps + 1 == window:\n        return scale * 2, 0\n"
ANY = "if any has an inf or NaN none steps: a model of which one part has made a step, and another has not, is none"


@exercise(
    title="A loss scaler for all ranks",
    minutes=10,
    difficulty=3,
    worlds=worlds,
    program=train,
    follows=False,  # a flag says the same, whatever it is multiplied by: what is said again takes its place
    targets=[
        Own("neither torch's scaler nor the library's", HERE, SOLVED),
        Each(
            "steps",
            "an inf or NaN on one rank of 1, 2, 3 or 4: no rank steps; all other steps are taken, with unscaled "
            "gradients",
            0,
            weights,
        ),
        Each(
            "scale",
            "that of torch.amp.GradScaler, over 24 steps with overflows: growth 2, backoff 1/2, several windows",
            1,
            partial(number, "the scale"),
            draw,
        ),
        Each("good steps", "its count, too, also from 2 on", 2, partial(number, "the count")),
        OneNumber("one number (at most 8 bytes) a step, in one call, which says whether this rank has an overflow"),
    ],
    mistakes=[
        mistake(f"Each rank decides for itself here. The decision is all ranks' in common: {ANY}", SHARE, "pass"),
        mistake(
            f"All ranks must have an inf or NaN here. The decision is all ranks' in common: {ANY}",
            "dist.ReduceOp.MAX",
            "dist.ReduceOp.MIN",
        ),
        mistake(
            f"Rank 0 decides here. The decision is all ranks' in common: {ANY}", SHARE, "dist.broadcast(overflow, 0)"
        ),
        mistake(
            "The ranks are asked once for each parameter, and some have more of them than others: once for all is "
            "enough",
            "            overflow.fill_(1)\n",
            f"            overflow.fill_(1)\n        {SHARE}\n",
            f"    {SHARE}\n    if overflow",
            "    if overflow",
        ),
        mistake(
            "A rank without gradients has to say so, too: the others wait for its call",
            "    overflow = torch.zeros(1)\n",
            "    overflow = torch.zeros(1)\n    if not parameters:\n        return scale, good_steps + 1\n",
        ),
        mistake(
            "The parameters of the first group alone are looked at: an optimizer may have several",
            'for group in optimizer.param_groups for p in group["params"]',
            'for p in optimizer.param_groups[0]["params"]',
        ),
        mistake(
            "All ranks must make the call that shares the decision, whatever they have found: one that returns before "
            "it leaves the others waiting",
            "overflow.fill_(1)",
            "return scale / 2, 0",
        ),
        mistake("A step with inf or NaN is made: now weights are inf or NaN, and will stay so", SKIP, ""),
        mistake(
            "Gradients are made zero, and the step is made: momentum moves the weights also with gradients of zero. Do "
            "not call optimizer.step() at all",
            SKIP,
            "    if overflow:\n        optimizer.zero_grad(set_to_none=False)\n        optimizer.step()\n"
            "        return scale / 2, 0\n",
        ),
        mistake("The gradients are not unscaled: they are `scale` times too large", UNSCALE, "pass"),
        mistake("The gradients are divided by the scale twice", UNSCALE, f"{UNSCALE}**2"),
        mistake(
            "That is the precision of 16 bits. Unscale in fp32",
            UNSCALE,
            "parameter.grad.copy_(parameter.grad.half() / scale)",
        ),
        mistake("On overflow the scale is halved", "scale / 2, 0", "scale, 0"),
        mistake("The count begins anew at each overflow", "scale / 2, 0", "scale / 2, good_steps"),
        mistake(
            "The step that makes the window full counts: the scale is doubled in it, not in the next",
            "good_steps + 1 == window",
            "good_steps == window",
        ),
        mistake(
            "The scale goes on growing: the count begins anew when it has grown",
            GROW,
            "    if good_steps + 1 >= window:\n        return scale * 2, window\n",
        ),
        mistake(
            "They are counted since the scale last changed: when it has grown, too, the count begins anew",
            GROW,
            "    if (good_steps + 1) % window == 0:\n        return scale * 2, good_steps + 1\n",
        ),
    ],
    hints=[
        "Three things happen in each step: gradients are divided by the scale; all ranks agree whether there is an "
        "inf or NaN; then either the step is taken, or not. The scale is changed last.",
        "gradient.isfinite().all() says it for one gradient. Put 0 or 1 into a tensor, and let all ranks have the "
        "largest: dist.all_reduce(overflow, dist.ReduceOp.MAX). Every rank must make this call, whatever it has "
        "found.",
        "On overflow: return scale / 2, 0. Do not zero the gradients and step: momentum and Adam move weights also "
        "then.",
        "Else: step, and good_steps + 1. If that is the window, return scale * 2, 0; else scale, good_steps + 1.",
    ],
    why="This is torch.amp.GradScaler, and what DeepSpeed and Megatron-LM add to it: the decision of all ranks. In a "
    "run of weeks some steps overflow, by design: the scale is tried upwards until one does.",
)
def scaled_step(optimizer, scale, good_steps, window):
    """Make a step with gradients that are ``scale`` times too large, or skip it; return the next (scale, good_steps).

    Each rank has a part of the model. If any gradient of any rank is inf or NaN, no rank steps, and the scale is
    halved. After ``window`` good steps in a row it is doubled; ``good_steps`` counts them, since it last changed.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    overflow = torch.zeros(1)
    for parameter in parameters:
        # ? Unscale the gradient. Is there an inf or NaN in it?
        parameter.grad /= scale
        if not parameter.grad.isfinite().all():
            overflow.fill_(1)
    # ? What do the other ranks say?
    dist.all_reduce(overflow, dist.ReduceOp.MAX)  # every rank asks, whatever it has found
    # ? Step, or skip; and what is the scale of the next step?
    if overflow:
        return scale / 2, 0
    optimizer.step()
    if good_steps + 1 == window:
        return scale * 2, 0
    return scale, good_steps + 1
