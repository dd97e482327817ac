"""Virtual time: of messages alone."""

import pytest
import torch
import torch.distributed as dist

from tinydist.hardware.costs import message_seconds
from tinydist.lab.errors import Wrong
from tinydist.lab.ranks import Case, Trial
from tinydist.lab.seconds import CLUSTER, steps_seconds, takes_at_most


def one_message(tensor):
    tensor @ tensor.T  # takes no time here
    dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)


TRIAL = Trial(one_message, Case(2, lambda rank: (torch.ones(64, 64),)))


def test_a_message_takes_what_the_formula_says():
    assert steps_seconds(3, 1000) == 3 * message_seconds(1000, CLUSTER.inside)
    takes_at_most(TRIAL, steps_seconds(1, 4 * 64 * 64), "a message", "Send less")


def test_longer_is_told_with_both_times():
    with pytest.raises(Wrong, match=r"where half of it = .* us: 2.00 times as long. Send less"):
        takes_at_most(TRIAL, steps_seconds(1, 4 * 64 * 64) / 2, "half of it", "Send less")
