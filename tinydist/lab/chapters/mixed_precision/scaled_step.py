"""A dynamic loss scaler, and its decision, which all ranks share.

Each rank has a part of the model here, as in ZeRO, tensor and pipeline parallelism: one rank's inf is in no other's
gradients. The reference is torch.amp.GradScaler in one process that has all parts (parts.py).
"""

import math
from functools import partial

import torch
import torch.distributed as dist

from ....simulator.matching import ranks_in_words
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import Case
from ...values import close, kind
from ...verdict import Property
from .decision import one_number, put_in, tells
from .own_work import own_work
from .parts import CALM, ONE, Plan, by_turns, optimizer_of, part, plant
from .scales import same_count, same_scale
from .scenarios import Scenarios


def plans():
    yield "no overflow", Plan(1, CALM)
    yield "overflows", Plan(1, ONE)
    for ranks in (2, 3, 4):
        yield "overflows on single ranks", Plan(ranks, by_turns(ranks))
    yield "window 1", Plan(3, by_turns(3), window=1)
    yield "scale 1.0, window 5", Plan(2, by_turns(2), window=5, scale=1.0)
    yield "2 good steps before the first", Plan(1, CALM, good_steps=2)


def cases():
    for about, plan in plans():
        yield Case(plan.ranks, lambda rank, plan=plan: (plan,), about, expected=plan)


def train(answer, plan):
    """On each rank: (weights, scale, good steps, what it has put into collectives) after each step."""
    rank, said = dist.get_rank(), put_in(dist.group.WORLD)
    parameters = part(rank)
    optimizer, scale, good_steps, history = optimizer_of(parameters), plan.scale, plan.good_steps, []
    for step in range(plan.steps):
        plant(parameters, rank, step, scale, plan.planted.get(step, {}))
        given = scale
        scale, good_steps = pair(answer(optimizer, scale, good_steps, plan.window), rank, step)
        a_next_scale(given, scale, good_steps, rank, step)
        history.append(([p.detach().clone() for p in parameters], scale, good_steps, ", ".join(said)))
        said.clear()
    return history


def pair(returned, rank, step):
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        what = kind(returned)
        raise Wrong(f"in step {step + 1} rank {rank} returned {what}, where a pair is right: scale, good_steps")
    scale, good_steps = (each.item() if isinstance(each, torch.Tensor) else each for each in returned)
    if not isinstance(scale, int | float) or not isinstance(good_steps, int | float):
        raise Wrong(
            f"in step {step + 1} rank {rank} returned {returned!r}, where two numbers are right: scale, good_steps"
        )
    return scale, good_steps


def a_next_scale(given, scale, good_steps, rank, step):
    following = (given / 2, given, given * 2)
    if scale not in following:
        swapped = ". The scale goes first: scale, good_steps" if good_steps in following else ""
        raise Wrong(
            f"in step {step + 1} rank {rank} returned the scale {scale:g}, and {given:g} was given: the next one "
            f"is half of it, the same, or twice as much{swapped}"
        )


def properties(answer):
    watched = Watched(answer)
    trials = Scenarios(partial(train, watched), cases(), right_states)
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks without an error", trials.end)
    yield Property("own work", "neither torch's scaler nor the library's", trials.each(own_work(watched)))
    yield Property("skips", "an inf or NaN on one rank: no step, on no rank", trials.each(skips))
    yield Property("steps", "all other steps are taken, with unscaled gradients", trials.each(steps))
    yield Property("scale", "that of torch.amp.GradScaler, step for step", trials.each(same_scale))
    yield Property("good steps", "counted since the scale changed, as it does", trials.each(same_count))
    yield Property("bytes", "one number a step", trials.each(one_number))
    yield Property("decision", "that number says what this rank has found", trials.each(tells))


def right_states(trial):
    for judge in (skips, steps, same_scale, same_count):
        if error := trial.found(judge):
            raise error


def before(trial, rank, step):
    return trial.returned[rank][step - 1][0] if step else [p.detach() for p in part(rank)]


def skips(trial):
    plan = trial.case.expected
    for step, planted in sorted(plan.planted.items()):
        moved = [
            rank
            for rank in range(plan.ranks)
            if not all(torch.equal(a, b) for a, b in zip(before(trial, rank, step), trial.returned[rank][step][0]))
        ]
        if moved:
            raise Wrong(
                f"in step {step + 1} {ranks_in_words(sorted(planted))} of {plan.ranks} "
                f"{'has' if len(planted) == 1 else 'have'} an inf or NaN in the gradients, and "
                f"{ranks_in_words(moved)} {'changes' if len(moved) == 1 else 'change'} the weights nevertheless: "
                f"{reason(trial, step, moved, planted)}"
            )


def reason(trial, step, moved, planted):
    if set(moved) - set(planted):
        return (
            "the decision is all ranks' in common. If any has an inf or NaN none steps: a model of which one part "
            "has made a step, and another has not, is none"
        )
    finite = all(w.isfinite().all() for rank in moved for w in trial.returned[rank][step][0])
    if finite:
        return (
            "they stay finite, but momentum moves them also with gradients of zero. Do not call optimizer.step() at all"
        )
    return "now they are inf or NaN, and will stay so"


def steps(trial):
    plan, right = trial.case.expected, trial.case.expected.reference
    for step in range(plan.steps):
        for rank in range(plan.ranks):
            got, wanted, old = trial.returned[rank][step][0], right[step][0][rank], before(trial, rank, step)
            if not all(close(a, b) for a, b in zip(got, wanted)):
                raise Wrong(f"in step {step + 1}, {explain(trial, rank, step, got, wanted, old)}")


def explain(trial, rank, step, got, wanted, old):
    if all(torch.equal(a, b) for a, b in zip(got, old)):
        return f"nothing is inf or NaN on any rank, and rank {rank} makes no step"
    scale = trial.returned[rank][step - 1][1] if step else trial.case.expected.scale
    ratio = ((got[0] - old[0]) / (wanted[0] - old[0])).median().item()
    if scale != 1 and math.isclose(ratio, scale, rel_tol=0.1):
        return f"rank {rank}'s weights move {scale:g} times too far, the scale: its gradients were not unscaled"
    if scale != 1 and math.isclose(ratio, 1 / scale, rel_tol=0.1):
        return f"rank {rank}'s weights move {scale:g} times too little, the scale: its gradients were divided twice"
    error, way = got[0] - wanted[0], wanted[0] - old[0]
    if error.norm() < 0.01 * way.norm():
        return (
            f"rank {rank}'s weights move as they should but for {error.norm() / way.norm():.1e} of the way: that is "
            "the precision of 16 bits. Unscale in fp32"
        )
    place = error.abs().argmax()
    return (
        f"rank {rank}'s weights are not those of a step with unscaled gradients: {got[0].view(-1)[place].item():.9g}, "
        f"where {wanted[0].view(-1)[place].item():.9g} is right"
    )


@exercise(
    chapter="04_mixed_precision",
    title="A loss scaler for all ranks",
    minutes=10,
    difficulty=3,
    targets={
        "skips": "an inf or NaN on one rank of 1, 2, 3 or 4: no rank steps",
        "scale": "that of torch.amp.GradScaler, over 24 steps with overflows: growth 2, backoff 1/2, several windows",
        "good steps": "its count, too, also from 2 on",
        "bytes": "one number (at most 8 bytes) a step, in one call, which says whether this rank has an overflow",
    },
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
    check=properties,
)
def scaled_step(optimizer, scale, good_steps, window):
    """Make a step with gradients that are ``scale`` times too large, or skip it; return the next (scale, good_steps).

    Each rank has a part of the model. If any gradient of any rank is inf or NaN, no rank steps, and the scale is
    halved. After ``window`` good steps in a row it is doubled; ``good_steps`` counts them, since it last changed.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    overflow = torch.zeros(1)
    for parameter in parameters:
        # Unscale the gradient. Is there an inf or NaN in it?
        raise NotImplementedError
    # What do the other ranks say?
    # Step, or skip; and what is the scale of the next step?
    raise NotImplementedError
