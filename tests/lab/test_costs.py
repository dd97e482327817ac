"""Bytes held, and virtual time, beside those of the reference."""

import pytest
import torch
import torch.distributed as dist
from lab.mini import exercise

from tinydist.hardware.costs import p2p_time
from tinydist.lab.author import Case, Memory, Seconds, Wrong
from tinydist.lab.costs import CLUSTER

CASE = Case(2, lambda rank: (torch.ones(64, 64),), measured=True)
NBYTES = 64 * 64 * 4


def in_place(tensor):
    tensor += 1


def copied(tensor):
    return tensor + 1


def compared(target, answer, reference):
    made = exercise(reference, [CASE], target)
    target.compare(made, made.trial(answer, CASE))


def test_what_is_held_besides_the_arguments():
    for answer, held in ((in_place, 0), (copied, NBYTES)):
        memory = Memory("")
        assert memory.seen(exercise(answer, [CASE], memory).trial(answer, CASE)) == [held] * 2


def test_more_than_the_reference_holds():
    compared(Memory("a copy"), copied, copied)
    compared(Memory("a copy", slack=NBYTES), copied, in_place)
    compared(Memory("a copy", most=lambda case: NBYTES), copied, in_place)
    with pytest.raises(Wrong, match="rank 0 holds 16,384 bytes besides its arguments, where 0 are enough: in place"):
        compared(Memory("in place"), copied, in_place)


def one_message(tensor):
    tensor @ tensor.T  # takes no time here
    dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)


def two_messages(tensor):
    one_message(tensor)
    one_message(tensor)


def test_a_message_takes_what_the_formula_says():
    time = Seconds("")
    (seconds,) = time.seen(exercise(one_message, [CASE], time).trial(one_message, CASE))
    assert seconds == pytest.approx(p2p_time(NBYTES, CLUSTER.intra_node))


def test_longer_is_told_with_both_times():
    compared(Seconds("", "Send less"), one_message, two_messages)
    compared(Seconds("", "Send less", room=2.0), two_messages, one_message)
    with pytest.raises(Wrong, match=r"us are right: 2.00 times as long. Send less"):
        compared(Seconds("", "Send less"), two_messages, one_message)
