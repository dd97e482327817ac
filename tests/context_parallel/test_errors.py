"""Errors of attention on parts: before any message, so that nothing hangs."""

import pytest
import torch
from context_parallel.sequences import WAYS, on_ranks


def attend(way, q, k=None, v=None, **options):
    q = torch.zeros(q)
    k = torch.zeros(k or q.shape)
    WAYS[way](q, k, torch.zeros(v or k.shape), **options)


@pytest.mark.parametrize("way", WAYS)
def test_shapes(way):
    name = WAYS[way].__name__
    with pytest.raises(ValueError, match=f"{name}: q, k and v must have the same tokens and head_dim"):
        on_ranks(attend, 2, way, (1, 2, 4, 8), (1, 2, 3, 8))
    with pytest.raises(ValueError, match=f"{name}: q, k and v must have the same tokens and head_dim"):
        on_ranks(attend, 2, way, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 6))
    with pytest.raises(ValueError, match=rf"{name}: num_heads \(3\) must be divisible by num_kv_heads \(2\)"):
        on_ranks(attend, 2, way, (1, 3, 4, 8), (1, 2, 4, 8))
    with pytest.raises(ValueError, match=rf"{name}: of 9 tokens this rank has 5, got 4 \(rank 0\)"):
        on_ranks(attend, 2, way, (1, 2, 4, 8), tokens=9)


def test_heads_for_ulysses():
    with pytest.raises(ValueError, match=r"num_heads \(4\) must be divisible by the ranks \(3\) \(rank 0\)"):
        on_ranks(attend, 3, "ulysses", (1, 4, 4, 8))
    with pytest.raises(ValueError, match=r"num_kv_heads \(3\) must be divisible by the ranks \(2\), or the ranks by"):
        on_ranks(attend, 2, "ulysses", (1, 6, 4, 8), (1, 3, 4, 8))
