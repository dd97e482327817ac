"""The matrix and the totals are the run's."""

import numpy as np
import pytest
from visuals.some_runs import run_of

from tinydist import visuals


@pytest.mark.parametrize("name", ["star", "ring", "two nodes", "many ranks", "alone"])
def test_cells_and_totals(name):
    run = run_of(name)
    left, right = visuals.traffic(run).axes
    np.testing.assert_allclose(left.images[0].get_array(), run.traffic, atol=1)
    sent, received = np.sum(run.traffic, axis=1), np.sum(run.traffic, axis=0)
    drawn = [1e6 * bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(drawn, [*sent, *received], atol=1)


@pytest.mark.parametrize("name, numbers", [("star", ["4.00"] * 6), ("ring", ["7.00"] * 8), ("many ranks", [])])
def test_numbers_while_they_fit(name, numbers):
    left, _ = visuals.traffic(run_of(name)).axes
    assert [text.get_text() for text in left.texts] == numbers


@pytest.mark.parametrize(
    "name, line",
    [
        ("star", "4 ranks sent 24.0 MB in all: the busiest is rank 0, which sent 12.0 MB and received 12.0 MB\n"),
        ("alone", "1 rank sent nothing\n"),
        ("ring", "8 ranks sent 56.0 MB in all: each sent 7.00 MB and received as much\n"),
    ],
)
def test_the_busiest_rank_is_named(name, line, capsys):
    visuals.traffic(run_of(name))
    assert capsys.readouterr().out == line
