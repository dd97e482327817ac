"""Which updates does a format swallow? Predicted from how far apart its numbers are.

--|---------|----.----|---------|--      weight + update is rounded back to the weight up to the middle
            w   w + spacing/2

spacing = 2^(exponent of w - mantissa bits); evenly down to zero below the lowest exponent; half as much below a
power of two. In the middle it goes to the even mantissa.
"""

import math
from functools import partial

import torch

from ....precision import bits_of
from ...alone import input_of
from ...errors import Wrong
from ...exercise import exercise
from ...limit import TooLong
from ...own_work import Watched
from ...values import kind
from ...verdict import Property
from .casts import CastsNoted, no_cast
from .own_work import own_work
from .spacing import MISTAKES, gap
from .weights_and_updates import ALL, KINDS, sample


def cases():
    for about, make in KINDS.items():
        for format in ALL:
            yield input_of(partial(sample, make, format), f"{format}, {about}")


def properties(answer):
    watched = Watched(answer)
    calls = CastsNoted(watched, cases())
    between, powers_of_two, half, tiny, _ = (lambda case, about=about: case.about.endswith(about) for about in KINDS)
    yield Property("runs", "two tensors come back: lost (bool), steps (whole numbers)", lambda: came_back(calls))
    yield Property("own work", "not the library's", calls.together(own_work(watched)))
    yield Property("predicted", "no tensor of 16-bit numbers", calls.each(no_cast))
    yield Property("lost", "what is below half of the spacing", calls.each(right_lost, between))
    yield Property("powers", "below a power of two, the spacing is half as much", calls.each(right_lost, powers_of_two))
    yield Property("ties", "half way, to the even mantissa", calls.each(right_lost, half))
    yield Property("subnormals", "below the smallest normal number, the spacing stays", calls.each(right_lost, tiny))
    yield Property("steps", "after so many such updates the weight changes", calls.each(right_steps))


def came_back(calls):
    try:
        calls.end()
    except Wrong as wrong:
        if any(isinstance(trial.error, TooLong) for trial in calls.all):
            raise Wrong(f"{wrong}\nSome updates take millions of steps: compute how many, do not count up") from None
        raise
    calls.each(form)()


def form(trial):
    got, shape = trial.returned[0], trial.arguments[0][0].shape
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong(f"it returned {kind(got)}, where two tensors are right: lost, steps")
    for name, tensor in zip(("lost", "steps"), got):
        if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
            what = list(tensor.shape) if isinstance(tensor, torch.Tensor) else kind(tensor)
            raise Wrong(f"{name} is {what}, where a tensor of shape {list(shape)} is right")
    lost, steps = got
    if steps.dtype == torch.bool and lost.dtype != torch.bool:
        raise Wrong("it returned (steps, lost), where lost goes first: lost, steps")
    if lost.dtype != torch.bool:
        raise Wrong(f"lost is of dtype {str(lost.dtype).removeprefix('torch.')}, where bool is right")
    if not (steps.double() == steps.double().floor()).all():
        raise Wrong("steps has numbers that are not whole: after how many updates is counted")


def right_lost(trial):
    weights, updates, format = sample_of(trial)
    lost, _ = trial.returned[0]
    right = torch.tensor([stays(w, u, format) for w, u in zip(weights.tolist(), updates.tolist())])
    wrong = (lost != right).nonzero()
    if len(wrong):
        w, u = weights[wrong[0]].item(), updates[wrong[0]].item()
        says, is_ = ("kept", "lost") if right[wrong[0]] else ("lost", "kept")
        mistakes = MISTAKES[trial.case.about.partition(", ")[2]]
        if torch.equal(lost, ~right):
            mistakes = {"lost is inverted: you mark the updates that are kept": lambda *_: lost}
        known = (words for words, rule in mistakes.items() if torch.equal(lost, rule(weights, updates, format)))
        reason = next(known, f"{len(wrong)} of {len(right)} predictions are wrong")
        raise Wrong(
            f"{reason}.\nThe weight {w:.9g} and the update {u:.9g}: you say {says}, and it is {is_}. {format} has "
            f"{around(w, u, format)} beside {w:.9g}"
        )


def sample_of(trial):
    """As it was given: the answer may have written into it."""
    return trial.case.arguments(0)


def stays(w, u, format):
    return bits_of(w + u, format).value == w


def around(w, u, format):
    """The neighbor on the side of the update."""
    away = w == 0 or (u > 0) == (w > 0)
    magnitude = abs(w) + (1 if away else -1) * gap(torch.tensor(w), torch.tensor(u), format).item()
    return f"{math.copysign(magnitude, w or u):.9g}"


def right_steps(trial):
    (weights, updates, format), (lost, steps) = sample_of(trial), trial.returned[0]
    for w, u, gone, count in zip(weights.tolist(), updates.tolist(), lost.tolist(), steps.tolist()):
        pair = f"The weight {w:.9g} and the update {u:.9g} in {format}: you say {count:.0f} step{'s' * (count != 1)}"
        if (count == 1) == gone or count < 1:
            raise Wrong(f"{pair}, and lost = {gone}: an update that is kept needs 1 step, one that is lost more")
        if stays(w, count * u, format):
            raise Wrong(f"{pair}. After these, {w:.9g} {count * u:+.9g} is still rounded to {w:.9g}: more are needed")
        if not stays(w, (count - 1) * u, format):
            raise Wrong(f"{pair}. One fewer is enough: {w:.9g} {(count - 1) * u:+.9g} is not rounded to {w:.9g}")


@exercise(
    chapter="04_mixed_precision",
    title="Where updates vanish",
    minutes=30,
    difficulty=3,
    targets={
        "lost": "right for fp16, bf16, two of fp8 and a format of 10 bits; between powers of two, at powers of two, "
        "half way, below the smallest normal number",
        "steps": "the smallest number of updates that changes the rounded weight",
        "predicted": "from the spacing, without a tensor of 16-bit numbers; some updates need millions of steps",
    },
    hints=[
        "Between two powers of two, numbers are evenly spaced. torch.frexp gives the exponent; how far is it to the "
        "next number, with format.mantissa_bits of them after the leading 1?",
        "frexp counts from 1/2, so 1 has exponent 1 there. The spacing is 2.0 ** (exponent - 1 - mantissa_bits), and "
        "the exponent is never below format.lowest_exponent: max, or clamp.",
        "Rounding goes to the nearest, so an update of less than half the spacing is lost. Below a "
        "power of two (but not below format.smallest_normal) numbers are twice as close, so if the update "
        "points to zero there, that half is the gap. Less than half the gap is lost; exactly half if the weight's "
        "mantissa is even: weight / spacing is an even whole number.",
        "steps: updates add up to u, 2u, 3u ...; the first beyond half the gap counts, floor(half / |u|) + 1. If "
        "half / |u| is whole and the weight odd, that number itself. Compute in float64, which has room for all of "
        "this.",
    ],
    why="In bf16 a weight of 1 swallows each update below 0.004, and late in training nearly all are smaller. That "
    "is why the optimizer keeps fp32 copies: there they add up for as many steps as you have just computed.",
    check=properties,
)
def lost_updates(weights, updates, format):
    """Predict which updates are lost: ``weights + updates``, rounded to ``format``, is ``weights`` again.

    Return (lost, steps), two tensors: whether it is lost; and how many such updates a master weight, which is not
    rounded, must add up before the rounded weight changes (1 if the update is kept). ``weights`` are numbers of the
    format, updates are not 0, all float32. Do not try it, predict it: from the spacing of numbers at the weight.

    ``format`` has mantissa_bits, lowest_exponent, smallest_normal and epsilon. Its exponents are those of 2**e: 1 has
    0, and smallest_normal is 2.0**lowest_exponent. ``torch.frexp`` counts from 1/2, so there 1 has 1; and 0 has 0. It
    gives them as int32, and ``2.0 ** exponents`` is float32 then: make them .double() first.
    """
    weights, updates = weights.double(), updates.double()
    exponents = torch.frexp(weights).exponent  # weights = m * 2.0**exponents, with m from 1/2 to 1; of 0 it is 0
    # How far is it from the weight to the next number of the format?
    # On the side to which the update points?
    # Which updates are too small to get there, or to the middle? And exactly in the middle?
    # steps: how often does the update go into what it takes?
    raise NotImplementedError
