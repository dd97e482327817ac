"""A block of 32 weights in three bits, down to its bytes."""

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, numbers


def case(rows, about, change=lambda x: x):
    return alone(lambda: (change(numbers(rows, 32, seed=rows)),), f"{rows} blocks: {about}")


def large_ones(x):
    """The largest number has a positive sign in one row, and a negative one in the next; a twin stands opposite."""
    x[0, 3], x[0, 9] = 6.0, -6.0
    x[1, 3], x[1, 9] = -6.0, 6.0
    return x


def with_zeros(x):
    x[1] = 0
    return x


def halves(x):
    """Multiples of half a step, where d is 1."""
    x = (2 * x).round().clamp(-7, 7) / 2
    x[:, 0] = -4
    return x


def test_cases():
    yield case(1, "normal numbers")
    yield case(2, "the largest number and its opposite", large_ones)
    yield case(3, "one of zeros", with_zeros)
    yield case(5, "all of one sign", torch.abs)
    yield case(4, "halfway between two codes", halves)
    yield case(64, "so small that d in fp16 is coarse", lambda x: x / 30_000)


@exercise(
    title="A block in three bits",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own blocks", INSTEAD, SOLVED),
        Values(
            "the bytes of blocks: normal numbers, ties of opposite sign, zeros",
            scratch=True,
            variants=[
                (
                    "In a block of zeros 1 / d is infinite, and 0 times it no number",
                    "torch.where(d == 0, 0.0, 1 / d)",
                    "1 / d",
                )
            ],
        ),
    ],
    mistakes=[
        mistake(
            "d has the sign that makes the largest number -4, which is exact: take the number with its sign",
            "x.gather(-1, x.abs().argmax(-1, keepdim=True))",
            "x.abs().amax(-1, keepdim=True)",
            "largest / -4",
            "largest / 4",
        ),
        mistake("To cut off is not to round: add half a step", "+ 4.5", "+ 4"),
        mistake(
            "Halves go up: add half a step and cut off (torch.round takes them to the even code)",
            "(x * inverse + 4.5)",
            "((x * inverse).round() + 4)",
        ),
        mistake("Code 8 does not fit into three bits: the opposite of the largest becomes 7", ".clamp(max=7)", ""),
        mistake(
            "Codes are found with d in fp32; only what is kept is rounded to fp16",
            "d = largest / -4",
            "d = (largest / -4).half().float()",
        ),
        mistake(
            "Byte j of the low bits has weights j, j + 8, j + 16 and j + 24, not four neighbors",
            "low = ((codes & 3).view(-1, 4, 8) << shifts).sum(1)",
            "low = ((codes & 3).view(-1, 8, 4) << shifts.T).sum(2)",
        ),
        mistake("Weight 8 j + i has bit i of byte j of the high bits", "torch.arange(8,", "7 - torch.arange(8,"),
        mistake("The low bits of all 32 stand before the high ones", "low, high], -1)", "high, low], -1)"),
    ],
    hints=[
        "As in Q4_0: the number of largest size, with its sign, is to become the least code. In three bits that is -4.",
        "codes = (x / d + 4.5), at most 7, cut off. Where all of a block is 0, d is 0, and the codes are 4.",
        "`(codes & 3).view(-1, 4, 8)` has weights j, j + 8, j + 16, j + 24 in column j. Shift its rows by 0, 2, 4 "
        "and 6 and add them up.",
    ],
    why="3.5 bits for each weight: Q4_0 has 4.5, and one bit less doubles the error. Q3_K splits codes likewise, "
    "two bits and one, since three do not divide a byte. What lies eight apart is unpacked without a shuffle.",
)
def three_bit_blocks(x):
    """Return the bytes of ``x``, float32 [N, 32], in three bits: uint8 [N, 14].

    A weight is d (q - 4), q of 0 to 7. d is such that the number of largest size (the first of them) gets code 0; codes
    are rounded, halves up, with d in float32. The bytes: d in float16 (2 bytes) | the lower two bits of each code (8
    bytes: byte j has those of weights j, j + 8, j + 16, j + 24, the first lowest) | the third bits (4 bytes: bit i of
    byte j is of weight 8 j + i). In a block of zeros d is 0 and all codes are 4.
    """
    # ? The scale, from the number of largest size.
    largest = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    d = largest / -4
    inverse = torch.where(d == 0, 0.0, 1 / d)
    # ? The codes.
    codes = (x * inverse + 4.5).clamp(max=7).to(torch.uint8)
    # ? The bytes of lower bits and of third bits.
    shifts = torch.tensor([[0], [2], [4], [6]], dtype=torch.uint8)
    low = ((codes & 3).view(-1, 4, 8) << shifts).sum(1)
    high = ((codes >> 2).view(-1, 4, 8) << torch.arange(8, dtype=torch.uint8)).sum(-1)
    return torch.cat([d.half().view(torch.uint8), low, high], -1).to(torch.uint8)
