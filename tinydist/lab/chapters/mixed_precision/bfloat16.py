"""Rounding to bf16 by hand: bf16 is the upper half of fp32, and what is cut off decides.

    s eeeeeeee mmmmmmm | mmmmmmmmmmmmmmmm       < half: down    > half: up    = half: to the even upper half

Numbers with a sign bit of 0 are in the order of their bits, so rounding up is adding 1 to the upper half: it carries
into the exponent, and from the largest number to infinity.
"""

from functools import partial

import torch

from ...alone import copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...values import kind
from ...verdict import Property
from .casts import CastsNoted, no_cast
from .own_work import own_work
from .rounding_mistakes import MISTAKES, same

STRIDE = 151  # of the upper halves that are tried


def of_bits(upper, lower):
    """float32 numbers with each of ``upper`` before each of ``lower``."""
    return (torch.tensor(upper)[:, None] << 16 | torch.tensor(lower)).flatten().to(torch.int32).view(torch.float32)


def both_signs(uppers):
    return [*uppers, *(0x8000 + upper for upper in uppers)]


NORMAL = both_signs(range(0x80, 0x7F7F, STRIDE))
NUMBERS = {
    "numbers that are no ties": of_bits(NORMAL, [0, 1, 0x1234, 0x7FFF, 0x8001, 0xC000, 0xFFFF]),
    "numbers that are ties": of_bits(NORMAL, [0x8000]),
    "subnormals and zeros": of_bits(both_signs(range(0x80)), [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]),
    "numbers near the largest": of_bits(both_signs([0x7F7E, 0x7F7F]), [0, 0x7FFF, 0x8000, 0x8001, 0xFFFF]),
    "inf and NaN": of_bits(both_signs([0x7F80, 0x7FBF, 0x7FC0, 0x7FFF]), [0, 1, 0x7FFF, 0x8000, 0xFFFF]),
}
SHAPES = {
    "a single number": torch.tensor(1.01),
    "no numbers": torch.empty(0),
    "a transposed 2 x 3": torch.linspace(-1, 1, 6).view(3, 2).T,
}


def cases():
    for about, numbers in {**SHAPES, **NUMBERS}.items():
        yield input_of(partial(copied, (numbers,)), about, numbers)


def properties(answer):
    watched = Watched(answer)
    calls = CastsNoted(watched, cases())
    nearest, ties, small, large, none = ((lambda case, about=about: case.about == about) for about in NUMBERS)
    yield Property("runs", "float32 of the shape of x comes back, and x stays", lambda: came_back(calls))
    yield Property("own work", "not the library's", calls.together(own_work(watched)))
    yield Property("by hand", "no tensor of 16-bit numbers", calls.each(no_cast))
    yield Property("nearest", "to the closer of the two neighbors", calls.each(rounded, nearest))
    yield Property("ties", "from the middle, to the even one", calls.each(rounded, ties))
    yield Property("subnormals", "as all others, and zeros keep their sign", calls.each(rounded, small))
    yield Property("overflow", "what rounds beyond the largest number is inf", calls.each(rounded, large))
    yield Property("inf and NaN", "inf stays inf, NaN stays NaN", calls.each(rounded, none))


def came_back(calls):
    calls.end()
    calls.each(form)()


def form(trial):
    (given,), got, before = trial.arguments[0], trial.returned[0], trial.case.expected
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"it returned {kind(got)}, where a tensor is right")
    if got.dtype != torch.float32:
        have = str(got.dtype).removeprefix("torch.")
        raise Wrong(
            f"it returned {have}, where float32 is right: look at the bits as float32 again, .view(torch.float32)"
        )
    if got.shape != before.shape:
        raise Wrong(f"the result has shape {list(got.shape)}, where {list(before.shape)} is right")
    if not same(given, before).all():
        raise Wrong("x itself was changed: view() shares its memory. Work on new numbers, not with += or &=")


def rounded(trial):
    got, x = trial.returned[0], trial.case.expected
    right = x.bfloat16().float()
    wrong = ~same(got, right)
    if wrong.any():
        mistakes = MISTAKES[trial.case.about]
        known = (words for words, made in mistakes.items() if same(got, made(x)).all())
        place = min(wrong.nonzero().flatten().tolist(), key=lambda i: far_from_one(x[i]))
        example = (
            f"x = {shown(x[place])} becomes {shown(got[place])}, where {shown(right[place], certain=False)} is right"
        )
        raise Wrong(f"{next(known, f'{int(wrong.sum())} of {len(x)} numbers are wrong')}.\n{example}")


def far_from_one(number):
    """The number that is easiest to read is shown."""
    return abs((number.view(torch.int32).item() >> 23 & 0xFF) - 127)


def shown(number, certain=True):
    """``certain``: its bits count. Those of the right NaN may be any."""
    if number.isnan() and not certain:
        return "any NaN"
    bits = f"{number.view(torch.int32).item() & 0xFFFFFFFF:032b}"
    return f"{number.item():.9g} ({bits[0]} {bits[1:9]} {bits[9:16]}|{bits[16:]})"


@exercise(
    chapter="04_mixed_precision",
    title="Round to bf16 by hand",
    minutes=5,
    difficulty=1,
    targets={
        "values": "those of torch's cast, bit for bit: to the nearest, ties to even; subnormals, signed zeros, what "
        "overflows to inf, inf and NaN",
        "form": "float32 of the shape of x; x itself stays",
        "by hand": "no cast to bfloat16 or float16, and no tensor of theirs; integer arithmetic on the bits is all it "
        "takes",
    },
    hints=[
        "bf16 is the upper 16 bits of fp32. Clearing the lower 16 rounds towards zero. What can you add first, so that "
        "the clearing rounds to the nearest?",
        "With a half (0x8000) added, all that is at least a half carries into the upper bits. Only ties are wrong "
        "then: they must carry only if the upper half is odd.",
        "Add 0x7FFF, and 1 more if the last bit of the upper half, (bits >> 16) & 1, is set. Then clear the lower "
        "half: & -0x10000, which is 0xFFFF0000 as an int32.",
        "The carry also makes inf of what is too large, and leaves inf alone. Only NaN goes wrong: "
        "torch.where(x.isnan(), x, rounded).",
    ],
    why="The tensor cores of every accelerator round like this, billions of times in a step. Ties to even is what "
    "keeps sums of many rounded numbers from drifting to one side.",
    check=properties,
)
def round_to_bfloat16(x):
    """Round the float32 tensor ``x`` to the numbers of bf16, and return them as float32: to the nearest, ties to even.

    No tensor of 16-bit numbers may help: bf16 is the upper half of fp32, and integer arithmetic on the bits is all it
    takes. What is too large becomes inf; NaN stays NaN.
    """
    bits = x.view(torch.int32)
    # What do you add, so that clearing the lower half rounds to the nearest? And so that ties go to the even one?
    # Clear the lower half, and look at the bits as float32 again.
    # Which x come out wrong?
    raise NotImplementedError
