"""Which tokens a rank has, and how many pairs of a query and a key: zig-zag balances what a causal mask leaves."""

from fractions import Fraction

import pytest
import torch
from context_parallel.sequences import on_ranks
from hypothesis import given
from hypothesis import strategies as st

from tinydist.context_parallel import positions, shard_sequence, unshard_sequence
from tinydist.context_parallel.layout import SequenceLayout


def test_chunks_of_both_layouts():
    def layout(balanced):
        return [
            SequenceLayout(16, rank, 4, balanced).positions(rank).unflatten(0, (-1, 2))[:, 0].tolist()
            for rank in range(4)
        ]

    assert layout(False) == [[0, 2], [4, 6], [8, 10], [12, 14]]
    assert layout(True) == [[0, 14], [2, 12], [4, 10], [6, 8]]


@given(st.integers(1, 9), st.integers(0, 60), st.booleans(), st.booleans())
def test_each_pair_is_seen_once_and_no_other(ranks, more, balanced, causal):
    tokens = ranks + more
    layout = SequenceLayout(tokens, 0, ranks, balanced)
    seen = torch.zeros(tokens, tokens, dtype=torch.int64)
    assert sorted(layout.order().tolist()) == list(range(tokens))
    for rank in range(ranks):
        queries = layout.positions(rank)
        assert len(queries) == layout.size(rank) >= 1
        assert queries.tolist() == sorted(queries.tolist()), "so that a part's own mask is causal"
        for owner in range(ranks):
            keys = layout.positions(owner)
            if (met := layout.seen(rank, owner, causal)) is not None:
                block = torch.ones(len(queries[met[0]]), len(keys[met[1]]), dtype=torch.int64)
                block = block.tril() if causal and rank == owner else block
                seen[queries[met[0], None], keys[met[1]]] += block
    whole = torch.ones_like(seen)
    assert torch.equal(seen, whole.tril() if causal else whole)


def busiest_over_mean(ranks, balanced, chunk=1000):
    layout = SequenceLayout(2 * ranks * chunk, 0, ranks, balanced)
    pairs = [int((layout.positions(rank) + 1).sum()) for rank in range(ranks)]
    return max(pairs) * ranks / sum(pairs)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_busiest_rank_of_a_causal_mask(ranks):
    assert busiest_over_mean(ranks, balanced=False) == pytest.approx(Fraction(2 * ranks - 1, ranks), rel=1e-3)
    assert busiest_over_mean(ranks, balanced=True) == 1


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("ranks, tokens, dim", [(1, 5, 1), (2, 8, 0), (3, 11, 1), (8, 9, 2)])
def test_shard_and_unshard(ranks, tokens, dim, balanced):
    shape = [2, 3, 4]
    shape[dim] = tokens
    whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape)

    def program():
        x = whole.clone().requires_grad_()
        mine = shard_sequence(x, dim=dim, balanced=balanced)
        assert torch.equal(mine, whole.index_select(dim, positions(tokens, balanced=balanced)))
        back = unshard_sequence(mine, dim=dim, balanced=balanced, tokens=tokens)
        (back * whole).sum().backward()
        return back.detach(), x.grad

    for rank, (back, gradient) in enumerate(on_ranks(program, ranks)):
        assert torch.equal(back, whole)
        mine = SequenceLayout(tokens, rank, ranks, balanced).positions(rank)
        expected = torch.zeros_like(whole).index_copy_(dim, mine, whole.index_select(dim, mine))
        torch.testing.assert_close(gradient, ranks * expected)  # each rank's loss depends on it


def test_errors_come_before_any_message():
    def program(tokens, size):
        if size is None:
            return positions(tokens)
        return unshard_sequence(torch.ones(1, size), tokens=tokens)

    with pytest.raises(ValueError, match=r"positions: each rank needs a token, but there are 2 for 3 ranks \(rank 0\)"):
        on_ranks(program, 3, 2, None)
    with pytest.raises(ValueError, match=r"unshard_sequence: of 11 tokens this rank has 3, got 2 \(rank 0\)"):
        on_ranks(program, 3, 11, 2)
