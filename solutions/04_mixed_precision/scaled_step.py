"""A step of fp16 training whose decision and whose clipping all ranks share, by one number.

Each rank has a part of the model here, as in ZeRO, tensor and pipeline parallelism: one rank's inf is in no other's
gradients, and the norm is that of all of them.

    sum of squares    not finite: somebody has an inf or NaN, nobody steps
                      finite:     its root is the norm
"""

from functools import partial

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Own, Target, Waits, Wrong, draw_traffic, exercise, many, mistake
from tinydist.rules import ranks_in_words
from tinydist.tracing.record import SIZE_IS_OF_ALL, Issue

from .chapter import HERE, SOLVED
from .parts import INF, Plan, by_turns, norm_of, train

NBYTES = 8  # one number
SIZES = [(2, 24), (3, 18), (4, 12)]  # ranks, steps


def test_cases():
    plans = [("overflows on single ranks", Plan(ranks, by_turns(ranks), steps)) for ranks, steps in SIZES]
    plans += [
        ("overflows, window 1", Plan(2, by_turns(2), steps=12, window=1)),
        ("overflows, scale 1.0, window 5", Plan(2, by_turns(2), window=5, scale=1.0)),
        ("no overflow, 2 good steps before the first", Plan(2, steps=8, good_steps=2)),
        ("gradients shorter than max_norm", Plan(3, by_turns(3), steps=6, max_norm=100.0)),
        ("what rank 1 tells the others changed on the way in step 5", Plan(3, {2: {1: INF}}, steps=5, again=(1, 2))),
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

    def concerns(self, trial, exercise):
        """What is said again is one call of each step: of two it would be only the first."""
        plan = trial.case.facts
        return super().concerns(trial, exercise) and not (plan.again and max(map(len, made(trial))) > plan.steps)

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
    norm, p = norm_of(plan, step - 1), plan.ranks
    reasons = {
        max(
            1.0, norm / plan.max_norm
        ): f": that far without clipping. The norm of all is {norm:.3g}, and max_norm {plan.max_norm:g}",
        1 / p: f". There are {p} ranks: is max_norm, or the gradient, divided by their number?",
        float(p): f". There are {p} ranks: is max_norm, or the gradient, multiplied by their number?",
        p**0.5: f". That is the root of {p}, the number of ranks: squares are summed over them, and not averaged",
        -1.0: ", the wrong way",
    }
    why = next((words for times, words in reasons.items() if times != 1 and abs(ratio / times - 1) < 1e-4), "")
    return (
        f"in step {step} rank {rank}'s weights are not those of a step with unscaled and clipped gradients: they move "
        f"{ratio:.6g} times as far{why}"
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
        f"{growth(plan, step, rank, mine, its)}"
    )


def growth(plan, step, rank, mine, its):
    """After how many good steps the scale grows here."""
    good = plan.good_steps if step <= plan.window else 0
    for earlier in range(1, step):
        good = 0 if its[earlier, rank] != its[earlier - 1, rank] else good + 1
    if mine[step, rank] == 2 * its[step, rank] and step - 1 not in plan.planted:
        return f". Here it grows after {many(good + 1, 'good step')} since the last overflow or growth"
    later = next(
        (at - step for at in range(step + 1, step + 3) if mine.get((at, rank)) == 2 * mine[at - 1, rank]), None
    )
    if its[step, rank] == 2 * mine[step, rank] and later:
        return (
            f". Here it grows {many(later, 'step')} later: is this step counted, before it is compared with the window?"
        )
    return (
        ". Here it does not grow in the step that fills the window" if its[step, rank] == 2 * mine[step, rank] else ""
    )


def draw(plan, rank, mine, its):
    from .scale_picture import scales  # only now: matplotlib takes its time

    return scales(*([scale for (_, r), scale in each.items() if r == rank][1:] for each in (mine, its)), plan.planted)


class OneNumber(Target):
    name = "bytes"

    def judge(self, exercise, trial, right):
        plan = trial.case.facts
        for rank, calls in enumerate(made(trial)):
            if len(calls) > plan.steps:
                raise Wrong(
                    f"rank {rank} makes {many(len(calls), 'call')} of torch.distributed in {plan.steps} steps, where "
                    "one a step is enough: a sum of squares says both whether to step and how much to clip",
                    draw_traffic(trial),
                )
            *_, numbers = trial.returned[rank][-1]
            if numbers > 1:
                raise Wrong(
                    f"rank {rank} puts {numbers} numbers into one {calls[0].name}, where one is enough: a sum of "
                    "squares that is not finite says by itself that some rank has an inf or NaN",
                    draw_traffic(trial),
                )
            largest = max(map(size, calls), default=0)
            if largest > NBYTES:
                raise Wrong(
                    f"rank {rank} puts {largest:,} bytes into one {calls[0].name}, where one number of at most "
                    f"{NBYTES} is enough: a sum over all gradients of this rank",
                    draw_traffic(trial),
                )


def made(trial):
    """The calls of each rank."""
    return [[each.transfer for each in program if isinstance(each, Issue)] for program in trial.run.record.programs]


def size(transfer):
    """What one rank puts in."""
    if transfer.name in SIZE_IS_OF_ALL:
        return transfer.nbytes // len(transfer.ranks)
    return sum(transfer.nbytes.values()) if isinstance(transfer.nbytes, dict) else transfer.nbytes


SHARE = "dist.all_reduce(squares)  # every rank takes part, whatever it has found"
SKIP = "    if not squares.isfinite():\n        return scale / 2, 0\n"
FACTOR = "min(1.0, max_norm / squares.sqrt().item())"
GROW = "    if good_steps + 1 == window:\n        return scale * 2, 0\n"
ANY = "if any has an inf or NaN none steps: a model of which one part has made a step, and another has not, is none"


@exercise(
    title="Skip together, clip together: one number",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    check_communication=False,  # of what is said only the sum is known: what is said again takes its place
    targets=[
        Own("neither torch's scaler nor the library's", HERE, SOLVED),
        Waits("whatever is started is waited for"),
        Each(
            "steps",
            "an inf or NaN on one rank of 1, 2, 3 or 4: no rank steps; all other steps are taken, with gradients "
            "unscaled, and clipped by the norm of all ranks' gradients together",
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
        OneNumber("one number (at most 8 bytes) a step, in one call, for the decision and for the norm"),
    ],
    mistakes=[
        mistake(
            f"Each rank decides and clips for itself here, by its own gradients. Both are all ranks' in common: {ANY}",
            SHARE,
            "pass",
        ),
        mistake(
            "A rank without gradients has to say so, too: the others wait for its call",
            "    squares = torch.zeros(1)\n",
            "    squares = torch.zeros(1)\n    if not parameters:\n        return scale, good_steps + 1\n",
        ),
        mistake(
            "Gradients shorter than max_norm come out with just that norm. Either they were not unscaled before they "
            "were clipped, or max_norm / norm is used where it is above 1, too",
            FACTOR,
            "max_norm / squares.sqrt().item()",
        ),
        mistake(
            "Gradients are clipped before they are unscaled: the norm is `scale` times too large, and steps too short",
            FACTOR,
            "min(1.0, max_norm / (scale * squares.sqrt().item()))",
        ),
        mistake(
            "Each rank clips by the norm of its own gradients. The norm is that of all ranks' gradients together, the "
            "root of the sum that is shared",
            SHARE,
            "own = squares.clone()\n    dist.all_reduce(squares)",
            FACTOR,
            "min(1.0, max_norm / own.sqrt().item())",
        ),
        mistake(
            "Gradients are made zero, and the step is made: momentum moves the weights also with gradients of zero. Do "
            "not call optimizer.step() at all",
            SKIP,
            "    if not squares.isfinite():\n        optimizer.zero_grad(set_to_none=False)\n        optimizer.step()\n"
            "        return scale / 2, 0\n",
        ),
        mistake(
            "The norms of the ranks are added up. Squares are what adds up: the norm of all is the root of the sum of "
            "their squares",
            SHARE,
            "squares.sqrt_()\n    dist.all_reduce(squares)\n    squares.square_()",
        ),
        mistake(
            "Good steps are counted since the scale last changed: when it has grown, too, the count begins anew",
            GROW,
            "    if (good_steps + 1) % window == 0:\n        return scale * 2, good_steps + 1\n",
        ),
    ],
    hints=[
        "Clipping needs the norm of all gradients of all ranks: the root of a sum of squares. What becomes of such a "
        "sum when one of the squares is inf or NaN?",
        "Add up gradient.square().sum() over this rank's gradients, after they are unscaled, and all_reduce the sum. "
        "Every rank must make this call, whatever it has found.",
        "If the sum is not finite: return scale / 2, 0. Do not zero the gradients and step: momentum and Adam move "
        "weights also then. Else multiply all gradients by max_norm / norm, if that is less than 1.",
        "Then step, and count: good_steps + 1. If that is the window, return scale * 2, 0; else scale, good_steps + 1.",
    ],
    why="The norm had to be shared anyway, and it brings the decision along for nothing. A sum is not finite as soon "
    "as one of its parts is not: that is also why DDP, which averages gradients, needs no shared decision.",
)
def scaled_step(optimizer, scale, good_steps, window, max_norm):
    """Make a step with gradients that are ``scale`` times too large, or skip it; return the next (scale, good_steps).

    Each rank has a part of the model. If any gradient of any rank is inf or NaN, no rank steps, and the scale is
    halved. Otherwise the gradients of all ranks together are clipped to a norm of ``max_norm`` at most, and all ranks
    step. After ``window`` good steps in a row the scale is doubled; ``good_steps`` counts them, since it last changed.
    Each rank may send a single number in each step.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    squares = torch.zeros(1)
    for parameter in parameters:
        # ? Unscale the gradient. What does this rank have to tell the others of it?
        parameter.grad /= scale
        squares += parameter.grad.square().sum()
    # ? What have all ranks together? It says whether to skip, and how much to clip.
    dist.all_reduce(squares)  # every rank takes part, whatever it has found
    # ? Skip, or clip and step; and what is the scale of the next step?
    if not squares.isfinite():
        return scale / 2, 0
    factor = min(1.0, max_norm / squares.sqrt().item())
    for parameter in parameters:
        parameter.grad *= factor
    optimizer.step()
    if good_steps + 1 == window:
        return scale * 2, 0
    return scale, good_steps + 1
