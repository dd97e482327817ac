"""What NCCL expects: the laws of its protocols and algorithms, and a published measurement."""

import pytest

from tinydist.hardware import bus_bandwidth, nccl

SIZES = [2**power for power in range(3, 36)]  # bytes
NODES = [1, 2, 3, 8, 64]
BOTH = [(algorithm, protocol) for algorithm in nccl.ALGORITHMS for protocol in nccl.PROTOCOLS]
on_nodes = pytest.mark.parametrize("nodes", NODES)


def test_the_largest_published_all_reduce_is_met():
    nbytes, measured = 16 * 2**30, 234.89e9  # 8 A100s: ml-engineering@744d01e1 network/README.md (read)
    seconds = nccl.seconds(nbytes, 1, "Ring", "Simple")
    assert bus_bandwidth("all_reduce", nbytes, seconds, 8) == pytest.approx(measured, rel=0.03)


def test_sums_of_the_source_done_by_hand():
    assert nccl.seconds(0, 1, "Ring", "LL") == pytest.approx(6.6e-6 + 14 * 0.6e-6)
    assert nccl.seconds(0, 4, "Tree", "LL128") == pytest.approx(14e-6 + 2 * (7 * 1.25e-6 + 2 * 8.5e-6))
    assert nccl.seconds(0, 2, "Ring", "LL128") == pytest.approx(14e-6 + (28 * 2 + 2 * 4) * 1e-6)
    large = 8 * 10**9
    assert nccl.seconds(large, 1, "Ring", "Simple") == pytest.approx(8.4e-6 + 14 * 3.4e-6 + 14e9 / 240e9)
    assert nccl.seconds(large, 1, "Tree", "Simple") == pytest.approx(8.4e-6 + 14 * 4e-6 + 16e9 / 220.8e9)


@on_nodes
@pytest.mark.parametrize("algorithm", nccl.ALGORITHMS)
def test_a_protocol_that_waits_longer_has_more_bandwidth(algorithm, nodes):
    ll, ll128, simple = (nccl.bus(nodes, algorithm, protocol) for protocol in nccl.PROTOCOLS)
    assert ll < ll128 < simple
    assert nccl.seconds(8, nodes, algorithm, "LL") == min(nccl.seconds(8, nodes, algorithm, p) for p in nccl.PROTOCOLS)


@on_nodes
def test_the_choice_takes_the_least(nodes):
    for size in SIZES:
        least = min(nccl.seconds(size, nodes, *each) for each in BOTH)
        assert nccl.seconds(size, nodes, *nccl.choice(size, nodes)) == least


def test_inside_a_node_a_tree_is_a_chain_and_never_chosen():
    assert {algorithm for algorithm, _ in (nccl.choice(size) for size in SIZES)} == {"Ring"}


@pytest.mark.parametrize("nodes", NODES[1:])
def test_over_nodes_small_tensors_go_through_trees_and_large_ones_through_rings(nodes):
    algorithms = [nccl.choice(size, nodes)[0] for size in SIZES]
    assert algorithms == sorted(algorithms, reverse=True)
    assert algorithms[0] == "Tree" and algorithms[-1] == "Ring"


def test_an_unknown_protocol():
    with pytest.raises(ValueError, match="seconds: protocol must be one of LL, LL128, Simple, got 'll'"):
        nccl.seconds(8, 1, "Ring", "ll")
