"""Clusters: where ranks are, which link joins them, what a message holds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.hardware import CLUSTERS, Cluster, default_cluster, find_cluster
from tinydist.hardware.cluster import A100_NODE, B200_POD, H100_NODE, LAPTOP, PCIE_BOX, TWO_BY_FOUR
from tinydist.hardware.devices import H100, INSTANT
from tinydist.hardware.links import ETHERNET_100, INFINIBAND_HDR, NVLINK_3, NVSWITCH_A100

MESH_OF_FOUR = replace(TWO_BY_FOUR, intra_node="NVLink 3")
ONE_CARD = replace(TWO_BY_FOUR, cards_per_node=1)


@st.composite
def clusters(draw):
    devices, nodes = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    inside = draw(st.sampled_from(["NVSwitch (A100)", "NVLink 3", "shared memory"]))
    return Cluster("A100 80GB", devices, inside, nodes, "InfiniBand HDR", draw(st.integers(1, devices)))


@st.composite
def pairs(draw):
    """A cluster of two ranks or more, and two different ones of them."""
    cluster = draw(clusters().filter(lambda cluster: cluster.size > 1))
    ranks = st.integers(0, cluster.size - 1)
    return cluster, *draw(st.lists(ranks, min_size=2, max_size=2, unique=True))


@given(clusters())
def test_ranks_fill_one_node_after_the_other(cluster):
    places = [(cluster.node_of(rank), cluster.local_rank(rank)) for rank in range(cluster.size)]
    assert places == [(node, local) for node in range(cluster.nodes) for local in range(cluster.devices_per_node)]


@given(pairs())
def test_the_way_back_is_the_same_link_the_other_way_round(drawn):
    cluster, a, b = drawn
    assert cluster.link(a, b) == cluster.link(b, a)
    there, back = cluster.resources(a, b), cluster.resources(b, a)
    if there[0].kind == "bus":
        assert there == back
    else:  # both directions at once, at full speed
        assert set(there).isdisjoint(back)


@given(pairs())
def test_only_messages_between_nodes_hold_cards(drawn):
    cluster, a, b = drawn
    kinds = {resource.kind for resource in cluster.resources(a, b)}
    if cluster.node_of(a) == cluster.node_of(b):
        assert kinds in ({"port out", "port in"}, {"wire"}, {"bus"})
    else:
        assert kinds == {"card out", "card in"}
        assert cluster.link(a, b) is cluster.inter_node


@given(clusters())
def test_cards_are_shared_as_evenly_as_can_be(cluster):
    users = [cluster.card_of(rank) for rank in range(cluster.devices_per_node)]
    loads = [users.count(card) for card in range(cluster.cards)]
    assert max(loads) - min(loads) <= 1
    assert cluster.inter_node_shared.bandwidth * max(loads) == pytest.approx(cluster.inter_node.bandwidth)


def test_a_switch_has_a_port_for_each_device():
    assert TWO_BY_FOUR.link(4, 6) is NVSWITCH_A100
    assert TWO_BY_FOUR.resources(4, 6) == (("port out", 1, 0), ("port in", 1, 2))


def test_a_mesh_deals_its_bandwidth_out():
    assert MESH_OF_FOUR.link(0, 3).bandwidth == NVLINK_3.bandwidth / 3
    assert MESH_OF_FOUR.resources(0, 3) == (("wire", 0, (0, 3)),)


def test_a_bus_is_one_for_all():
    assert LAPTOP.resources(0, 1) == LAPTOP.resources(5, 3) == (("bus", 0, 0),)


def test_network_cards():
    assert TWO_BY_FOUR.link(1, 6) is INFINIBAND_HDR
    assert TWO_BY_FOUR.resources(1, 6) == (("card out", 0, 1), ("card in", 1, 2))
    assert ONE_CARD.resources(1, 6) == (("card out", 0, 0), ("card in", 1, 0))
    assert (TWO_BY_FOUR.cards, ONE_CARD.cards, replace(A100_NODE, devices_per_node=4).cards) == (4, 1, 4)
    assert ONE_CARD.inter_node_shared.bandwidth == INFINIBAND_HDR.bandwidth / 4


def test_the_worst_link_paces_a_ring():
    assert TWO_BY_FOUR.ring_link([0, 1, 2, 3]) == NVSWITCH_A100
    assert TWO_BY_FOUR.ring_link(range(8)) == INFINIBAND_HDR
    assert TWO_BY_FOUR.ring_link([5]) is None


def test_presets():
    assert [cluster.size for cluster in CLUSTERS.values()] == [8, 4, 8, 8, 8, 32, 8, 8, 32, 32, 72]
    assert str(TWO_BY_FOUR) == "2 x 4 A100 80GB, NVSwitch (A100) inside, InfiniBand HDR between"
    assert str(Cluster("V100", 1)) == "1 x 1 V100"
    assert len({hash(cluster) for cluster in CLUSTERS.values()}) == len(CLUSTERS)
    assert find_cluster("2 X 4") is TWO_BY_FOUR
    assert PCIE_BOX.pod(2).link(0, 4) is ETHERNET_100
    assert B200_POD.pod(1).size == H100_NODE.size == 8


def test_a_rack_that_nvlink_joins_is_a_node():
    """1.8 TB/s a GPU of both directions, 130 TB/s in all: NVIDIA on the GB200 NVL72."""
    rack = find_cluster("GB200 NVL72")
    assert rack.size == 72 and rack.link(0, 71).bidirectional == 1.8e12
    assert 72 * rack.intra_node.bidirectional == pytest.approx(130e12, rel=0.01)
    assert rack.pod(2).link(71, 72) is rack.inter_node


def test_as_programs_get_it():
    """Latencies and the overhead stay as they are."""
    real = H100_NODE.at(matmul=0.8, memory=0.9, wire=0.75)
    assert real.device.peak_of("bfloat16") == 0.8 * 989e12 and real.device.memory_bandwidth == 0.9 * 3.35e12
    assert (real.intra_node.bandwidth, real.inter_node.bandwidth) == (0.75 * 450e9, 0.75 * 50e9)
    assert real.intra_node.latency == H100_NODE.intra_node.latency
    assert replace(real.device, name="H100", peak=H100.peak, memory_bandwidth=H100.memory_bandwidth) == H100
    assert str(real.device) == "H100 at 80% of its peak, 90% of its memory's bandwidth"
    assert H100_NODE.at().device is H100


@pytest.mark.parametrize("ranks, nodes", [(1, 1), (8, 1), (9, 2), (1024, 128)])
def test_default_grows_with_the_ranks(ranks, nodes):
    assert default_cluster(ranks) == A100_NODE.pod(nodes)
    default_cluster(ranks).check_ranks(ranks)


def test_more_ranks_than_devices():
    TWO_BY_FOUR.check_ranks(8)
    message = "^the cluster has 2 nodes x 4 devices = 8, but 10 ranks were requested$"
    with pytest.raises(ValueError, match=message):
        TWO_BY_FOUR.check_ranks(10)
    with pytest.raises(ValueError, match=r"^the cluster has 1 node x 8 devices = 8, but 9 ranks were requested$"):
        A100_NODE.check_ranks(9)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TWO_BY_FOUR.node_of(8), "the cluster has ranks 0 to 7, but rank 8 was requested"),
        (lambda: TWO_BY_FOUR.link(0, -1), "the cluster has ranks 0 to 7, but rank -1 was requested"),
        (lambda: TWO_BY_FOUR.resources(2, 2), "link: source and destination must differ, both are rank 2"),
        (lambda: find_cluster("moon"), "unknown cluster 'moon'; available: 'laptop', 'PCIe box', .*"),
        (lambda: Cluster("H1000", 1), "unknown device 'H1000'; available: .*"),
        (lambda: Cluster("H100", 0), "Cluster: devices_per_node must be an integer >= 1, got 0"),
        (lambda: H100_NODE.pod(0), "Cluster: nodes must be an integer >= 1, got 0"),
        (lambda: H100_NODE.pod(1.5), "Cluster: nodes must be an integer >= 1, got 1.5"),
        (lambda: Cluster("H100", 2), r"Cluster: devices_per_node \(2\) > 1 requires intra_node, got None"),
        (lambda: LAPTOP.pod(2), r"Cluster: nodes \(2\) > 1 requires inter_node, got None"),
        (
            lambda: replace(H100_NODE, inter_node="NVLink 4"),
            "Cluster: inter_node must be a network, got NVLink 4, a mesh",
        ),
        (
            lambda: replace(H100_NODE, cards_per_node=9),
            "Cluster: cards_per_node must be an integer from 1 to 8, got 9",
        ),
    ],
)
def test_impossible(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


@given(pairs())
def test_communication_alone_keeps_every_link(drawn):
    cluster, a, b = drawn
    alone = cluster.communication_alone
    assert alone.link(a, b) == cluster.link(a, b) and alone.resources(a, b) == cluster.resources(a, b)
    assert alone.device == replace(INSTANT, name=f"{cluster.device}, messages alone")
