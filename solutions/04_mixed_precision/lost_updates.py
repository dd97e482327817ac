"""Which updates does a format swallow? Predicted from how far apart its numbers are.

--|---------|----.----|---------|--      weight + update is rounded back to the weight up to the middle
            w   w + spacing/2

spacing = 2^(exponent of w - mantissa bits); evenly down to zero below the lowest exponent; half as much below a
power of two. In the middle it goes to the even mantissa.
"""

import math

import torch

from tinydist.lab.author import Own, Wrong, alone, exercise, kind, mistake
from tinydist.precision import encode_bits

from .chapter import HERE, SOLVED, ByHand, Casts, Exactly
from .weights_and_updates import FORMATS, KINDS, sample

LENT = ["tinydist.precision.formats.Format"]  # an answer gets one, and asks for its properties


def test_cases():
    for about, make in KINDS.items():
        for f in FORMATS:
            yield alone(lambda make=make, f=f: sample(make, f), f"{f}, {about}", how={"observe": False})


def predicted(answer, weights, updates, format):
    shape, casts = weights.shape, Casts()
    with casts:
        got = answer(weights, updates, format)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong(f"it returned {kind(got)}, where two tensors are right: lost, steps")
    for name, tensor in zip(("lost", "steps"), got):
        if type(tensor) is not torch.Tensor or tensor.shape != shape:
            what = list(tensor.shape) if type(tensor) is torch.Tensor else kind(tensor)
            raise Wrong(f"{name} is {what}, where a tensor of shape {list(shape)} is right")
    lost, steps = got
    if steps.dtype == torch.bool and lost.dtype != torch.bool:
        raise Wrong("it returned (steps, lost), where lost goes first: lost, steps")
    if lost.dtype != torch.bool:
        raise Wrong(f"lost is of dtype {str(lost.dtype).removeprefix('torch.')}, where bool is right")
    if not (steps.double() == steps.double().floor()).all():
        raise Wrong("steps has numbers that are not whole: after how many updates is counted")
    return lost, steps.double(), casts.found


def saying(arguments, mine, right, wrong):
    w, u, format, place = *of(arguments, wrong[0]), wrong[0]
    says, is_ = ("kept", "lost") if right[place] else ("lost", "kept")
    exponent = math.frexp(w)[1] - 1 if w else format.lowest_exponent
    apart = math.copysign(2.0 ** (max(exponent, format.lowest_exponent) - format.mantissa_bits), u)
    near = w + apart / 2  # a number of the format on one side of a power of two alone
    beside = near if encode_bits(near, format).value == near else w + apart
    special = everywhere(arguments, wrong)
    if special:
        pass
    elif abs(u) == abs(beside - w) / 2:
        special = ": the sum is just in the middle, and goes to the one whose mantissa is even"
    elif abs(w) < format.smallest_normal:
        special = ". Below the smallest normal number the spacing is the same as just above it"
    return (
        f"The weight {w:.9g} and the update {u:.9g}: you say {says}, and it is {is_}. {format} has {beside:.9g} beside "
        f"{w:.9g}, and the update goes {abs(u / (beside - w)):.3g} of the way there{special}"
    )


def everywhere(arguments, wrong):
    """What all pairs that are wrong have in common, and others have not."""
    weights, updates, format = arguments[0].double(), arguments[1].double(), arguments[2]
    w, u, smallest = weights[wrong], updates[wrong], format.smallest_normal
    power = torch.frexp(weights).mantissa.abs() == 0.5
    if ((w.abs() == smallest) & (w * u < 0)).all():
        return (
            ". All that is wrong goes down from the smallest normal number: below that power of two numbers are as far "
            "apart as above, since the exponent ends there"
        )
    if (w == 0).all():
        return ". All that is wrong are weights of 0: beside 0 the spacing is that of the lowest exponent"
    if power[wrong].all():
        up, down = bool((w * u > 0).all()), bool((w * u < 0).all())
        if (w < 0).all() and bool((weights[power] > 0).any()):
            return ". All that is wrong are negative powers of two: it is towards 0 that numbers are closer"
        if up or down:
            return f". All that is wrong goes {'away from' if up else 'towards'} 0 at a power of two: " + (
                "there the spacing is the larger one" if up else "there numbers are twice as close"
            )
    return ""


def counted(arguments, mine, right, wrong):
    w, u, format, count, enough = *of(arguments, wrong[0]), mine[wrong[0]].item(), right[wrong[0]].item()
    pair = f"The weight {w:.9g} and the update {u:.9g} in {format}: you say {count:.0f} step{'s' * (count != 1)}"
    if count < 1 or (count == 1) == (enough > 1):
        return f"{pair}. An update that is kept needs 1 step, one that is lost more"
    if count < enough:
        return f"{pair}. After these, {w:.9g} {count * u:+.9g} is still rounded to {w:.9g}: more are needed"
    lost = right > 1
    if lost.any() and (mine[lost] - 2 * right[lost]).abs().max() <= 2 < mine[lost].max():
        return f"{pair}. That is the way to the next number. Half of it is enough: beyond the middle it is rounded up"
    return f"{pair}. One fewer is enough: {w:.9g} {(count - 1) * u:+.9g} is not rounded to {w:.9g}"


def of(arguments, place):
    weights, updates, format = arguments
    return weights[place].item(), updates[place].item(), format


HALF = "torch.where(closer, spacing / 2, spacing) / 2"
LOST = "(times > 1) | (times == 1) & even"


@exercise(
    title="Where updates vanish",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    program=predicted,
    targets=[
        Own("not the library's", HERE, SOLVED, lent=LENT),
        ByHand(
            "predicted",
            "from the spacing, without a tensor of 16-bit numbers; some updates need millions of steps",
        ),
        Exactly(
            "lost",
            "right for fp16, bf16, two of fp8 and a format of 10 bits; between powers of two, at powers of two, half "
            "way, below the smallest normal number",
            0,
            saying,
        ),
        Exactly("steps", "the smallest number of updates that changes the rounded weight", 1, counted),
    ],
    mistakes=[
        mistake(
            "The sign of the update is ignored: a negative one is less than any spacing. It is |update| that counts",
            LOST,
            f"(updates < 0) | {LOST}",
        ),
        mistake(
            "The update is compared with epsilon/2, which is half of the spacing at 1: at a weight it is 2^(exponent "
            "of the weight - mantissa bits)",
            HALF,
            "torch.full_like(weights, format.epsilon) / 2",
        ),
        mistake(
            "The update is compared with half of the spacing above the weight. Below a power of two numbers are twice "
            "as close, and some updates go that way",
            HALF,
            "spacing / 2",
        ),
        mistake(
            "The update is compared with |weight| epsilon/2. The spacing does not grow evenly with the weight: it "
            "doubles at each power of two, and is the same in between",
            HALF,
            "weights.abs() * format.epsilon / 2",
        ),
        mistake(
            "The update is compared with the whole spacing. The nearest number wins: more than half is enough",
            HALF,
            HALF.removesuffix(" / 2"),
        ),
        mistake(
            "Half way, all are lost, you say: a tie goes to the even mantissa, away from a weight whose own is odd",
            LOST,
            "times >= 1",
        ),
        mistake(
            "Half way, all are kept, you say: a tie goes to the even mantissa, and stays where that is the weight's",
            LOST,
            "times > 1",
        ),
        mistake(
            "The spacing goes on to shrink below the smallest normal number. Subnormals are evenly spaced: the "
            "exponent stays at format.lowest_exponent",
            "exponents - 1).clamp(min=format.lowest_exponent)",
            "exponents - 1)",
        ),
    ],
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
    why="In bf16 a weight of 1 swallows each update below 0.004 upwards, and below 0.002 downwards. Late in training "
    "nearly all are smaller. That is why the optimizer keeps fp32 copies: there they add up for as many steps as you "
    "have just computed.",
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
    # ? How far is it from the weight to the next number of the format?
    exponents = torch.where(weights == 0, format.lowest_exponent, exponents - 1).clamp(min=format.lowest_exponent)
    spacing = 2.0 ** (exponents.double() - format.mantissa_bits)
    # ? On the side to which the update points?
    a_power = (weights.abs() == spacing * 2**format.mantissa_bits) & (weights.abs() > format.smallest_normal)
    closer = a_power & (weights * updates < 0)
    # ? Which updates are too small to get there, or to the middle? And exactly in the middle?
    half = torch.where(closer, spacing / 2, spacing) / 2
    even = weights / spacing % 2 == 0
    times = half / updates.abs()
    lost = (times > 1) | (times == 1) & even
    # ? steps: how often does the update go into what it takes?
    steps = torch.where((times == times.floor()) & ~even, times, times.floor() + 1)
    return lost, steps.long()
