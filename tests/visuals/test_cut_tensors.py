"""A part lies where it lies in the whole; a copy is grey; a summand is told from both."""

import pytest
import torch
import torch.distributed as dist
from matplotlib.colors import to_hex
from visuals.drawn import assert_can_be_read, written

import tinydist
from tinydist import visuals
from tinydist.visuals.cut_tensors import summand_color
from tinydist.visuals.palette import GREY, RANKS

COLUMNS = {"x": (6, 8), "×": None, "W": (8, 8), "=": None, "y": (6, 8)}
ROWS = {"x": (6, 8), "×": None, "W": (8, 8), "=": None, "summand": (6, 8)}


def held(name, tensor, dim=None):
    return tinydist.label(tensor.clone(), name, None if dim is None else dist.get_rank(), dim or 0)


def mine(tensor, dim):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def both_ways():
    x, weight = torch.ones(6, 8), torch.ones(8, 8)
    kept = [
        held("by columns.x", x),
        held("by columns.W", mine(weight, 1), 1),
        held("by columns.y", x @ mine(weight, 1), 1),
        held("by rows.x", mine(x, 1), 1),
        held("by rows.W", mine(weight, 0), 0),
        held("by rows.summand", mine(x, 1) @ mine(weight, 0)),
    ]
    tinydist.mark("there")
    return kept


def drawn(ranks, panels=None):
    run = tinydist.launch(both_ways, ranks, backend="simulated")
    return visuals.cut_tensors(run, "there", panels or {"by columns": COLUMNS, "by rows": ROWS}, ["summand"])


def filled(figure):
    [axes] = figure.axes
    found = []
    for part in axes.collections:
        if part.get_zorder() == 3:
            found += zip(map(to_hex, part.get_facecolor()), (path.get_extents() for path in part.get_paths()))
    return found


def test_parts_copies_and_summands_are_told_apart():
    colors = [color for color, _ in filled(drawn(2))]
    assert colors.count(to_hex(GREY)) == 2  # x, by columns
    assert [colors.count(to_hex(RANKS[rank])) for rank in (0, 1)] == [4, 4]
    assert [colors.count(summand_color(rank)) for rank in (0, 1)] == [1, 1]


def test_a_part_lies_in_its_place():
    boxes = [box for color, box in filled(drawn(2)) if color == to_hex(RANKS[1])]
    columns, rows = boxes[0], boxes[3]  # of W
    assert columns.height == pytest.approx(2 * columns.width)
    assert rows.width == pytest.approx(2 * rows.height)


def test_one_line_says_what_the_first_rank_holds(capsys):
    drawn(2)
    said = " ".join(capsys.readouterr().out.split())
    assert said == "by columns: x whole, W columns, y columns; by rows: x columns, W rows, summand a summand"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_can_be_read(ranks):
    figure = drawn(ranks)
    assert {"by columns", "by rows", "×", "=", "+", "rank 1", "whole, a copy on each rank"} <= set(written(figure))
    assert_can_be_read(figure)


def test_wide_ones_stand_under_one_another():
    def half_a_block():
        kept = [held(f"{panel}.{name}", torch.ones(4, 8), 0) for panel in ("a", "b") for name in ("x", "up", "down")]
        tinydist.mark("there")
        return kept

    shapes = {"x": (16, 32), "up": (16, 128), "down": (16, 128)}
    run = tinydist.launch(half_a_block, 4, backend="simulated")
    figure = visuals.cut_tensors(run, "there", {"a": shapes, "b": shapes})
    assert figure.get_size_inches()[1] > 2 * 4 * 0.2
    assert_can_be_read(figure)


def test_what_is_held_by_nobody_is_empty(capsys):
    assert drawn(2, {"by columns": COLUMNS, "elsewhere": {"x": (6, 8)}})
    assert "elsewhere: x nothing" in capsys.readouterr().out
