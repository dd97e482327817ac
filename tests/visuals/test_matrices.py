"""The cells are the tables'."""

import numpy as np
import pytest
import torch

from tinydist import visuals


def test_a_table_for_each_title(capsys):
    tables = {"causal": torch.ones(3, 3).tril().bool(), "weights": [[0.5, 0.5], [0.0, 1.0]]}
    axes = visuals.matrices(tables, "query", "key").axes
    for each, (title, table) in zip(axes, tables.items(), strict=True):
        np.testing.assert_array_equal(each.collections[0].get_array(), np.asarray(table, dtype=float))
        assert each.get_title(loc="left") == title and each.get_xlabel() == "key"
    assert [each.get_ylabel() for each in axes] == ["query", ""]
    assert capsys.readouterr().out == "causal: 6 of 9; weights: 3 of 4\n"


def test_nothing_at_all_is_white():
    [axes] = visuals.matrices({"none": torch.zeros(2, 40)}, "row", "column").axes
    assert axes.collections[0].to_rgba(0.0) == (1.0, 1.0, 1.0, 1.0)
    assert axes.collections[0].get_clim() == (0, 1)


def test_all_cells_have_one_size_and_the_first_row_is_at_the_top():
    tables = {"a": torch.eye(8), "b": torch.ones(2, 8), "a long title": torch.ones(1, 3)}
    axes = visuals.matrices(tables, "row", "column").axes
    sizes = [each.get_window_extent().width / abs(each.get_xlim()[1] - each.get_xlim()[0]) for each in axes]
    assert sizes == [pytest.approx(sizes[0], rel=0.01)] * 3
    tops = [each.get_window_extent().y1 for each in axes]
    assert tops == [pytest.approx(tops[0])] * 3 and axes[0].get_ylim() == (8, 0)


def test_rows_and_columns_have_whole_numbers():
    [axes] = visuals.matrices({"long": torch.ones(17, 62)}, "row", "column").axes
    ticks = [*axes.get_xticks(), *axes.get_yticks()]
    assert len(ticks) > 6 and all(tick == round(tick) for tick in ticks)
