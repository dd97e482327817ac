"""Rounding to bf16 by hand: bf16 is the upper half of fp32, and what is cut off decides.

    s eeeeeeee mmmmmmm | mmmmmmmmmmmmmmmm       < half: down    > half: up    = half: to the even upper half

Numbers with a sign bit of 0 are in the order of their bits, so rounding up is adding 1 to the upper half: it carries
into the exponent, and from the largest number to infinity.
"""

import torch

from tinydist.lab.author import Own, Wrong, alone, exercise, kind, mistake

from .chapter import HERE, SOLVED, ByHand, Casts, Exactly

STRIDE = 151  # of the upper halves that are tried
A_NAN = 0x7FC00000  # one NaN is as good as another


def of_bits(uppers, lowers):
    """float32 numbers with each of ``uppers``, of both signs, before each of ``lowers``."""
    uppers = torch.tensor([*uppers, *(0x8000 + upper for upper in uppers)])
    return (uppers[:, None] << 16 | torch.tensor(lowers)).flatten().to(torch.int32).view(torch.float32)


NORMAL, AROUND = range(0x80, 0x7F7F, STRIDE), [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
NUMBERS = {
    "a single number": torch.tensor(1.01),
    "no numbers": torch.empty(0),
    "a transposed 2 x 3": torch.linspace(-1, 1, 6).view(3, 2).T,
    "numbers that are no ties": of_bits(NORMAL, [0, 1, 0x1234, 0x7FFF, 0x8001, 0xC000, 0xFFFF]),
    "numbers that are ties": of_bits(NORMAL, [0x8000]),
    "subnormals and zeros": of_bits(range(0x80), AROUND),
    "numbers near the largest": of_bits([0x7F7E, 0x7F7F], AROUND),
    "inf and NaN": of_bits([0x7F80, 0x7FBF, 0x7FC0, 0x7FFF], AROUND),
}


def test_cases():
    for about, numbers in NUMBERS.items():
        yield alone(lambda numbers=numbers: (numbers.clone(),), about, how={"observe": False})


def rounded(answer, x):
    """The bits of the result, in a row; and the casts on the way."""
    before, casts = x.clone(), Casts()
    with casts:
        got = answer(x)
    if type(got) is not torch.Tensor:
        raise Wrong(f"it returned {kind(got)}, where a tensor is right")
    if got.dtype != torch.float32:
        have = str(got.dtype).removeprefix("torch.")
        raise Wrong(
            f"it returned {have}, where float32 is right: look at the bits as float32 again, .view(torch.float32)"
        )
    if got.shape != x.shape:
        raise Wrong(f"the result has shape {list(got.shape)}, where {list(x.shape)} is right")
    if not torch.equal(bits(x), bits(before)):
        raise Wrong("x itself was changed: view() shares its memory. Work on new numbers, not with += or &=")
    return bits(got), casts.found


def bits(x):
    return torch.where(x.isnan(), A_NAN, x.contiguous().view(torch.int32)).flatten()


def example(arguments, mine, right, wrong):
    """Of a number that is easy to read."""
    (x,) = arguments
    given = x.flatten().view(torch.int32)
    place = min(wrong, key=lambda i: abs((given[i].item() >> 23 & 0xFF) - 127))
    want = "any NaN" if right[place] == A_NAN else shown(right[place])
    told = f"x = {shown(given[place])} becomes {shown(mine[place])}, where {want} is right"
    if any(mine[i] & 0xFFFF and right[i] != A_NAN for i in wrong):
        return f"{told}. Bits of the lower half are left: bf16 has the upper 16 alone"
    upper = [(given[i] & 0xFFFF).item() for i in wrong]
    if all(mine[i] == (given[i] & -0x10000) + 0x10000 for i in wrong):
        least = "less than" if max(upper) < 0x8000 else "no more than"
        return f"{told}. The upper half grows by 1, and what is cut off is {least} half"
    if all(mine[i] == given[i] & -0x10000 for i in wrong):
        most = "more than" if min(upper) > 0x8000 else "at least"
        return f"{told}. The upper half stays as it is, and what is cut off is {most} half"
    return told


def shown(number):
    digits = f"{number.item() & 0xFFFFFFFF:032b}"
    return f"{number.view(torch.float32).item():.9g} ({digits[0]} {digits[1:9]} {digits[9:16]}|{digits[16:]})"


RESULT = "torch.where(x.isnan(), x, rounded.view(torch.float32))"
LARGEST = "torch.finfo(torch.bfloat16).max"
BY_ITSELF = "The carry leads to inf by itself: let it"


@exercise(
    title="Round to bf16 by hand",
    minutes=20,
    difficulty=1,
    test_cases=test_cases,
    program=rounded,
    targets=[
        Own("not the library's", HERE, SOLVED),
        ByHand(
            "by hand",
            "no cast to bfloat16 or float16, and no tensor of theirs; integer arithmetic on the bits is all it takes",
        ),
        Exactly(
            "values",
            "those of torch's cast, bit for bit: to the nearest, ties to even; subnormals, signed zeros, what "
            "overflows to inf, inf and NaN. float32 of the shape of x; x itself stays",
            0,
            example,
        ),
    ],
    mistakes=[
        mistake(
            "Ties go away from zero: half was added whatever the upper half is. From an even one a tie goes down",
            "0x7FFF + odd",
            "0x8000",
        ),
        mistake(
            "Ties go towards zero: less than half was added. From an odd upper half a tie goes up", " + odd) &", ") &"
        ),
        mistake(
            "The lower half was cut off: that rounds towards zero. Above the middle, the neighbor above is closer",
            "bits + 0x7FFF + odd",
            "bits",
        ),
        mistake(
            "13 bits were cut off, and 10 of the mantissa are left, as in fp16. bf16 has 7: cut off 16",
            "(bits + 0x7FFF + odd) & -0x10000",
            "(bits + 0xFFF + (bits >> 13 & 1)) & -0x2000",
        ),
        mistake(
            "Subnormals became zero. They are bits as all others: the same addition rounds them",
            RESULT,
            f"torch.where(x.abs() < 2.0**-126, x * 0.0, {RESULT})",
        ),
        mistake(
            f"What is too large became the largest number. {BY_ITSELF}",
            RESULT,
            f"torch.where(x.isinf(), x, {RESULT}.clamp(-{LARGEST}, {LARGEST}))",
        ),
        mistake(
            "NaN was rounded like a number: that carried it to zero, or cut it down to inf. Keep NaNs apart",
            RESULT,
            "rounded.view(torch.float32)",
        ),
        mistake(
            "The lower half of a NaN was cut off, and with nothing in the upper half of its mantissa it is inf",
            "x.isnan(), x,",
            "x.isnan(), (bits & -0x10000).view(torch.float32),",
        ),
    ],
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
)
def round_to_bfloat16(x):
    """Round the float32 tensor ``x`` to the numbers of bf16, and return them as float32: to the nearest, ties to even.

    No tensor of 16-bit numbers may help: bf16 is the upper half of fp32, and integer arithmetic on the bits is all it
    takes. What is too large becomes inf; NaN stays NaN.
    """
    bits = x.view(torch.int32)
    # ? What do you add, so that clearing the lower half rounds to the nearest? And so that ties go to the even one?
    # ? Clear the lower half, and look at the bits as float32 again.
    # ? Which x come out wrong?
    odd = bits >> 16 & 1  # the last bit that stays
    rounded = (bits + 0x7FFF + odd) & -0x10000  # more than half carries, and half if the upper is odd
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
