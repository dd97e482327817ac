"""Collectives as they are judged: which, how many bytes, and whether they are waited for."""

import pytest
import torch
import torch.distributed as dist
from lab.mini import exercise

from tinydist.lab.author import Bytes, Case, Collectives, Waits, Wrong
from tinydist.lab.worlds import Trial

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


def held(target, answer, reference, ranks=4):
    case = Case(ranks, lambda rank: (torch.ones(4),))
    made = exercise(reference, [case], target)
    target.judge(made, made.trial(answer, case), made.right(case))


def test_collectives_are_in_the_order_of_their_calls():
    assert Collectives("").seen(trial(both)) == [[("all_reduce", N), ("broadcast", N)]] * 4


def test_what_is_not_waited_for():
    def twice(wait):
        def answer(tensor):
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
            for work in works[: 2 if dist.get_rank() == 0 else wait]:
                work.wait()

        return answer

    held(Waits(""), both, both)
    held(Waits(""), twice(2), both)
    assert "rank 1 does not wait for 1 collective: call wait()" in told(held, Waits(""), twice(1), both)
    assert "rank 1 does not wait for 2 collectives" in told(held, Waits(""), twice(0), both)


def test_no_others():
    held(Collectives(""), both, both)
    assert told(held, Collectives(""), both, dist.all_reduce) == "you call broadcast, where all_reduce is enough"


def test_as_many_and_as_large():
    def twice(tensor):
        dist.all_reduce(tensor)
        dist.all_reduce(tensor[:2])

    target = Collectives("", things="one for each tensor")
    assert told(held, target, twice, dist.all_reduce) == (
        "rank 0 makes 2 all-reduces, where 1 is right: one for each tensor"
    )
    assert "all-reduce 0 of rank 0 has 8 bytes, where 16 are right" in told(
        held, target, lambda tensor: dist.all_reduce(tensor[:2]), dist.all_reduce
    )


def test_bytes_of_each_rank():
    held(Bytes("2(p-1)/p n"), dist.all_reduce, dist.all_reduce)
    text = told(held, Bytes("2(p-1)/p n"), lambda tensor: dist.all_reduce(tensor[:2]), dist.all_reduce)
    assert text == "rank 0 sends 12 bytes, where 24 are right: 2(p-1)/p n"
    text = told(held, Bytes("f", together=True), lambda tensor: dist.all_reduce(tensor[:2]), dist.all_reduce)
    assert text == "the ranks send 48 bytes in all, where 96 are right: f"
