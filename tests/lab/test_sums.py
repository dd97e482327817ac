"""Whose numbers are in a wrong sum: told from the result of any program that adds what it should not."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from lab.mini import exercise

from tinydist.lab.author import Case, Values, Wrong, of_sums

P = 3


def the_sum(tensor):
    dist.all_reduce(tensor)


VALUES = Values("the sum", explain=of_sums)
WORLD = Case(P, lambda rank: (torch.randn(6, generator=torch.Generator().manual_seed(rank)),))
EXERCISE = exercise(the_sum, [WORLD], VALUES)


def told(answer):
    """The reason."""
    with pytest.raises(Wrong) as caught:
        VALUES.compare(EXERCISE, EXERCISE.trial(answer, WORLD))
    return str(caught.value).split("\n")[0].rstrip(".")


def with_weights(weights):
    """Adds weights[r] times the numbers of rank r."""

    def answer(tensor):
        tensor *= weights[dist.get_rank()]
        dist.all_reduce(tensor)

    return answer


@given(st.lists(st.integers(0, 3), min_size=P, max_size=P).filter(lambda weights: len(set(weights)) > 1))
def test_missing_and_double_numbers_are_named(weights):
    text = told(with_weights(weights))
    missing = [rank for rank, weight in enumerate(weights) if weight == 0]
    if len(missing) == 1:
        assert f"the numbers of rank {missing[0]} are missing" in text
    if max(weights) > 1:
        assert f"are counted {max(weights)} times" in text


def test_multiples():
    assert "3 times too small, and there are as many ranks" in told(with_weights([1 / 3] * 3))
    assert "are counted 3 times" in told(with_weights([3] * 3))


def test_unchanged():
    assert told(lambda tensor: None) == "every rank still has its own numbers: nothing was added"

    def only_two_take_part(tensor):
        group = dist.new_group([0, 1, 2])
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        if dist.get_rank() != 1:
            tensor.copy_(total)

    assert told(only_two_take_part) == "rank 1 still has its own numbers: nothing was added"


def test_numbers_of_another_position():
    def answer(tensor):
        dist.all_reduce(tensor)
        tensor.copy_(tensor.roll(2))

    text = "on rank 0, at position 0, the numbers of ranks 0-2 are those of another position: are the parts the same on"
    assert told(answer).startswith(text)


def test_a_rank_whose_numbers_are_moved():
    def answer(tensor):
        if dist.get_rank() == 1:
            tensor.copy_(tensor.roll(1))
        dist.all_reduce(tensor)

    assert told(answer).startswith("on rank 0, at position 0, the numbers of rank 1 are those of another position")


def test_a_part_that_was_not_summed():
    def answer(tensor):
        own = tensor.clone()
        dist.all_reduce(tensor)
        if dist.get_rank() == 2:
            tensor[4:] = own[4:]

    text = "on rank 2, at position 4, there are only the numbers of rank 2: the last hop is missing"
    assert told(answer).startswith(text)


def test_what_was_given_besides_the_tensor_stays():
    """As ``dst`` of a reduce."""
    world = Case(P, lambda rank: (torch.randn(6, generator=torch.Generator().manual_seed(rank)), 2))

    def answer(tensor, root):
        if dist.get_rank() == root:
            tensor *= 2
        dist.all_reduce(tensor)

    made = exercise(lambda tensor, root: dist.all_reduce(tensor), [world], VALUES)
    with pytest.raises(Wrong, match="on rank 0, at position 0, the numbers of rank 2 are counted 2 times"):
        VALUES.compare(made, made.trial(answer, world))


def test_a_message_that_is_not_waited_for_is_told_first():
    def answer(tensor):
        rank = dist.get_rank()
        dist.isend(tensor, (rank + 1) % P)
        dist.irecv(torch.empty_like(tensor), (rank - 1) % P)

    assert told(answer).startswith("rank 0 does not wait for 2 messages: call wait()")


def test_what_is_no_sum_is_shown_as_numbers():
    def answer(tensor):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        tensor += 0.5

    assert "on rank 0, 6 of 6 numbers are wrong. The first is at position 0" in told(answer)


def test_a_single_number_has_no_position():
    world = Case(P, lambda rank: (torch.tensor(float(rank)),))
    trial = EXERCISE.trial(lambda tensor: tensor.fill_(10), world)
    with pytest.raises(Wrong, match=r"^on rank 0 the result is 10, where 3 is right$"):
        VALUES.judge(EXERCISE, trial, EXERCISE.right(world))
