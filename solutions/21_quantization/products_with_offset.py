"""A product of blocks in integers, where weights have an offset."""

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, numbers


def case(tokens, rows, blocks, about="codes of all sizes", largest=False):
    def arguments():
        draw = torch.Generator().manual_seed(100 * tokens + 10 * rows + blocks)
        q_x = torch.randint(-127, 128, (tokens, blocks, 32), generator=draw).to(torch.int8)
        q_w = torch.randint(0, 16, (rows, blocks, 32), generator=draw).to(torch.uint8)
        if largest:
            q_x[:], q_w[:] = 127, 15
        d_x = numbers(tokens, blocks, seed=1).abs() / 127
        d_w, m_w = numbers(rows, blocks, seed=2).abs() / 15, numbers(rows, blocks, seed=3)
        return q_x, d_x, q_w, d_w, m_w

    return alone(arguments, f"{tokens} rows of x, {rows} of w, {blocks} blocks: {about}")


def test_cases():
    yield case(1, 1, 1)
    yield case(1, 5, 3)
    yield case(4, 3, 2)
    yield case(3, 2, 1)
    yield case(2, 16, 8)
    yield case(2, 3, 2, "the largest codes", largest=True)


@exercise(
    title="A product of blocks with an offset",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own product", INSTEAD, SOLVED),
        Values(
            "the integer sums of each pair of blocks, and the product; 1 to 4 rows of x, 1 to 8 blocks",
            names=("the sums", "the product"),
        ),
    ],
    mistakes=[
        mistake(
            "32 products of 127 and 15 add up to 60,960, which 16 bits do not hold",
            'torch.einsum("mbk,nbk->mnb", q_x.int(), q_w.int())',
            'torch.einsum("mbk,nbk->mnb", q_x.short(), q_w.short()).int()',
        ),
        mistake("The offset counts as well: m times the sum of a block of x", " + offset", ""),
        mistake(
            "An offset m adds m x for each number of a block: m times the sum of x's codes, and not m alone",
            "(sums_of_x * d_x)",
            "d_x",
        ),
        mistake("The codes of x have a scale, in the offset's part, too", "(sums_of_x * d_x)", "sums_of_x.float()"),
        mistake(
            "Each block has its own scales: multiply before the blocks are added up",
            "(sums * d_x.unsqueeze(1) * d_w).sum(-1)",
            "sums.sum(-1) * d_x.mean(-1, keepdim=True) * d_w.mean(-1)",
        ),
        mistake("The scale of x is missing", "sums * d_x.unsqueeze(1) * d_w", "sums * d_w"),
        mistake("Codes are 0 to 15 here, and no 8 is subtracted: the offset does that", "q_w.int()", "(q_w.int() - 8)"),
    ],
    hints=[
        "Write w_k = d q_k + m into the sum of w_k x_k over one block, with x_k = d_x p_k. Which sums are of integers?",
        "d d_x (sum of q p) + m d_x (sum of p). The second sum does not depend on the row of w.",
        "`torch.einsum('mbk,nbk->mnb', ...)` gives the sums of all pairs; int8 and uint8 must become int32 before "
        "they are multiplied.",
    ],
    why="The sum of a block of x is the same for all rows of w, so an offset costs one more multiplication for each "
    "block, not one for each weight. It pays to keep that sum beside the codes of x, once it is known.",
)
def products_with_offset(q_x, d_x, q_w, d_w, m_w):
    """Return (sums, y): what x w^T is, where weights are d q + m (as in Q4_1).

    ``q_x`` int8 [M, B, 32] and ``d_x`` float32 [M, B]: x in blocks, d_x q_x. ``q_w`` uint8 [N, B, 32], codes of 0 to
    15; ``d_w`` and ``m_w`` float32 [N, B]. ``sums`` is int32 [M, N, B]: of each pair of blocks the sum of products of
    codes. ``y`` is float32 [M, N]: it needs those sums, one more sum of each block of x, and the scales.
    """
    # ? The integers.
    sums = torch.einsum("mbk,nbk->mnb", q_x.int(), q_w.int())
    sums_of_x = q_x.int().sum(-1)
    # ? What the offset adds.
    offset = (sums_of_x * d_x) @ m_w.T
    return sums, (sums * d_x.unsqueeze(1) * d_w).sum(-1) + offset
