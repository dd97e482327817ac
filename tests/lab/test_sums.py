"""Whose numbers are in a wrong sum: told from the result of any program that adds what it should not."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tinydist.lab.author import Case, Values, Wrong, of_sums
from tinydist.lab.exercise import Exercise
from tinydist.lab.sums import counts, unchanged

P = 3


def the_sum(tensor):
    dist.all_reduce(tensor)


VALUES = Values("the sum", explain=of_sums)
EXERCISE = Exercise(the_sum, "", 0, 0, worlds=list, targets=[VALUES], mistakes=[], hints=[], why="")
WORLD = Case(P, lambda rank: (torch.randn(6, generator=torch.Generator().manual_seed(rank)),))


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


def on(rank, part, change):
    """The right sum, but on one rank one part is what ``change(part of the sum, the rank's own)`` gives."""

    def answer(tensor):
        own = tensor.clone().tensor_split(P)[part]
        dist.all_reduce(tensor)
        if dist.get_rank() == rank:
            right = tensor.tensor_split(P)[part]
            right.copy_(change(right, own))

    return answer


def test_when_all_is_finished_somewhere_it_is_the_second_half():
    text = "the first half is right, and rank 0 has the finished part 1 of the sum. But on rank 2 "
    not_there = "it did not arrive, or was overwritten. Look at the second half"
    assert told(on(2, 1, lambda right, own: own)) == text + not_there
    assert told(on(2, 1, lambda right, own: right + own)).startswith(f"{text}numbers are counted 2 times: it was added")
    assert text in told(on(2, 1, lambda right, own: torch.full_like(own, float("nan"))))


def test_when_a_part_is_finished_nowhere_it_may_be_the_first():
    def answer(tensor):
        parts = tensor.tensor_split(P)
        own = parts[1].clone()
        dist.all_reduce(tensor)
        parts[1].copy_(own)

    text = "on rank 0, in part 1 of the sum, there are only the numbers of rank 0: the last hop is missing"
    assert told(answer).startswith(text) and "or the second half has written over it" in told(answer)


def test_a_part_that_is_returned_may_be_the_wrong_one():
    def answer(tensor):
        return tensor.tensor_split(P)[dist.get_rank()]

    silent, sends = (EXERCISE.trial(each, WORLD) for each in (answer, lambda tensor: answer(swap(tensor))))
    right = list(sum(WORLD.arguments(rank)[0] for rank in range(P)).tensor_split(P))
    assert unchanged(silent, list(silent.returned), right, None).endswith("nothing was added")
    text = unchanged(sends, list(sends.returned), right, None)
    assert text.endswith("or the sum stands in another part: on which rank does each part end?")


def swap(tensor):
    """Sends its numbers to nobody's use."""
    rank = dist.get_rank()
    arrived, sending = torch.empty_like(tensor), dist.isend(tensor, (rank + 1) % P)
    dist.recv(arrived, (rank - 1) % P)
    sending.wait()
    return tensor


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


@given(st.lists(st.integers(0, 63), min_size=8, max_size=8))
def test_digits(weights):
    assert counts(float(sum(weight * 64**rank for rank, weight in enumerate(weights))), 8) == weights


@pytest.mark.parametrize("number", [float("nan"), 0.5, -1.0, 64.0**2])
def test_no_digits(number):
    assert counts(number, 2) is None
