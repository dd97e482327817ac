"""What was sent: counted in the record, and explained in the words of the field."""

import pytest
import torch
import torch.distributed as dist
from lab.mini import exercise

from tinydist.lab.author import Case, Messages, Waits, Wrong
from tinydist.lab.messages import messages, sends_bytes, sent_by_rank
from tinydist.lab.worlds import Trial

N = 12  # bytes


def trial(answer, ranks=4):
    found = Trial(answer, Case(ranks, lambda rank: (torch.ones(3),)))
    assert found.error is None, found.error
    return found


def told(judge, *arguments, **options):
    with pytest.raises(Wrong) as caught:
        judge(*arguments, **options)
    assert caught.value.picture is None or callable(caught.value.picture)
    return str(caught.value)


def held(target, answer, ranks=4):
    """Beside a shift to the right."""
    case = Case(ranks, lambda rank: (torch.ones(3),))
    made = exercise(shift, [case], target)
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
    assert sent_by_rank(trial(shift).run) == ([N] * 4, [1] * 4)
    assert sent_by_rank(trial(star).run) == ([3 * N, N, N, N], [3, 1, 1, 1])
    assert [message.ranks for message in messages(trial(shift, ranks=2).run)] == [(0, 1), (1, 0)]


def test_right_ones_pass():
    held(Waits(""), shift)
    held(Messages(""), shift)
    held(Messages("", most=True), shift)
    sends_bytes(trial(shift), [N] * 4, "n")
    sends_bytes(trial(shift), 4 * N, "p n")


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
    assert "nobody sent anything" in told(sends_bytes, trial(silent), [N] * 4, "n")
    assert "rank 0 sends 3 times what the others send" in told(sends_bytes, trial(star), [N] * 4, "n")
    text = told(sends_bytes, trial(shift), [N // 4] * 4, "n/p", whole=N)
    assert "every message carries the whole tensor, 12 bytes" in text and "a rank then sends 3 bytes: n/p" in text
    assert told(sends_bytes, trial(shift), [N + 1] * 4, "n + 1") == "rank 0 sends 12 bytes, where 13 are right: n + 1"
    assert told(sends_bytes, trial(shift), 40, "f") == "the ranks send 48 bytes in all, where 40 are right: f"


def test_one_silent_rank():
    def answer(tensor):
        if dist.get_rank() < 2:
            dist.send(tensor, 3)
        elif dist.get_rank() == 3:
            dist.recv(tensor, 0)
            dist.recv(tensor, 1)

    assert "ranks 2-3 sent nothing, where 12 bytes are right" in told(sends_bytes, trial(answer), [N] * 4, "n")
    assert "the ranks send" in told(sends_bytes, trial(shift, ranks=2), 1, "f")
