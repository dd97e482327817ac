"""What the algorithms cost: measured bytes, messages and virtual seconds are those of the closed forms."""

import math
from functools import partial

import pytest
import torch
from collectives.every_algorithm import ALGORITHMS, Case, cost
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributed import init_device_mesh

import tinydist
from tinydist.collectives import (
    chain,
    direct,
    doubling,
    halving,
    hierarchical,
    multi_ring,
    pairwise,
    part_sizes,
    power_of_2,
    ring,
    star,
    star_in_chunks,
    tree,
)
from tinydist.hardware import Cluster, Link, costs
from tinydist.hardware.cluster import A100_NODE

LINK = Link("link", 3e-6, 20e9)
CLUSTER = Cluster("A100 80GB", 16, LINK).communication_alone
FOUR_BY_EIGHT = A100_NODE.pod(4).communication_alone
ON_ONE_LINK = [name for name in ALGORITHMS if name != "multi-ring all-reduce"]
each_algorithm = pytest.mark.parametrize("name", ON_ONE_LINK)
worlds = st.sampled_from([*range(1, 10), 16])
counts = st.integers(0, 300)


def measured(fn, p, *args, cluster=CLUSTER):
    return tinydist.launch(fn, p, *args, cluster=cluster, observe="communication")


def messages(run):
    """How many each rank sent; there is nothing else."""
    sent = [0] * len(run.results)
    for rank, program in enumerate(run.record.programs):
        for transfer in {entry.transfer for entry in program if hasattr(entry, "transfer")}:
            assert transfer.name == "message"
            sent[rank] += transfer.ranks[0] == rank
    return sent


def assert_costs(run, expected):
    assert [round(sum(row)) for row in run.traffic] == expected.sent
    assert messages(run) == expected.messages


def run_one(name, case):
    algorithm, library = ALGORITHMS[name]
    algorithm(library, case, None)


@each_algorithm
@given(worlds, counts, st.data())
def test_measured_equals_the_closed_form(name, p, count, data):
    case = Case(count, data.draw(st.integers(0, p - 1)), chunks=data.draw(st.integers(1, 9)))
    run, expected = measured(run_one, p, name, case), cost(name, case, p)
    assert_costs(run, expected)
    if name != "pairwise all-to-all":
        assert math.isclose(run.seconds, expected.seconds(LINK), rel_tol=1e-9, abs_tol=1e-15)
    else:  # of unequal parts
        assert run.seconds <= expected.seconds(LINK) * (1 + 1e-9)


@given(worlds, st.integers(0, 100))
def test_all_to_all_of_equal_parts(p, count):
    def program():
        parts = [torch.ones(count) for _ in range(p)]
        pairwise.all_to_all([torch.empty(count) for _ in range(p)], parts)

    run, expected = measured(program, p), pairwise.all_to_all_cost([[4 * count] * p] * p)
    assert_costs(run, expected)
    assert math.isclose(run.seconds, expected.seconds(LINK), rel_tol=1e-9, abs_tol=1e-15)
    assert math.isclose(run.seconds, costs.pairwise_all_to_all(4 * count * p, p, LINK), rel_tol=1e-9, abs_tol=1e-15)


@given(worlds, st.integers(0, 10**6))
def test_exact_costs_are_the_formulas_where_parts_are_even(p, share):
    """n divides by p and by the powers of 2; and chunks are as many as hardware/costs.py has none."""
    count = share * p * 16
    pairs = [
        (ring.all_reduce_cost(count, p), costs.ring_all_reduce),
        (star.all_reduce_cost(count, p), costs.star_all_reduce),
        (star_in_chunks.all_reduce_cost(count, p, 16), partial(costs.star_in_chunks_all_reduce, chunks=16)),
        (direct.all_reduce_cost(count, p), costs.direct_all_reduce),
        (tree.all_reduce_cost(count, p), costs.tree_all_reduce),
        (halving.all_reduce_cost(count, p), costs.halving_doubling_all_reduce),
        (halving.all_reduce_cost(count, p, first="farthest"), costs.halving_doubling_all_reduce),
        (doubling.all_reduce_cost(count, p), costs.recursive_doubling_all_reduce),
        (ring.reduce_scatter_cost([4 * size for size in part_sizes(count, p)]), costs.ring_reduce_scatter),
        (ring.all_gather_cost([4 * size for size in part_sizes(count, p)]), costs.ring_all_gather),
        (direct.reduce_scatter_cost([4 * size for size in part_sizes(count, p)]), costs.direct_reduce_scatter),
        (direct.all_gather_cost([4 * size for size in part_sizes(count, p)]), costs.direct_all_gather),
        (tree.broadcast_cost(4 * count, p), costs.tree_broadcast),
        (tree.reduce_cost(4 * count, p), costs.tree_reduce),
    ]
    for exact, formula in pairs:
        assert math.isclose(exact.seconds(LINK), formula(4 * count, p, LINK), rel_tol=1e-9)


@given(st.integers(2, 64), st.integers(1, 10**6))
def test_a_ring_sends_two_p_minus_one_over_p(p, share):
    assert ring.all_reduce_cost(share * p, p).sent == [2 * (p - 1) * share * 4] * p


@given(st.integers(2, 64), st.integers(1, 10**6))
def test_a_direct_exchange_sends_what_a_ring_sends_in_two_steps(p, share):
    one, other = direct.all_reduce_cost(share * p, p), ring.all_reduce_cost(share * p, p)
    assert one.sent == other.sent and one.messages == other.messages
    assert len(one.steps) == 2
    assert one.seconds(LINK) <= other.seconds(LINK) * (1 + 1e-9)


@given(st.integers(2, 64), st.integers(1, 10**6))
def test_chunks_halve_the_bytes_time_of_a_star(p, count):
    """Without latency; with m chunks m + 1 of 2 m are left."""
    free = Link("free", 0.0, 1e9)
    whole_star, chunked = star.all_reduce_cost(16 * count, p), star_in_chunks.all_reduce_cost(16 * count, p, 16)
    assert chunked.sent == whole_star.sent
    assert math.isclose(chunked.seconds(free) / whole_star.seconds(free), 17 / 32, rel_tol=1e-9)


@given(st.integers(1, 64), st.integers(0, 1000))
def test_ring_and_tree_send_as_much_in_all(p, count):
    """2(p-1) n, of an all-reduce. A ring deals it out; of a tree some ranks send more than others."""
    assert sum(ring.all_reduce_cost(count, p).sent) == sum(tree.all_reduce_cost(count, p).sent) == 8 * (p - 1) * count


@given(st.integers(2, 16), st.integers(1, 10**7))
def test_best_chunks(p, count):
    best = chain.best_chunks(4 * count, p, LINK)
    times = [
        chain.broadcast_cost(count, p, chunks=chunks).seconds(LINK) for chunks in (best, 2 * best, max(1, best // 2))
    ]
    assert times[0] <= min(times) * 1.001


@example(2, 24.5, 0.0, 1e9)
@given(
    st.integers(1, 12),
    st.one_of(st.integers(0, 60), st.floats(0.5, 60)),
    st.sampled_from([0.0, 1e-9, 1e-6]),
    st.sampled_from([1e6, 1e9, math.inf]),
)
def test_no_number_of_chunks_is_better_than_the_best(p, nbytes, latency, bandwidth):
    """Without latency each byte goes alone; where nothing waits, or takes time, one chunk is as good as any."""
    link = Link("any", latency, bandwidth)
    seconds = {m: (p - 2 + m) * costs.p2p_time(nbytes / m, link) for m in range(1, max(1, int(nbytes)) + 1)}
    best = chain.best_chunks(nbytes, p, link)
    assert seconds[best] <= min(seconds.values()) * (1 + 1e-9)
    if p <= 2 or bandwidth == math.inf:
        assert best == 1


# Which algorithm wins.


def all_reduce_seconds(library, count, p):
    def program():
        library.all_reduce(torch.empty(count))

    return measured(program, p).seconds


def crossover(steps, sent, p):
    """Bytes at which ``steps`` alpha + ``sent`` n/beta equals that of a ring."""
    ring_steps, ring_sent = 2 * (p - 1), 2 * (p - 1) / p
    return (ring_steps - steps) * LINK.latency * LINK.bandwidth / (sent - ring_sent)


@pytest.mark.parametrize("p", [4, 8, 16])
def test_tree_and_ring_cross_over_where_the_formulas_say(p):
    levels = p.bit_length() - 1
    count = crossover(2 * levels, 2 * levels, p) / 4
    below, above = int(0.98 * count), int(1.02 * count)
    assert all_reduce_seconds(tree, below, p) < all_reduce_seconds(ring, below, p)
    assert all_reduce_seconds(tree, above, p) > all_reduce_seconds(ring, above, p)


@pytest.mark.parametrize("p", [5, 6, 9])
def test_halving_and_ring_cross_over_where_p_is_no_power_of_2(p):
    """The ranks beyond the power send everything twice more."""
    power = power_of_2.power_of_2(p)
    levels = power.bit_length() - 1
    count = crossover(2 * levels + 2, 2 * (power - 1) / power + 2, p) / 4
    below, above = int(0.98 * count), int(1.02 * count)
    assert all_reduce_seconds(halving, below, p) < all_reduce_seconds(ring, below, p)
    assert all_reduce_seconds(halving, above, p) > all_reduce_seconds(ring, above, p)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_doubling_takes_the_fewest_steps_and_halving_the_fewest_bytes(p):
    for library in (star, tree, ring, halving):
        assert all_reduce_seconds(doubling, 1, p) <= all_reduce_seconds(library, 1, p)
        assert all_reduce_seconds(halving, 160_000, p) <= all_reduce_seconds(library, 160_000, p)
    if p > 2:
        assert all_reduce_seconds(doubling, 1, p) < all_reduce_seconds(halving, 1, p)
        assert all_reduce_seconds(doubling, 160_000, p) > all_reduce_seconds(halving, 160_000, p)


@pytest.mark.parametrize("count", [16, 160_000])
def test_halving_beats_both_where_p_is_a_power_of_2(count):
    assert all_reduce_seconds(halving, count, 8) < all_reduce_seconds(ring, count, 8)
    assert all_reduce_seconds(halving, count, 8) <= all_reduce_seconds(tree, count, 8)


# Two levels.


def run_hierarchical(nodes, per_node, count, cluster):
    def program():
        mesh = init_device_mesh("cpu", (nodes, per_node), mesh_dim_names=("node", "device"))
        hierarchical.all_reduce(torch.empty(count), mesh["device"].get_group(), mesh["node"].get_group())

    return measured(program, nodes * per_node, cluster=cluster)


@pytest.mark.parametrize("nodes, per_node", [(1, 4), (4, 1), (2, 3), (3, 4)])
@pytest.mark.parametrize("count", [0, 7, 240])
def test_hierarchical_costs(nodes, per_node, count):
    cluster = Cluster("A100 80GB", per_node, "NVSwitch (A100)", nodes, "InfiniBand HDR").communication_alone
    run = run_hierarchical(nodes, per_node, count, cluster)
    inside, across = hierarchical.all_reduce_cost(count, per_node, nodes)
    assert_costs(run, inside.then(across))
    expected = inside.seconds(cluster.intra_node) + across.seconds(cluster.inter_node_shared)
    assert math.isclose(run.seconds, expected, rel_tol=1e-9)


@pytest.mark.parametrize("count", [32, 3200, 320_000])
def test_hierarchical_beats_a_flat_ring_by_the_factor_of_the_formulas(count):
    flat = measured(lambda: ring.all_reduce(torch.empty(count)), 32, cluster=FOUR_BY_EIGHT)
    levels = run_hierarchical(4, 8, count, FOUR_BY_EIGHT)
    inside, between = FOUR_BY_EIGHT.intra_node, FOUR_BY_EIGHT.inter_node_shared
    formula = costs.ring_all_reduce(4 * count, 32, FOUR_BY_EIGHT.ring_link(range(32)))
    formula /= costs.hierarchical_all_reduce(4 * count, 8, 4, inside, between)
    assert math.isclose(flat.seconds / levels.seconds, formula, rel_tol=1e-9)
    assert formula > 5


def test_nothing_between_nodes_but_a_share():
    """Of the flat ring's bytes only 4 links of 32 cross; hierarchical: every rank sends 2(k-1)/k of 1/g."""
    count = 320
    run = run_hierarchical(4, 8, count, FOUR_BY_EIGHT)
    across = [sum(run.traffic[a][b] for b in range(32) if a // 8 != b // 8) for a in range(32)]
    assert [round(nbytes) for nbytes in across] == [2 * 3 * count * 4 // 8 // 4] * 32


def leaving(run, per_node):
    """Bytes that the first node sends to others."""
    return round(sum(sum(row[per_node:]) for row in run.traffic[:per_node]))


BOXES = Cluster("A100 80GB", 4, "PCIe 4", 4, "Ethernet 100", cards_per_node=1).communication_alone
TWO_BY_EIGHT = A100_NODE.pod(2).communication_alone


@pytest.mark.parametrize("cluster", [BOXES, TWO_BY_EIGHT, FOUR_BY_EIGHT], ids=str)
@pytest.mark.parametrize("first", ["nearest", "farthest"])
def test_halving_over_nodes_costs_what_the_order_of_partners_makes_it(cluster, first):
    count, levels = 32 * 10**4, (cluster.devices_per_node, cluster.nodes)
    run = measured(lambda: halving.all_reduce(torch.empty(count), first=first), cluster.size, cluster=cluster)
    formula = costs.halving_doubling_over_nodes(
        4 * count, *levels, cluster.intra_node, cluster.inter_node_shared, first
    )
    assert math.isclose(run.seconds, formula, rel_tol=1e-9)
    assert_costs(run, halving.all_reduce_cost(count, cluster.size, first=first))


@pytest.mark.parametrize("cluster", [BOXES, TWO_BY_EIGHT, FOUR_BY_EIGHT], ids=str)
def test_nearest_first_only_a_part_leaves_the_node(cluster):
    """2 (k-1)/k n of a node of g ranks, as hierarchical; farthest first each rank sends as much: g times that."""
    g, k, count = cluster.devices_per_node, cluster.nodes, 32 * 10**3
    for first, times in (("nearest", 1), ("farthest", g)):
        run = measured(lambda: halving.all_reduce(torch.empty(count), first=first), cluster.size, cluster=cluster)
        assert leaving(run, g) == times * 2 * (k - 1) * 4 * count // k


@pytest.mark.parametrize("numbers", [(3, 2), (2, 6)])
def test_halving_over_nodes_wants_powers_of_2(numbers):
    with pytest.raises(ValueError, match=r"halving_doubling_over_nodes: .* must be a power of 2, got [36]"):
        costs.halving_doubling_over_nodes(1, *numbers, LINK, LINK)


def run_multi_ring(nodes, per_node, count, cluster):
    return measured(lambda: multi_ring.all_reduce(torch.empty(count), per_node), nodes * per_node, cluster=cluster)


@pytest.mark.parametrize("nodes, per_node", [(1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (3, 4)])
@pytest.mark.parametrize("count", [0, 7, 240, 24_000])
def test_multi_ring_costs(nodes, per_node, count):
    cluster = Cluster("A100 80GB", per_node, "NVSwitch (A100)", nodes, "InfiniBand HDR").communication_alone
    run = run_multi_ring(nodes, per_node, count, cluster)
    inside, across = multi_ring.all_reduce_cost(count, per_node, nodes)
    assert_costs(run, inside.then(across))
    between = [sum(row[rank] for rank in range(len(row)) if rank // per_node != mine // per_node)
               for mine, row in enumerate(run.traffic)]  # fmt: skip
    assert [round(nbytes) for nbytes in between] == across.sent
    at_most = max(inside.seconds(cluster.intra_node), across.seconds(cluster.inter_node_shared))
    assert run.seconds <= at_most * (1 + 1e-9)
    if count % (per_node * per_node * nodes) == 0:
        formula = costs.multi_ring_all_reduce(4 * count, per_node, nodes, cluster.intra_node, cluster.inter_node_shared)
        assert math.isclose(run.seconds, formula, rel_tol=1e-9) and math.isclose(at_most, formula, rel_tol=1e-9)


def test_multi_ring_sends_a_flat_rings_bytes_through_all_cards():
    count = 16 * 8 * 100
    flat = measured(lambda: ring.all_reduce(torch.empty(count)), 16, cluster=TWO_BY_EIGHT)
    multi = run_multi_ring(2, 8, count, TWO_BY_EIGHT)
    by_card = [round(sum(row[8:])) for row in multi.traffic[:8]]
    assert by_card == [leaving(flat, 8) // 8] * 8 and leaving(flat, 8) == 2 * 15 * 4 * count // 16


def test_multi_ring_is_faster_than_a_flat_ring_and_at_large_sizes_than_hierarchical():
    """All links work at once; but each of its steps waits for the network."""
    inside, between = TWO_BY_EIGHT.intra_node, TWO_BY_EIGHT.inter_node_shared
    for nbytes, wins in ((10**8, False), (10**9, True)):
        multi = costs.multi_ring_all_reduce(nbytes, 8, 2, inside, between)
        assert (multi < costs.hierarchical_all_reduce(nbytes, 8, 2, inside, between)) == wins
        assert multi < costs.ring_all_reduce(nbytes, 16, between) / 5


def test_tiny_tensors_take_many_rings_as_long_as_one():
    """They run side by side: no ring waits for another's latency."""
    inside, between = TWO_BY_EIGHT.intra_node, TWO_BY_EIGHT.inter_node_shared
    assert math.isclose(costs.multi_ring_all_reduce(8, 8, 2, inside, between), 30 * between.latency, rel_tol=1e-3)


def test_multi_ring_needs_full_nodes():
    with pytest.raises(ValueError, match=r"multi_ring: the number of ranks \(6\) must be divisible by per_node \(4\)"):
        tinydist.launch(lambda: multi_ring.all_reduce(torch.ones(6), 4), 6)
