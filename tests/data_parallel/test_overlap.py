"""Overlap in virtual time: backward and communication run at once, and a tail is left."""

import math
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import nn

import tinydist
from tinydist.data_parallel import DDP, average_each
from tinydist.hardware import Cluster, Link, costs
from tinydist.hardware.devices import A100_80GB

LAYERS, WIDTH, ROWS, RANKS = 8, 512, 256, 4
LAYER = WIDTH * WIDTH * 4  # bytes of a layer's gradient
SLOW, FAST = Link("slow", 5e-6, 15e9), Link("fast", 0.5e-6, 300e9)
FREE = Link("free", 0.0, float("inf"))
STEADY = replace(A100_80GB, launch_overhead=0.0)  # else what waits for a message has its launch hidden meanwhile


class Step(NamedTuple):
    """The last of three steps: in the first, buckets fill as they may, and the second begins by making them anew."""

    seconds: float
    starts: list  # of its all-reduces, since its own start
    sizes: list  # bytes of each


def steps(count, layers_in_a_bucket):
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    ddp = DDP(model, bucket_bytes=layers_in_a_bucket * LAYER) if layers_in_a_bucket else model
    for _ in range(count):
        ddp(torch.ones(ROWS, WIDTH)).sum().backward()
        if not layers_in_a_bucket:
            average_each(model.parameters())


@cache
def of_two_and_three_steps(layers_in_a_bucket):
    return [tinydist.launch(steps, RANKS, count, layers_in_a_bucket, fake=True) for count in (2, 3)]


def third_step(layers_in_a_bucket, *links):
    """On each of the links."""
    two, three = of_two_and_three_steps(layers_in_a_bucket)
    for link in links:
        cluster = Cluster(STEADY, RANKS, link)
        begins, trace = two.on(cluster).seconds, three.on(cluster).trace
        calls = [event for event in trace.of(0) if event.name == "all_reduce"]
        calls = calls[len(calls) * 2 // 3 :]
        starts, sizes = [event.start - begins for event in calls], [event.transfer.nbytes for event in calls]
        yield Step(trace.seconds - begins, starts, sizes)


@pytest.mark.parametrize("link", [SLOW, FAST], ids=str)
@pytest.mark.parametrize("layers", [1, 8, *(pytest.param(layers, marks=pytest.mark.exhaustive) for layers in (2, 4))])
def test_step_time_is_the_longer_of_both_and_a_tail(layers, link):
    """Where messages take no time, it is seen when each bucket is full. It waits for the one before, and from
    some bucket on they follow one another: the last, where backward is longer; the first, where they are. (The first
    bucket is small: it has one layer.)
    """
    step, free = third_step(layers, link, FREE)
    assert sum(step.sizes) == LAYERS * LAYER and len(step.sizes) == 1 + math.ceil((LAYERS - 1) / layers)
    seconds = [costs.ring_all_reduce(nbytes, RANKS, link) for nbytes in step.sizes]
    expected = max(full + sum(seconds[place:]) for place, full in enumerate(free.starts))
    assert step.seconds == pytest.approx(expected, rel=0.02)


def test_both_sides_of_the_maximum_are_met():
    """Else the test above would know one of them only."""
    communication = (
        LAYERS * costs.ring_all_reduce(LAYER, RANKS, SLOW),
        LAYERS * costs.ring_all_reduce(LAYER, RANKS, FAST),
    )
    (free,) = third_step(1, FREE)
    assert communication[1] < free.seconds - free.starts[0] < communication[0]


def test_overlap_hides_communication():
    (overlapped, free), (naive,) = third_step(1, SLOW, FREE), third_step(0, SLOW)
    communication = LAYERS * costs.ring_all_reduce(LAYER, RANKS, SLOW)
    hidden = free.seconds - free.starts[0]  # all of backward after the first bucket
    assert naive.seconds - overlapped.seconds == pytest.approx(hidden, rel=0.1)
    assert naive.seconds > free.seconds + 0.9 * communication
