"""Rotary embedding: products depend on distances alone, lengths on nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.attention import rotate

positions = st.integers(0, 10_000)


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def at(x, position):
    return rotate(x.view(1, 1, 1, -1), torch.tensor([position])).flatten()


def test_pairs_are_complex_numbers_that_turn():
    x = random(2, 3, 5, 8)
    turns = torch.polar(
        torch.ones(5, 4, dtype=torch.float64),
        torch.outer(torch.arange(5.0, dtype=torch.float64), 10_000 ** (-torch.arange(4, dtype=torch.float64) / 4)),
    )
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * turns).flatten(-2)
    torch.testing.assert_close(rotate(x, torch.arange(5)), expected, rtol=0, atol=1e-12)


@given(positions, positions, positions)
def test_products_depend_on_the_distance(p, j, shift):
    q, k = random(8, seed=1), random(8, seed=2)
    here, there = at(q, p) @ at(k, j), at(q, p + shift) @ at(k, j + shift)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-9)


@given(positions)
def test_lengths_stay(p):
    x = random(8)
    torch.testing.assert_close(at(x, p).norm(), x.norm(), rtol=1e-12, atol=0)
    assert torch.equal(at(x, 0), x)


def test_each_sequence_may_stand_elsewhere():
    x = random(2, 3, 4, 6)
    starts = torch.tensor([0, 7])
    together = rotate(x, starts[:, None] + torch.arange(4))
    for row, start in enumerate(starts):
        assert torch.equal(together[row], rotate(x[row : row + 1], start + torch.arange(4))[0])


def test_half_precision_keeps_its_dtype_but_not_its_angles():
    x = random(1, 1, 1, 8)
    turned = rotate(x.half(), torch.tensor([4097]))  # 4097 is no number of float16
    assert turned.dtype == torch.float16
    torch.testing.assert_close(turned.double(), rotate(x, torch.tensor([4097])), rtol=0, atol=2e-3)


def test_an_odd_head_dim_has_no_pairs():
    with pytest.raises(ValueError, match=r"^rotate: turns pairs, so the head dim must be even, got 5$"):
        rotate(torch.ones(1, 1, 2, 5), torch.arange(2))
