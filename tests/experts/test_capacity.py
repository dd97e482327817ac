"""An expert takes no more than its capacity: which assignments stay."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.experts import Routing, capacity, limited


def routing(experts, weights=None, num_experts=4):
    experts = torch.tensor(experts, dtype=torch.int64)  # [N, k]
    weights = torch.rand(experts.shape) if weights is None else torch.tensor(weights)
    return Routing.of_choices(experts, weights, num_experts)


def test_published_capacities():
    """Of Megatron-core 0.16.1's get_capacity, and DeepSpeed 0.19.8's top1gating, run on 16 tokens and 4 experts."""
    assert capacity(16, 4, 1, 1.25) == 5
    counts = [0] * 2 + [1] * 4 + [2] * 6 + [3] * 4
    left = limited(routing([[n] for n in counts]), capacity(16, 4, 1, 1.0))
    assert (capacity(16, 4, 1, 1.0), len(left.tokens), left.dropped) == (4, 14, 2)
    assert capacity(16, 4, 2, 1.0) == 8 and capacity(4, 8, 1, 1.0, least=4) == 4


def test_the_first_stay_or_the_heaviest():
    asked = routing([[0], [0], [0], [1]], [[0.2], [0.1], [0.7], [0.5]])
    assert limited(asked, 2).tokens.tolist() == [0, 1, 3]
    assert limited(asked, 2, by="weight").tokens.tolist() == [0, 2, 3]
    assert limited(asked, 0).dropped == 4


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True), min_size=1), st.integers(0, 9))
@pytest.mark.parametrize("by", ["position", "weight"])
def test_each_expert_keeps_the_best_of_its_own(by, chosen, most):
    asked = routing(chosen)
    left = limited(asked, most, by)
    assert left.dropped + len(left.tokens) == 2 * len(chosen) == left.assigned
    for number in range(4):
        before, after = (each.experts == number for each in (asked, left))
        assert after.sum() == min(most, before.sum()) == left.counts()[number]
        weights = asked.weights[before]
        expected = weights[:most] if by == "position" else weights.sort(descending=True).values[:most]
        assert sorted(left.weights[after].tolist()) == sorted(expected.tolist())
