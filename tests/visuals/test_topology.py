"""Every device is drawn, and loads are bytes over bandwidth and time."""

import pytest
import torch
import torch.distributed as dist
from visuals.some_runs import ring, run_of, star

import tinydist
from tinydist import visuals
from tinydist.hardware import CLUSTERS, Cluster
from tinydist.visuals.palette import RED
from tinydist.visuals.topology import loads


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("name", CLUSTERS)
def test_devices_and_links_of_a_cluster(name, capsys):
    where = CLUSTERS[name]
    found = texts(visuals.cluster(where))
    ranks = [str(rank) for rank in range(min(where.size, 16))]
    assert [text for text in found if text.isdigit()] == ranks
    assert any(text.startswith(str(where.intra_node)) for text in found)
    assert any(text.startswith(str(where.inter_node)) for text in found) == (where.nodes > 1)
    assert f"{where.nodes} node" in capsys.readouterr().out


def test_more_nodes_than_can_be_drawn_are_told():
    assert any(text.endswith("and 2 more nodes") for text in texts(visuals.cluster(CLUSTERS["H100 pod"])))


def test_the_load_of_a_star(capsys):
    run = run_of("star")
    visuals.cluster(run)
    root = 3 * 4_000_000 / run.cluster.intra_node.bandwidth / run.seconds
    assert max(loads(run).values()) == pytest.approx(root)
    assert f"busiest: port of rank 0, {100 * root:.0f} % of" in capsys.readouterr().out


@pytest.mark.parametrize(
    "where, busiest",
    [
        (Cluster("V100", 4, "NVLink 2"), "wire of ranks 0 and 1"),
        ("laptop", "bus of node 0"),
        (CLUSTERS["PCIe box"].pod(2), "card 0 of node 0"),
    ],
)
def test_wires_buses_and_cards(where, busiest, capsys):
    run = tinydist.launch(ring, 8 if "card" in busiest else 4, cluster=where)
    figure = visuals.cluster(run)
    part = round(100 * max(loads(run).values()))
    assert f"busiest: {busiest}, {part} % of" in capsys.readouterr().out
    assert any(str(part) in text.split() for text in texts(figure))


def red(figure):
    return [text.get_text() for text in figure.axes[0].texts if text.get_color() == RED]


def arrows(figure):
    """(from, to), heights."""
    found = [text for text in figure.axes[0].texts if getattr(text, "arrow_patch", None)]
    return [(arrow.xyann[1], arrow.xy[1]) for arrow in found]


def test_the_busiest_is_red():
    figure = visuals.cluster(run_of("star"))
    assert red(figure) == ["32"] and texts(figure).count("11") == 3


def test_where_all_are_as_busy_none_is_red():
    assert red(visuals.cluster(run_of("ring"))) == []


def test_an_arrow_for_each_direction():
    found = arrows(visuals.cluster(run_of("star")))
    up = [start < end for start, end in found]
    assert len(found) == 8 and up.count(True) == 4
    one_way = tinydist.launch(to_the_next, 2)
    assert [start < end for start, end in arrows(visuals.cluster(one_way))] == [True, False]


def to_the_next():
    x = torch.ones(1000)
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)


def test_very_little_is_not_nothing():
    assert "<1" in texts(visuals.cluster(run_of("training")))


def test_the_same_run_on_another_cluster(capsys):
    run = tinydist.launch(star, 4)
    visuals.cluster(run.on("PCIe box"))
    assert "PCIe 4, 31.5 GB/s inside" in capsys.readouterr().out
