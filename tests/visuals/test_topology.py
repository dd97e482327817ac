"""Every device is drawn, and loads are bytes over bandwidth and time."""

import pytest
from visuals.some_runs import ring, run_of, star

import tinydist
from tinydist import visuals
from tinydist.hardware import CLUSTERS, Cluster
from tinydist.visuals.topology import loads


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("name", CLUSTERS)
def test_devices_and_links_of_a_cluster(name, capsys):
    where = CLUSTERS[name]
    found = texts(visuals.cluster(where))
    ranks = [str(rank) for rank in range(min(where.size, 16))]
    assert [text for text in found if text.isdigit()] == ranks
    assert any(text.startswith(str(where.inside)) for text in found)
    assert any(text.startswith(str(where.between)) for text in found) == (where.nodes > 1)
    assert f"{where.nodes} node" in capsys.readouterr().out


def test_more_nodes_than_can_be_drawn_are_told():
    assert any(text.endswith("and 2 more nodes") for text in texts(visuals.cluster(CLUSTERS["H100 pod"])))


def test_the_load_of_a_star(capsys):
    run = run_of("star")
    visuals.cluster(run)
    root = 3 * 4_000_000 / run.cluster.inside.bandwidth / run.seconds
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
    assert any(text.split()[-1] == str(part) for text in texts(figure))


def test_the_same_run_on_another_cluster(capsys):
    run = tinydist.launch(star, 4)
    visuals.cluster(run.on("PCIe box"))
    assert "PCIe 4, 31.5 GB/s inside" in capsys.readouterr().out
