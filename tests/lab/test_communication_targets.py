"""What was sent and called, counted in the record: how much, to whom, and whether it is waited for."""

import pytest
import torch
import torch.distributed as dist
from lab.mini import exercise

from tinydist.lab.author import Bytes, Case, Collectives, Messages, Waits, Wrong
from tinydist.lab.cases import Trial
from tinydist.lab.messages import messages

NUMBERS = 4


def trial(answer, ranks=4):
    found = Trial(answer, Case(ranks, lambda rank: (torch.ones(NUMBERS),)))
    assert found.error is None, found.error
    return found


def told(judge, *arguments, **options):
    with pytest.raises(Wrong) as caught:
        judge(*arguments, **options)
    assert caught.value.picture is None or callable(caught.value.picture)
    return str(caught.value)


def held(target, answer, reference=None, ranks=4):
    """Beside the reference; None: a shift to the right."""
    case = Case(ranks, lambda rank: (torch.ones(NUMBERS),))
    made = exercise(reference or shift, [case], target)
    target.judge(made, made.trial(answer, case), made.right(case))


def shift(tensor, by=1):
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(tensor)
    sending = dist.isend(tensor, (rank + by) % p)
    dist.recv(arrived, (rank - by) % p)
    sending.wait()


def star(tensor):
    for other in range(1, dist.get_world_size()):
        if dist.get_rank() == 0:
            dist.send(tensor, other)
            dist.recv(tensor, other)
        elif dist.get_rank() == other:
            dist.recv(tensor, 0)
            dist.send(tensor, 0)


def silent(tensor):
    pass


def test_counts():
    assert [message.ranks[0] for message in messages(trial(star).run)].count(0) == 3
    assert [message.ranks for message in messages(trial(shift, ranks=2).run)] == [(0, 1), (1, 0)]


def test_right_ones_pass():
    held(Waits(""), shift)
    held(Messages(""), shift)
    held(Messages("", most=True), shift)
    held(Bytes("n"), shift)
    held(Bytes("p n", together=True), shift)


def test_bytes_in_measured_cases_only():
    """Where a rank asks once more what it has asked before, a long case has room for it."""
    cases = [Case(2, lambda rank, size=size: (torch.ones(size),), measured=size > NUMBERS) for size in (NUMBERS, 40)]
    target = Bytes("n", room=1.2, measured=True)
    made = exercise(shift, cases, target)

    def once_more(tensor):
        shift(tensor)
        shift(tensor[:4].clone())

    trials = [made.trial(once_more, case) for case in cases]
    assert [target.concerns(each, made) for each in trials] == [False, True]
    target.judge(made, trials[1], made.right(cases[1]))
    with pytest.raises(Wrong, match="32 bytes, where 16 are right"):
        target.judge(made, trials[0], made.right(cases[0]))


def test_a_message_that_nobody_receives():
    def answer(tensor):
        if dist.get_rank() == 2:
            dist.isend(tensor, 0)

    assert "rank 2 posted 1 message whose other side nobody posted" in told(held, Waits(""), answer)


def test_a_message_that_is_not_waited_for():
    def answer(tensor):
        rank, p = dist.get_rank(), dist.get_world_size()
        dist.isend(tensor, (rank + 1) % p)
        dist.recv(tensor, (rank - 1) % p)

    assert "rank 0 does not wait for 1 message: call wait()" in told(held, Waits(""), answer)


def test_how_many_and_to_whom():
    text = told(held, Messages("", most=True), star)
    assert text.startswith("rank 0 receives 3 messages") or "a star" in text
    assert "your ring turns the other way" in told(held, Messages(""), lambda tensor: shift(tensor, by=-1))
    assert "rank 0 sends to rank 2" in told(held, Messages(""), lambda tensor: shift(tensor, by=2))


def test_empty_messages_need_not_be_sent():
    def more(tensor):
        shift(tensor)
        shift(tensor[:0])

    held(Messages("", empty=False), more)
    assert told(held, Messages(""), more) == "rank 0 sends 2 messages to rank 1, where 1 is enough"


def test_bytes_are_explained():
    assert told(held, Bytes("n"), silent).startswith("nobody sent anything")
    assert "rank 0 sends 3 times what the others send" in told(held, Bytes("n"), star)
    assert told(held, Bytes("n"), shift_twice) == "rank 0 sends 32 bytes, where 16 are right: n"
    assert told(held, Bytes("f", together=True), star) == "the ranks send 96 bytes in all, where 64 are right: f"


def shift_twice(tensor):
    shift(tensor)
    shift(tensor)


def test_whole_tensors_where_parts_are_right():
    case = Case(4, lambda rank: (torch.ones(NUMBERS),))
    made = exercise(lambda tensor: shift(tensor[:1]), [case])
    text = told(Bytes("n/p").judge, made, made.trial(shift, case), made.right(case))
    assert text.startswith("every message carries the whole tensor, 16 bytes: with 1 of them a rank sends 16 bytes.")
    assert text.endswith("a rank then sends 4 bytes: n/p")


def test_one_silent_rank():
    def answer(tensor):
        if dist.get_rank() < 2:
            dist.send(tensor, 3)
        elif dist.get_rank() == 3:
            dist.recv(tensor, 0)
            dist.recv(tensor, 1)

    assert told(held, Bytes("n"), answer) == "rank 2 sends 0 bytes, where 16 are right: n"


# Where collectives are called.


def both(tensor):
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)


def test_collectives_are_in_the_order_of_their_calls():
    assert Collectives("").seen(trial(both)) == [[("all_reduce", 16), ("broadcast", 16)]] * 4


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
