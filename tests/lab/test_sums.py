"""Whose numbers are in a wrong sum: told from the result of any program that adds what it should not."""

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from tinydist.lab.chapters.collectives.inputs import sum_case
from tinydist.lab.errors import Wrong
from tinydist.lab.ranks import Trial
from tinydist.lab.sums import SUMS, counts
from tinydist.lab.values import in_place

P = 3


def told(answer, shape=(6,)):
    with pytest.raises(Wrong) as caught:
        in_place(Trial(answer, sum_case(P, shape, lambda inputs: [sum(inputs)] * P)), SUMS)
    return str(caught.value)


def with_weights(weights):
    """Adds weights[r] times the numbers of rank r."""

    def answer(tensor):
        tensor *= weights[dist.get_rank()]
        dist.all_reduce(tensor)

    return answer


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=P, max_size=P).filter(lambda weights: len(set(weights)) > 1))
def test_missing_and_double_numbers_are_named(weights):
    text = told(with_weights(weights))
    missing = [rank for rank, weight in enumerate(weights) if weight == 0]
    if len(missing) == 1:
        assert f"the numbers of rank {missing[0]} are missing" in text
    if max(weights) > 1:
        assert f"are counted {max(weights)} times" in text


def test_multiples():
    assert "3 times too small, the number of ranks: this is the mean" in told(with_weights([1 / 3] * 3))
    assert "3 times too large" in told(with_weights([3] * 3))


def test_unchanged():
    assert told(lambda tensor: None) == "every rank still has its own numbers: nothing was added"

    def only_two_take_part(tensor):
        group = dist.new_group([0, 1, 2])
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        if dist.get_rank() != 1:
            tensor.copy_(total)

    assert told(only_two_take_part) == "rank 1 still has its own numbers: nothing was added"


def test_right_numbers_in_the_wrong_place():
    def answer(tensor):
        dist.all_reduce(tensor)
        tensor.copy_(tensor.roll(2))

    assert told(answer) == "on rank 0, what should be part 0 of the sum is part 2"


def test_what_is_no_sum_is_shown_as_numbers():
    def answer(tensor):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        tensor += 0.5

    assert "on rank 0, 6 of 6 numbers are wrong. The first is at position 0" in told(answer)


@given(st.lists(st.integers(0, 63), min_size=8, max_size=8))
def test_digits(weights):
    assert counts(float(sum(weight * 64**rank for rank, weight in enumerate(weights))), 8) == weights


@pytest.mark.parametrize("number", [float("nan"), 0.5, -1.0, 64.0**2])
def test_no_digits(number):
    assert counts(number, 2) is None
