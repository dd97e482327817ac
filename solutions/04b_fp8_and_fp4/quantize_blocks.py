"""Blocks of 4 bits: the scales of MXFP4, which are powers of two, and of NVFP4, which are e4m3 times one number."""

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake
from tinydist.lab.differences import close, simple

from .chapter import HERE, SOLVED


def numbers(rows, columns, seed=0, spread=0.0):
    generator = torch.Generator().manual_seed(seed)
    powers = spread * torch.randn(rows, columns, generator=generator)
    return torch.randn(rows, columns, generator=generator) * 2.0**powers


def ties():
    """Every number half way between two of e2m1, in blocks whose largest number is 6."""
    halves = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    return torch.cat([halves, -halves, halves, -halves]).repeat(2, 1)


def zero_block():
    x = numbers(2, 64, seed=4)
    x[0, :32] = 0.0
    return x


def small_block():
    """Its scale in e4m3 would be 1.4 times the smallest that there is, and is rounded down to it: 6 becomes 8.4."""
    x = numbers(2, 32, seed=2)
    x[0, 0] = 6 * 448.0
    x[1, 16:] *= 6 * 1.4 * 2.0**-9 / x[1, 16:].abs().max()
    return x


def test_cases():
    for kind, block in (("mx", 32), ("nv", 16)):
        made = {
            "normal numbers": lambda: numbers(4, 64),
            "numbers of very unlike sizes": lambda: numbers(8, 96, seed=1, spread=4.0),
            "ties": ties,
            "a largest number that is a power of two times 6": lambda: 6.0 * 2.0 ** torch.arange(-3, 5).repeat(2, 8),
            "a block whose scale is rounded far down": small_block,
            "a block of zeros": zero_block,
            "nothing but zeros": lambda: torch.zeros(2, 64),
        }
        for about, make in made.items():
            yield alone(lambda make=make, kind=kind: (make(), kind), f"{kind}, blocks of {block}: {about}")


NV = "(amax / 6 / tensor).to(torch.float8_e4m3fn).float() * tensor"
UP = "torch.ceil(torch.log2(amax.double() / 6))"


def of_blocks(trial, got, want, own, pick):
    """The scales come first; then, what e2m1 each value is."""
    (mine, scales), (right, right_scales) = trial.returned[0], quantize_blocks(*trial.case.arguments(0))
    x, kind = trial.case.arguments(0)
    if not close(scales, right_scales):
        times = scales / right_scales
        place = tuple((~torch.isclose(scales, right_scales, rtol=1e-4, atol=0)).nonzero()[0].tolist())
        amax = x.unflatten(1, (-1, 16 if kind == "nv" else 32))[place].abs().max()
        first = (
            f"scale {', '.join(map(str, place))} is {scales[place]:.6g}, and the block's largest magnitude {amax:.6g}"
        )
        if not amax:
            return f"{first}: a block of nothing but zeros has scale {right_scales[place]:g} in {kind}"
        if times.isfinite().all() and close(times, times.flatten()[0].expand(times.shape)):
            return f"the scales are {simple(times.flatten()[0].item())} times what is right, all of them: {first}"
        return f"{first}: {amax / scales[place]:.4g} times as much, where 6 is to be about the largest"
    block = x.shape[1] // scales.shape[1]
    if close(mine * scales.repeat_interleave(block, 1), right):
        return "the rounded values stand there: each is to be multiplied by the scale of its block"
    inverse = torch.where(scales == 0, 0.0, 1 / scales).repeat_interleave(block, 1)
    values, given = (mine * inverse).abs(), (x * inverse).abs()
    place = tuple((~torch.isclose(mine, right, rtol=1e-4)).nonzero()[0].tolist())
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    odd = (values[..., None] - grid).abs().amin(-1) > 1e-3
    if odd.any():
        return f"divided by its scale, {values[odd][0]:.6g} stands there, and that is no number of e2m1"
    value, it = (each[place].item() for each in (values, given))
    down = "rounded down" if value < it else "rounded up"
    nearest = (right * inverse).abs()[place].item()
    if close(value, nearest):
        return "the magnitudes are right, and signs are not: the rounded value has the sign of what was rounded"
    return f"divided by its scale, {it:.6g} is {down} to {value:.6g}, and {nearest:.6g} is the nearest"


def of_ties(trial, got, want, own, pick):
    if not str(trial.case).endswith(": ties"):
        return None
    return (
        "All these numbers are half way between two. A tie goes to the number with the even mantissa: 0, 1, 2 and 4 "
        "have it, and 0.5, 1.5, 3 and 6 do not"
    )


@exercise(
    title="Blocks that share a scale",
    minutes=25,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("not the library's", HERE, SOLVED),
        Values(
            "the numbers, and the scale of each block: for MX and for NV, also of zeros, of ties and of numbers of "
            "very unlike sizes",
            names=("the numbers", "the scales"),
            explain=[of_ties, of_blocks],
        ),
    ],
    mistakes=[
        mistake("The scale of MX is rounded up, so that no number is cut", UP, UP.replace("ceil", "floor")),
        mistake(
            "That is FLOOR, the rule of the specification, by which a block's largest number may be cut. Here the "
            "scale is rounded up: RCEIL",
            UP,
            "(torch.floor(torch.log2(amax.double())) - 2)",
        ),
        mistake(
            "The scale of MX is a power of two",
            f"2.0 ** {UP}",
            "amax.double() / 6",
        ),
        mistake(
            "Divide by the scale as it is stored, rounded to e4m3, and not by what it was before: a value is "
            "multiplied by the stored one again",
            "divisor = torch.where(scales == 0, 1.0, scales)",
            'divisor = torch.where(scales == 0, 1.0, amax / 6 if kind == "nv" else scales)',
        ),
        mistake(
            "NV has one fp32 number for the tensor, such that the largest scale of a block is 448",
            "x.abs().max() / 6 / 448",
            "1.0",
        ),
        mistake("The scale of a block is rounded to e4m3", ".to(torch.float8_e4m3fn).float() * tensor", " * tensor"),
        mistake(
            "A tie goes to the number with the even mantissa: 0, 1, 2 and 4 have it, and 0.5, 1.5, 3 and 6 do not",
            "steps = torch.round(magnitude / spacing)",
            "steps = torch.floor(magnitude / spacing + 0.5)",
        ),
        mistake(
            "Where e4m3 has rounded a scale down, a value can exceed 6, and is to be cut. 8 is no number of e2m1",
            ".clamp(max=6)",
            "",
        ),
    ],
    hints=[
        "Look at x as [rows, blocks, numbers of a block]: x.unflatten(1, (-1, block)). The largest magnitude of each "
        "block is .abs().amax(-1).",
        "MX: the smallest power of two with which the largest number is 6 or less, so 2 ** ceil(log2(amax / 6)); "
        "compute it in float64. NV: tensor = x.abs().max() / 6 / 448, then amax / 6 / tensor is cast to "
        "torch.float8_e4m3fn and multiplied by tensor.",
        "A block of zeros: its scale is 1 in MX and 0 in NV, and its numbers are 0. Do not divide by 0: where all of x "
        "is zero, t is, too.",
        "e2m1 has steps of 0.5 below 2, of 1 from 2 to 4, and of 2 from 4 to 6. torch.round sends ties to the even "
        "number of steps, which is the even mantissa.",
    ],
    why="This is what a Blackwell GPU does with both operands of each product, in hardware or in a fused kernel. The "
    "rest of 4-bit training is about what this rounding does to gradients.",
)
def quantize_blocks(x, kind):
    """Put the float32 matrix ``x`` into blocks of e2m1 along its rows. Return (numbers, scales), both float32.

    ``kind`` "mx": blocks of 32, and the scale is rounded up (RCEIL): the smallest power of two with which nothing
    exceeds 6, and 1 for a block of zeros. "nv": blocks of 16, and a scale is e4m3(amax / 6 / t) * t, where t = (the
    largest magnitude of all) / 6 / 448; a scale is 0 for a block of zeros, also if all of x is zero.
    torch.float8_e4m3fn may be used for that cast.

    ``numbers`` has the shape of x: what stands for x, the rounded value times its scale. Values are rounded to the
    nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even mantissa, and cut at 6. ``scales``: [rows, blocks].
    """
    block = 16 if kind == "nv" else 32
    blocks = x.unflatten(1, (-1, block))
    amax = blocks.abs().amax(-1)
    # ? The scale of each block.
    if kind == "mx":
        scales = torch.where(amax == 0, 1.0, 2.0 ** torch.ceil(torch.log2(amax.double() / 6))).float()
    else:
        tensor = x.abs().max() / 6 / 448
        scales = (amax / 6 / tensor).to(torch.float8_e4m3fn).float() * tensor
        scales = torch.where(amax == 0, 0.0, scales)  # of nothing but zeros, tensor is 0, too
    # ? Divide, round to e2m1, and multiply again.
    divisor = torch.where(scales == 0, 1.0, scales).unsqueeze(-1)
    magnitude = (blocks / divisor).abs().clamp(max=6)
    spacing = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    steps = torch.round(magnitude / spacing)
    numbers = (steps * spacing).copysign(blocks) * scales.unsqueeze(-1)
    return numbers.flatten(1), scales
