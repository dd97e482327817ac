"""Online softmax: parts merge in any order, to what softmax gives over all keys."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.attention.online_softmax import finish, merge, nothing, part

DOUBLE = dict(rtol=1e-12, atol=1e-12)
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def random_parts(sizes, seed, masked=0.3, scale=30):
    """Scores [T, S] with some -inf, values [S, e], and their parts; scores far apart, so that maxima change."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, sum(sizes), dtype=torch.float64, generator=generator) * scale
    scores[torch.rand(scores.shape, generator=generator) < masked] = -math.inf
    values = torch.randn(sum(sizes), 3, dtype=torch.float64, generator=generator)
    parts = [part(*each) for each in zip(scores.split(sizes, dim=1), values.split(sizes))]
    return scores, values, parts


def merged(parts):
    state = parts[0]
    for each in parts[1:]:
        state = merge(state, each)
    return state


@given(sizes, st.integers(0, 10**6))
def test_pieces_give_softmax_over_all(sizes, seed):
    scores, values, parts = random_parts(sizes, seed)
    output, lse = finish(merged(parts))
    expected = scores.softmax(-1).nan_to_num() @ values  # torch has NaN where all are masked, here are zeros
    torch.testing.assert_close(output, expected, **DOUBLE)
    torch.testing.assert_close(lse, scores.logsumexp(-1, keepdim=True), **DOUBLE)


@given(sizes, st.randoms(use_true_random=False), st.integers(0, 10**6))
def test_the_order_does_not_matter(sizes, random, seed):
    _, _, parts = random_parts(sizes, seed)
    expected = finish(merged(parts))
    random.shuffle(parts)
    torch.testing.assert_close(finish(merged(parts)), expected, **DOUBLE)


@given(st.integers(0, 10**6))
def test_halves_of_halves(seed):
    _, _, (a, b, c, d) = random_parts([2, 1, 3, 2], seed)
    torch.testing.assert_close(merge(merge(a, b), merge(c, d)), merge(a, merge(b, merge(c, d))), **DOUBLE)


@given(st.integers(0, 10**6))
def test_nothing_changes_nothing(seed):
    _, values, (state,) = random_parts([3], seed)
    empty = nothing(torch.ones(4, 5, dtype=torch.float64), values.shape[1])
    assert all(map(torch.equal, merge(state, empty), state))
    assert all(map(torch.equal, merge(empty, state), state))


def test_a_query_that_saw_nothing():
    scores = torch.full((2, 3), -math.inf)
    state = merge(part(scores, torch.ones(3, 4)), part(scores, torch.ones(3, 4)))
    output, lse = finish(state)
    assert output.eq(0).all() and lse.eq(-math.inf).all()


def test_scores_beyond_the_range_of_exp():
    scores, values = torch.tensor([[1000.0, -1000.0, 1000.0]]), torch.tensor([[1.0], [2.0], [3.0]])
    states = [part(scores[:, i : i + 1], values[i : i + 1]) for i in range(3)]
    output, lse = finish(merged(states))
    assert output.item() == 2 and math.isclose(lse.item(), 1000 + math.log(2), rel_tol=1e-6)
