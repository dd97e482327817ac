"""Each seed has its dot, each row its range and mean, and the band is that of its row."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

LOSSES = {"cosine": [2.5, 2.7, 2.6], "1cycle": [2.2, 2.9, 2.4]}


def test_dots_ranges_and_means(capsys):
    figure = visuals.seeds(LOSSES, "loss", band="cosine")
    [axes] = figure.axes
    for place, (name, row) in enumerate(LOSSES.items()):
        line, dots, mean = axes.lines[3 * place : 3 * place + 3]
        assert list(line.get_xdata()) == [min(row), max(row)] and list(dots.get_xdata()) == row
        assert mean.get_xdata()[0] == pytest.approx(sum(row) / 3)
        assert list(dots.get_ydata()) == [place] * 3 and name in written(figure)
    [band] = axes.patches
    assert band.get_x() == 2.5 and band.get_width() == pytest.approx(0.2)
    said = "cosine: 2.60, 2.50 to 2.70; 1cycle: 2.50, 2.20 to 2.90 [loss]"
    assert " ".join(capsys.readouterr().out.split()) == said
    assert_can_be_read(figure)


def test_a_band_of_no_row():
    with pytest.raises(ValueError, match=r"^seeds: band must be one of cosine, 1cycle, got 'wsd'$"):
        visuals.seeds(LOSSES, "loss", band="wsd")
