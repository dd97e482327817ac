"""Whether results come through the collectives: what one rank puts in is doubled on the way."""

import pytest
import torch
import torch.distributed as dist

from tinydist.lab.errors import Wrong
from tinydist.lab.heard import LOUD, REDUCES, heard, loud
from tinydist.lab.ranks import Case, Trial

RANKS = 3


def trial(answer, *calls):
    return Trial(loud(answer, *calls), Case(RANKS, lambda rank: (torch.full((RANKS,), 1.0 + rank),)))


def all_reduced(tensor):
    dist.all_reduce(tensor)
    return tensor


def later(tensor):
    dist.all_reduce(tensor, async_op=True).wait()
    return tensor


def scattered(tensor):
    mine = torch.empty(1)
    dist.reduce_scatter(mine, list(tensor.split(1)))
    return mine


def scattered_whole(tensor):
    mine = torch.empty(1)
    dist.reduce_scatter_single(mine, tensor)
    return mine


@pytest.mark.parametrize("answer", [all_reduced, later, scattered, scattered_whole])
def test_a_sum_has_the_loud_rank_twice(answer):
    found = trial(answer)
    assert found.error is None
    right = sum((1.0 + rank) * (1 + (rank == LOUD)) for rank in range(RANKS))
    assert all((each == right).all() for each in found.returned)


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(RANKS)]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


def gathered_whole(tensor):
    whole = torch.empty(RANKS * RANKS)
    dist.all_gather_single(whole, tensor)
    return whole.view(RANKS, RANKS)


@pytest.mark.parametrize("answer", [gathered, gathered_whole])
def test_what_is_gathered_of_the_loud_rank_is_doubled_and_it_keeps_its_own(answer):
    found = trial(answer)
    assert [each[:, 0].tolist() for each in found.returned] == [[1, 4, 3]] * RANKS
    assert [tensor[0].item() for (tensor,) in found.arguments] == [1, 2, 3]


def test_other_calls_are_left_alone():
    assert trial(all_reduced, REDUCES).returned[0][0] == 6
    assert trial(scattered, REDUCES).returned[0][0] == 8


def judge(trial):
    if trial.returned[0][0] != 8:
        raise Wrong("another number")


def test_results_that_follow_are_heard():
    heard(judge)(trial(all_reduced))


def test_results_that_do_not_follow_are_told():
    with pytest.raises(Wrong, match=r"what rank 1 puts into the collectives is doubled .* do not follow"):
        heard(judge)(trial(lambda tensor: torch.full_like(tensor, 6)))


def test_what_was_raised_is_raised():
    def fails(tensor):
        raise ValueError("so it is")

    with pytest.raises(ValueError, match="so it is"):
        heard(judge)(trial(fails))
