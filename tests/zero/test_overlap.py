"""Virtual time: prefetching hides the all-gathers behind compute."""

import pytest
import torch
from torch import nn
from zero.ladder import linear

import tinydist
from tinydist.hardware import Cluster, Link, costs
from tinydist.zero import ZeRO3

LAYERS, WIDTH, ROWS, RANKS = 8, 512, 1024, 4
LAYER = WIDTH * WIDTH * 4  # bytes
FAST, FREE = Link("fast", 0.5e-6, 300e9), Link("free", 0.0, float("inf"))


def steps(count, prefetch):
    """Forward and backward alone."""
    module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    ZeRO3(module, torch.optim.SGD, units=linear, prefetch=prefetch)
    for _ in range(count):
        module(torch.ones(ROWS, WIDTH)).sum().backward()


def second_step(prefetch, link):
    """Its seconds, and those in which compute waits for an all-gather, by rank 0."""
    one, two = (tinydist.launch(steps, RANKS, count, prefetch, fake=True, only=[0]) for count in (1, 2))
    cluster = Cluster("A100 80GB", RANKS, link)
    begins, trace = one.on(cluster).seconds, two.on(cluster).trace
    waits = [
        event.end - event.start
        for event in trace.of(0, "compute")
        if event.name == "wait" and event.transfer.name == "all_gather" and event.start >= begins
    ]
    return trace.seconds - begins, sum(waits)


def test_prefetching_hides_all_but_the_first_all_gathers():
    """Without it each layer's is waited for, forward and backward; and in backward, since a group does one thing
    after another, the reduce-scatter of the layer before as well (it takes as long).
    """
    gather = costs.ring_all_gather(LAYER, RANKS, FAST)
    free, _ = second_step(True, FREE)
    hidden, waited = second_step(True, FAST)
    exposed, all_waited = second_step(False, FAST)
    assert free / (2 * LAYERS) > gather  # there is compute enough to hide behind
    assert all_waited == pytest.approx((2 * LAYERS + LAYERS - 1) * gather, rel=0.02)
    assert waited <= 3 * gather  # the first of forward, and of backward, where two layers are asked for at once
    assert exposed - hidden == pytest.approx(all_waited - waited, rel=0.1)


def test_a_gather_runs_while_the_layer_before_computes():
    """As the timeline shows it: each all-gather of forward but the first overlaps a matrix product."""
    trace = tinydist.launch(steps, RANKS, 1, True, fake=True, only=[0]).on(Cluster("A100 80GB", RANKS, FAST)).trace
    products = [event for event in trace.of(0, "compute") if event.name == "mm"]
    gathers = [event for event in trace.of(0) if event.name == "all_gather" and event.transfer.nbytes == LAYER]
    for gather, product in zip(gathers[1:LAYERS], products):
        assert product.start < gather.end and gather.start < product.end
