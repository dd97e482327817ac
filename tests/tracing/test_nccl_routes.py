"""Collectives by NCCL's algorithms on the clock: a lone one takes what the rule says, and bytes are conserved."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import tinydist
from tinydist.hardware import ALGORITHMS, collective_time, find_cluster
from tinydist.hardware.devices import Device
from tinydist.tracing.nccl_routes import nccl_leg
from tinydist.tracing.record import Transfer

INSTANT = Device("instant", dict.fromkeys(("float64", "float32", "int64"), math.inf), 1e12, math.inf)
POD = replace(find_cluster("H100 pod"), device=INSTANT)
FLOAT = 4
WHATS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def transfer_of(what, ranks, n):
    p = len(ranks)
    transfer = Transfer(what)
    transfer.ranks, transfer.root = tuple(ranks), ranks[0] if what in WHATS[4:8] else None
    transfer.nbytes = n / p if what in ("gather", "scatter") else n
    if what == "all_to_all":
        transfer.nbytes = {(a, b): n / p for a in ranks for b in ranks}
    return transfer


def ranks_on(per_node, nodes):
    return [8 * node + local for node in range(nodes) for local in range(per_node)]


places = st.tuples(st.integers(1, 8), st.integers(1, 4)).filter(lambda place: place != (1, 1))


@given(st.sampled_from(WHATS), places, st.integers(0, 2**32), st.sampled_from(sorted(set(ALGORITHMS) - {"ring"})))
def test_a_leg_alone_takes_what_the_rule_says(what, place, n, algorithm):
    per_node, nodes = place
    cluster = POD.with_algorithm(algorithm)
    leg = nccl_leg(transfer_of(what, ranks_on(per_node, nodes), n), cluster)
    seconds = leg.latency + max(leg.load.values(), default=0.0)
    assert seconds == exactly(collective_time(what, n, per_node * nodes, per_node, cluster))


@given(st.sampled_from(WHATS), places, st.sampled_from(["NCCL", "NCCL Ring", "NCCL Tree", "NCCL NVLSTree", "two-shot"]))
def test_bytes_are_those_of_the_closed_form(what, place, algorithm):
    per_node, nodes = place
    p, n = per_node * nodes, 840.0 * 1024
    leg = nccl_leg(transfer_of(what, ranks_on(per_node, nodes), n), POD.with_algorithm(algorithm))
    factor = {"all_reduce": 2 * (p - 1), "barrier": 0, "gather": (p - 1) / p, "scatter": (p - 1) / p}
    assert sum(leg.edges.values()) == pytest.approx(factor.get(what, p - 1) * n)
    assert all(a != b and nbytes > 0 for (a, b), nbytes in leg.edges.items())


def test_one_shot_sends_everything_to_everyone():
    leg = nccl_leg(transfer_of("all_reduce", range(8), 1000), POD.with_algorithm("one-shot"))
    assert leg.edges == {(a, b): 1000 for a, b in product(range(8), range(8)) if a != b}


def test_a_ring_over_nodes_leaves_each_through_all_cards():
    leg = nccl_leg(transfer_of("all_reduce", range(32), 2**30), POD.with_algorithm("NCCL Ring"))
    cards = {resource: seconds for resource, seconds in leg.load.items() if resource.kind == "card out"}
    assert len(cards) == 32 and len({round(seconds, 12) for seconds in cards.values()}) == 1
    assert max(leg.load.values()) == pytest.approx(max(cards.values()))


@pytest.mark.parametrize("ranks", [range(12), [0, 1, 8]], ids=["8 and 4", "2 and 1"])
def test_nodes_with_unlike_numbers_of_ranks_have_a_ring_of_messages(ranks):
    assert nccl_leg(transfer_of("all_reduce", list(ranks), 1000), POD) is None


def of_all_reduce(floats, groups=None):
    mine = next((dist.new_group(group) for group in groups if dist.get_rank() in group), None) if groups else None
    dist.all_reduce(torch.ones(floats), group=mine)


@pytest.mark.parametrize("algorithm", ["NCCL", "NCCL Tree", "one-shot", "ring"])
@pytest.mark.parametrize("p", [2, 8, 16])
def test_a_run_takes_what_the_rule_says(p, algorithm):
    cluster = POD.with_algorithm(algorithm)
    run = tinydist.launch(of_all_reduce, p, 100_000, cluster=cluster)
    assert run.seconds == exactly(collective_time("all_reduce", 100_000 * FLOAT, p, min(p, 8), cluster))


def test_two_groups_that_share_cards_get_half_each():
    """Ranks 0, 1 of two nodes, and ranks 2, 3: one card carries both."""

    def program(both):
        groups = [dist.new_group(ranks) for ranks in ([0, 1, 4, 5], [2, 3, 6, 7])]
        mine = groups[dist.get_rank() % 4 // 2]
        if both or mine is groups[0]:
            dist.all_reduce(torch.ones(10_000_000), group=mine)

    cluster = replace(POD, devices_per_node=4, nodes=2, cards_per_node=1)
    alone, together = (tinydist.launch(program, 8, both, cluster=cluster) for both in (False, True))
    (leg,) = [leg for leg in [nccl_leg(transfer_of("all_reduce", [0, 1, 4, 5], 4e7), cluster)] if leg]
    assert alone.seconds == exactly(leg.latency + max(leg.load.values()))
    assert together.seconds == exactly(leg.latency + 2 * max(leg.load.values()))


def test_the_same_run_by_other_algorithms():
    """A small all-reduce over four nodes: NCCL's tree, and chapter 02's ring, which pays alpha at each step."""
    run = tinydist.launch(of_all_reduce, 32, 1000, cluster=POD)
    tree, ring = run.seconds, run.on(POD.with_algorithm("ring")).seconds
    assert tree < ring < 5 * tree
    assert sum(map(sum, run.traffic)) == pytest.approx(2 * 31 * 1000 * FLOAT)
