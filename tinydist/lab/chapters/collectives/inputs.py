"""What the exercises are tried on: numbers that differ by rank and position, the same in every check."""

import torch

from ...ranks import Case

FLOAT = 4  # bytes
EVEN = 4  # numbers in a part
LARGE = 1 << 12  # numbers, where bytes held and time are judged


def numbers(rank, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randn(shape, generator=generator, dtype=dtype)


def about(shape):
    """'8 numbers each', '5 x 3 numbers each'."""
    return f"{' x '.join(map(str, shape))} number{'s' * (list(shape) != [1])} each"


def sum_case(ranks, shape, expected, dtype=torch.float32, **how):
    """``expected(inputs) -> list``: what each rank should have."""
    inputs = [numbers(rank, shape, dtype) for rank in range(ranks)]
    words = about(shape) + (", in another order of events" if how else "")
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype),), words, expected(inputs), how)


def sum_cases(expected):
    """Worlds of 1, 2, 3, 4 and 8; even parts, uneven ones, fewer numbers than ranks, none; two dims; a large one."""
    for ranks in (1, 2, 3, 4, 8):
        for count in dict.fromkeys([EVEN * ranks, EVEN * ranks + ranks // 2, max(1, ranks - 1), 0]):
            yield sum_case(ranks, (count,), expected)
    yield sum_case(3, (5, 3), expected, torch.float64)
    for seed in (1, 2):
        yield sum_case(4, (10,), expected, schedule="shuffle", seed=seed)
    for ranks in (4, 8):
        yield sum_case(ranks, (LARGE,), expected)


def even(case):
    """Its parts are equal."""
    return length(case) % case.ranks == 0


def full(case):
    """No part is empty."""
    return length(case) >= case.ranks


def large(case):
    return size(case) == LARGE


def length(case):
    return len(case.arguments(0)[0])


def size(case):
    return case.arguments(0)[0].numel()


def nbytes(case):
    return case.arguments(0)[0].nbytes


def part_bytes(case):
    """Of the parts of ``torch.tensor_split``, by part."""
    return [part.nbytes for part in case.arguments(0)[0].tensor_split(case.ranks)]
