"""What things cost, and the laws that hold between the costs."""

import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.hardware import Link, costs
from tinydist.hardware.cluster import B200_POD, TWO_BY_FOUR
from tinydist.hardware.devices import H100

LINK = Link("link", 2e-6, 10e9)
FREE = Link("free", 0.0, math.inf)

ranks = st.integers(1, 300)
powers = st.integers(0, 10).map(lambda k: 2**k)
sizes = st.integers(0, 2**40)
links = st.builds(Link, st.just("any"), st.floats(0, 1e-3), st.floats(1e6, 1e13))

COLLECTIVES = [
    costs.ring_reduce_scatter,
    costs.ring_all_gather,
    costs.ring_all_reduce,
    costs.tree_broadcast,
    costs.tree_reduce,
    costs.tree_all_reduce,
    costs.halving_doubling_all_reduce,
    costs.pairwise_all_to_all,
    costs.star_gather,
    costs.star_all_reduce,
    costs.direct_reduce_scatter,
    costs.direct_all_gather,
    costs.direct_all_reduce,
]
each_collective = pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda each: each.__name__)


def test_an_operator_is_bound_by_arithmetic_or_by_memory():
    square = 4096
    flops, nbytes = 2 * square**3, 3 * 2 * square**2
    product = costs.op_time(H100, flops, nbytes, "bfloat16")
    assert product == flops / 989e12 + H100.launch_overhead
    addition = costs.op_time(H100, square**2, nbytes, "bfloat16")
    assert addition == nbytes / 3.35e12 + H100.launch_overhead


def test_an_operator_that_does_nothing_must_still_be_launched():
    assert costs.op_time(H100, 0, 0, "int64") == H100.launch_overhead


@given(st.floats(0, 1e15), st.floats(0, 1e12))
def test_a_program_gets_no_more_than_the_roof(flops, nbytes):
    seconds = costs.op_time(H100, flops, nbytes, "bfloat16")
    assert flops <= seconds * H100.peak_of("bfloat16")
    assert nbytes <= seconds * H100.memory_bandwidth


def test_a_message():
    assert costs.p2p_time(10_000_000, LINK) == 2e-6 + 1e-3


@pytest.mark.parametrize(
    "collective, p, expected",  # of 8 MB on a link of 2 us and 10 GB/s, in us
    [
        (costs.ring_reduce_scatter, 4, 3 * (2 + 200)),
        (costs.ring_all_gather, 4, 3 * (2 + 200)),
        (costs.ring_all_reduce, 4, 6 * (2 + 200)),
        (costs.ring_all_reduce, 3, 4 * (2 + 800 / 3)),
        (costs.tree_broadcast, 8, 3 * (2 + 800)),
        (costs.tree_broadcast, 5, 3 * (2 + 800)),
        (costs.tree_reduce, 2, 2 + 800),
        (costs.tree_all_reduce, 4, 4 * (2 + 800)),
        (costs.halving_doubling_all_reduce, 4, 4 * 2 + 1200),
        (costs.halving_doubling_all_reduce, 6, 4 * 2 + 1200 + 2 * (2 + 800)),
        (costs.pairwise_all_to_all, 8, 7 * (2 + 100)),
        (costs.star_gather, 4, 3 * (2 + 200)),
        (costs.star_all_reduce, 4, 6 * (2 + 800)),
        (partial(costs.star_in_chunks_all_reduce, chunks=8), 4, 3 * 9 * (2 + 100)),
        (costs.direct_reduce_scatter, 4, 2 + 600),
        (costs.direct_all_reduce, 4, 2 * (2 + 600)),
    ],
)
def test_formulas_by_hand(collective, p, expected):
    assert collective(8_000_000, p, LINK) == pytest.approx(expected * 1e-6)


@each_collective
@given(sizes)
def test_a_group_of_one_pays_nothing(collective, n):
    assert collective(n, 1, None) == 0


@each_collective
@given(n=sizes, more=sizes, p=ranks, link=links)
def test_costs_grow_with_the_size(collective, n, more, p, link):
    assert collective(n, p, link) <= collective(n + more, p, link)


@each_collective
@given(n=sizes, p=ranks, link=links, part=st.floats(0.01, 1))
def test_slower_links_cost_more(collective, n, p, link, part):
    assert collective(n, p, link) <= collective(n, p, link.at(part)) * (1 + 1e-12)


@given(sizes, ranks, links)
def test_all_reduce_is_reduce_scatter_and_all_gather(n, p, link):
    both = costs.ring_reduce_scatter(n, p, link) + costs.ring_all_gather(n, p, link)
    assert costs.ring_all_reduce(n, p, link) == pytest.approx(both)


@given(sizes, ranks, links)
def test_no_all_reduce_beats_the_bound(n, p, link):
    """Each rank must send 2(p-1)/p of the tensor, and news takes lg p steps (Patarasuk and Yuan 2009), or one if a rank
    sends to all others at the same time."""
    bytes_alone = 2 * (p - 1) / p * n / link.bandwidth
    for all_reduce in COLLECTIVES:
        if all_reduce.__name__.endswith("all_reduce"):
            steps = min(1, p - 1) if all_reduce == costs.direct_all_reduce else math.log2(p)
            floor = max(bytes_alone, steps * link.latency)
            assert all_reduce(n, p, link) >= floor * (1 - 1e-12)


@given(sizes, powers, links)
def test_halving_sends_what_a_ring_sends_in_fewer_steps(n, p, link):
    saved = (2 * (p - 1) - 2 * math.log2(p)) * link.latency
    ring, halving = costs.ring_all_reduce(n, p, link), costs.halving_doubling_all_reduce(n, p, link)
    assert halving + saved == pytest.approx(ring)


def test_trees_win_for_small_tensors_and_rings_for_large():
    assert costs.tree_all_reduce(8, 64, LINK) < costs.ring_all_reduce(8, 64, LINK)
    assert costs.tree_all_reduce(2**30, 64, LINK) > costs.ring_all_reduce(2**30, 64, LINK)


@given(sizes, st.integers(2, 300), links)
def test_a_star_is_p_times_a_ring_when_bytes_count(n, p, link):
    wires = replace(link, latency=0)
    assert costs.star_all_reduce(n, p, wires) == pytest.approx(p * costs.ring_all_reduce(n, p, wires))


@given(sizes, st.integers(1, 16), st.integers(2, 32), links)
def test_two_levels_beat_one_by_the_formulas_factor(n, g, k, slow):
    flat = costs.ring_all_reduce(n, g * k, slow)
    levels = costs.hierarchical_all_reduce(n, g, k, FREE, slow)
    assert flat == pytest.approx((g * k - 1) / (k - 1) * levels)


@given(sizes, ranks, links)
def test_two_levels_of_which_one_is_single_are_a_ring(n, p, link):
    ring = pytest.approx(costs.ring_all_reduce(n, p, link))
    assert costs.hierarchical_all_reduce(n, p, 1, link, None) == ring
    assert costs.hierarchical_all_reduce(n, 1, p, None, link) == ring


def test_two_levels_by_hand():
    inside, between = TWO_BY_FOUR.intra_node, TWO_BY_FOUR.inter_node_shared
    n = 8e8
    expected = 6 * (3.4e-6 + n / 4 / 300e9) + 2 * (14e-6 + n / 8 / 25e9)
    assert costs.hierarchical_all_reduce(n, 4, 2, inside, between) == pytest.approx(expected)


def test_a_tenth_of_the_traffic_leaves_the_node():
    """Of 32 ranks on 4 nodes, (k-1)/(n-1) = 9.7 % (ml-engineering@744d01e1 network/README.md, read)."""
    g, k, n = B200_POD.devices_per_node, B200_POD.nodes, 2**32
    out = costs.ring_all_reduce(n / g, k, Link("out", 0, 1))
    total = costs.hierarchical_all_reduce(n, g, k, Link("in", 0, 1), Link("out", 0, 1))
    assert out / total == pytest.approx((k - 1) / (g * k - 1)) == pytest.approx(0.097, abs=0.0005)


@each_collective
@pytest.mark.parametrize("n, p", [(-1, 4), (-1, 1), (8, 0), (8, -2), (float("nan"), 4)])
def test_impossible_collective(collective, n, p):
    message = f"^collective: ranks must be >= 1 and nbytes a finite number >= 0, got {p} and {n}$"
    with pytest.raises(ValueError, match=message):
        collective(n, p, LINK)


def test_impossible_operator_and_message():
    with pytest.raises(ValueError, match=r"^operator: flops and nbytes must be finite numbers >= 0, got -1 and 0$"):
        costs.op_time(H100, -1, 0)
    with pytest.raises(ValueError, match=r"^message: nbytes must be a finite number >= 0, got -8$"):
        costs.p2p_time(-8, LINK)
