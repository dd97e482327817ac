"""The cells are the tables'."""

import numpy as np
import torch

from tinydist import visuals


def test_a_table_for_each_title(capsys):
    tables = {"causal": torch.ones(3, 3).tril().bool(), "weights": [[0.5, 0.5], [0.0, 1.0]]}
    axes = visuals.matrices(tables, "query", "key").axes
    for each, (title, table) in zip(axes, tables.items(), strict=True):
        np.testing.assert_array_equal(each.images[0].get_array(), np.asarray(table, dtype=float))
        assert each.get_title() == title and each.get_xlabel() == "key"
    assert [each.get_ylabel() for each in axes] == ["query", ""]
    assert capsys.readouterr().out == "causal: 6 of 9; weights: 3 of 4\n"


def test_nothing_at_all_is_white():
    [axes] = visuals.matrices({"none": torch.zeros(2, 40)}, "row", "column").axes
    assert axes.images[0].to_rgba(0.0) == (1.0, 1.0, 1.0, 1.0)
    assert axes.images[0].get_clim() == (0, 1)
