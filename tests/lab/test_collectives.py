"""Collectives as they are judged: which, how many bytes, and whether they are waited for."""

import pytest
import torch
import torch.distributed as dist

from tinydist.lab.collectives import collectives, each_sends, only_these, waited
from tinydist.lab.errors import Wrong
from tinydist.lab.ranks import Case, Trial

N = 16  # bytes


def trial(answer, ranks=4):
    found = Trial(answer, Case(ranks, lambda rank: (torch.ones(4),)))
    assert found.error is None, found.error
    return found


def told(judge, *arguments):
    with pytest.raises(Wrong) as wrong:
        judge(*arguments)
    assert wrong.value.picture is None or callable(wrong.value.picture)
    return str(wrong.value)


def both(tensor):
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)


def test_collectives_are_in_the_order_of_their_calls():
    for rank in (0, 3):
        assert [call.name for call in collectives(trial(both), rank)] == ["all_reduce", "broadcast"]


def test_what_is_not_waited_for():
    def twice(tensor, wait):
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
        for work in works[: 2 if dist.get_rank() == 0 else wait]:
            work.wait()

    waited(trial(both))
    waited(trial(lambda tensor: twice(tensor, 2)))
    assert "rank 1 does not wait for 1 collective: call wait()" in told(waited, trial(lambda tensor: twice(tensor, 1)))
    assert "rank 1 does not wait for 2 collectives" in told(waited, trial(lambda tensor: twice(tensor, 0)))


def test_no_others():
    only_these(trial(both), {"all_reduce", "broadcast"})
    assert told(only_these, trial(both), {"broadcast"}) == ("you call all_reduce, where broadcast is enough.")
    assert told(only_these, trial(both), {"all_reduce", "reduce"}, {"broadcast": "Reduce."}) == (
        "you call broadcast, where all_reduce and reduce are enough. Reduce."
    )


def test_messages_are_others_too():
    def message(tensor):
        if dist.get_rank() < 2:
            (dist.send if dist.get_rank() == 0 else dist.recv)(tensor, 1 - dist.get_rank())

    assert told(only_these, trial(message), {"all_reduce"}).startswith("you call message, where all_reduce")


def test_bytes_of_each_rank():
    reduced = trial(dist.all_reduce)
    right = 2 * 3 / 4 * N
    each_sends(reduced, right, "2(p-1)/p n")
    assert told(each_sends, reduced, 2 * right, "f") == (
        "rank 0 sends 24 bytes, where f = 48 are right. Ranks of a real cluster share no memory: whatever one knows of "
        "another has to come in a message"
    )
    assert told(each_sends, reduced, right / 2, "f") == "rank 0 sends 24 bytes, where f = 12 are right."
    assert told(each_sends, reduced, right / 2, "f", lambda times: f"{times:g} times").endswith("are right. 2 times")
    assert told(each_sends, reduced, 0, "f", lambda times: "never asked") == (
        "rank 0 sends 24 bytes, where f = 0 are right."
    )
