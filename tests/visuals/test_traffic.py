"""The matrix and the totals are the run's."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from visuals.some_runs import run_of

from tinydist import visuals
from tinydist.visuals.palette import ORANGE, RED, tint


def cells(table):
    """(source, destination) -> its color."""
    collection = table.collections[0]
    middles = [path.vertices[:4].mean(axis=0) for path in collection.get_paths()]
    return {(round(y), round(x)): tuple(color) for (x, y), color in zip(middles, collection.get_facecolor())}


@pytest.mark.parametrize("name", ["star", "ring", "two nodes", "many ranks", "alone"])
def test_cells_and_totals(name):
    run = run_of(name)
    above, _, table, beside = visuals.traffic(run).axes
    assert set(cells(table)) == {(int(a), int(b)) for a, b in zip(*np.nonzero(run.traffic))}
    sent, received = np.sum(run.traffic, axis=1), np.sum(run.traffic, axis=0)
    size = {"alone": 1, "two nodes": 1e6}.get(name, 1e6)
    ranks = len(run.traffic)
    tall, wide = [bar.get_height() for bar in above.patches], [bar.get_width() for bar in beside.patches]
    np.testing.assert_allclose(size * np.reshape(tall, (2, ranks)).sum(0), received, atol=1)
    np.testing.assert_allclose(size * np.reshape(wide, (2, ranks)).sum(0), sent, atol=1)


@pytest.mark.parametrize("name, numbers", [("star", ["4.00"] * 6), ("ring", ["7.00"] * 8), ("many ranks", [])])
def test_numbers_while_they_fit(name, numbers):
    *_, table, _ = visuals.traffic(run_of(name)).axes
    assert [text.get_text() for text in table.texts] == numbers


def test_bytes_that_leave_their_node_are_red_and_lines_stand_between_nodes():
    _, corner, table, beside = visuals.traffic(run_of("two nodes")).axes
    colors = cells(table)
    assert all(color == to_rgba(ORANGE) for (a, b), color in colors.items() if a // 4 == b // 4)
    red = {color for (a, b), color in colors.items() if a // 4 != b // 4}
    assert red == {to_rgba(tint(RED, 0.5 * (1 - 1 / 6)))}  # a sixth of what is sent inside
    assert [line.get_xdata()[0] for line in table.lines[1::2]] == [3.5]
    assert [text.get_text() for text in corner.get_legend().get_texts()] == ["inside a node", "to another node"]
    assert beside.patches[0].get_facecolor() == to_rgba(RED) and beside.patches[0].get_width() > 0


def test_a_message_goes_from_a_row_to_a_column():
    *_, table, _ = visuals.traffic(run_of("ring")).axes
    assert (table.get_ylabel(), table.get_xlabel()) == ("from rank", "to rank (MB)")
    assert (7, 0) in cells(table) and (0, 7) not in cells(table)


def test_a_title_stands_above_all_of_it():
    figure = visuals.traffic(run_of("two nodes"), title="nearest first")
    above = figure.axes[0].title.get_window_extent()
    title = figure.texts[0].get_window_extent()
    assert figure.get_suptitle() == "nearest first" and title.y0 > above.y1
    assert visuals.traffic(run_of("two nodes")).get_suptitle() == ""


def test_its_words():
    assert visuals.traffic(run_of("two nodes")).alt == (
        "A table of the bytes from each of 8 ranks to each: 16 of 64 cells are filled, the most with 151 MB, "
        "from rank 0 to rank 1; 14 % of all bytes go from node to node."
    )


@pytest.mark.parametrize(
    "name, line",
    [
        ("star", "4 ranks sent 24.0 MB in all: the busiest is rank 0, which sent 12.0 MB and received 12.0 MB\n"),
        ("alone", "1 rank sent nothing\n"),
        (
            "two nodes",
            "8 ranks sent 1.41 GB in all: each sent 176 MB and received as much; 201 MB left their node\n",
        ),
        ("ring", "8 ranks sent 56.0 MB in all: each sent 7.00 MB and received as much\n"),
    ],
)
def test_the_busiest_rank_is_named(name, line, said):
    visuals.traffic(run_of(name))
    assert said() == line


def test_two_pictures_with_one_axis():
    ends = [visuals.traffic(run_of(name), longest=64e6).axes[-1].get_xlim() for name in ("star", "ring")]
    assert ends == [(0, 64), (0, 64)]
    assert visuals.traffic(run_of("ring"), longest=1).axes[-1].get_xlim()[1] > 1  # at least what was sent
