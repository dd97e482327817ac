"""A layer on the virtual clock: published times; in an NVLink domain and across it; on a ring."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tinydist.hardware import TILES
from tinydist.hardware.costs import ring_all_gather, ring_all_reduce
from tinydist.hardware.published import LAYERS

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "tensor_parallel.py"))
NODE, SLOWER, CASES, seconds = (BENCHMARK[name] for name in ("NODE", "SLOWER", "CASES", "seconds"))
BSH = 4 * 2048 * 6144 * 2  # bytes


@pytest.mark.parametrize("name", CASES)
def test_within_10_percent_of_what_was_published(name):
    """Korthikanti et al. 2022, table 4, overlapped as in the paper (section 6.2, and layers.py of its Megatron-LM,
    9dc3c42). No number is fitted to it: products, memory, wires, tiles and contention were measured elsewhere. But
    that these are what is counted was decided when the times were known.
    """
    found, published = seconds(*CASES[name], overlap=True, cluster=SLOWER), LAYERS[name]
    assert found[0] == pytest.approx(published.forward, rel=0.02)
    assert found[1] == pytest.approx(published.backward, rel=0.09)


def test_what_makes_backward_slower_comes_nearer_one_by_one():
    """A fifth is missing if gradients are added, and products at their best. Shapes, the power limit, collectives
    beside: 4, 4, 2 %. What is left is not known."""
    clusters = NODE, NODE.at(tiles=TILES["A100"]), replace(SLOWER, contention=0.0), SLOWER
    parts = [seconds(overlap=True, cluster=each)[1] / LAYERS["22B"].backward for each in clusters]
    assert parts == pytest.approx([0.836, 0.876, 0.917, 0.938], abs=0.001)


def test_what_backward_sends_hides_behind_the_gradients_of_weights():
    """Two all-reduces: as much as forward waits for. What is left is what must be waited for."""
    forward, one_by_one = seconds()
    same, overlapped = seconds(overlap=True)
    assert same == forward
    assert one_by_one - overlapped == pytest.approx(2 * ring_all_reduce(BSH, 8, NODE.intra_node), rel=0.01)


def test_a_ring_hides_most_of_what_forward_sends():
    """2 gathers and 2 scatters of 1/8 a message: all but the first of each pass behind a product."""
    waiting, _ = seconds("save")
    ring, _ = seconds("overlap")
    assert 0.6 < (waiting - ring) / (4 * ring_all_gather(BSH, 8, NODE.intra_node)) < 1


def test_inside_of_an_nvlink_domain_and_across_it():
    """2, 4, 8 ranks of one node; the same 8 on two nodes, on four, on eight, each with a network card a GPU."""
    times = {ranks: sum(seconds(ranks=ranks)) for ranks in (2, 4, 8)}
    across = [sum(seconds(cluster=replace(NODE, devices_per_node=8 // nodes, nodes=nodes))) for nodes in (2, 4, 8)]
    assert times[2] > 1.8 * times[4] > 1.8 * 1.6 * times[8]
    assert times[8] < across[0] < across[1] < across[2]
    assert across[2] > 2 * times[8]
