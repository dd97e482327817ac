"""Sizes of numbers, in powers of two."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals


def test_each_number_is_in_a_bin(capsys):
    figure = visuals.histograms({"few": [1.0, -1.0, 2.0], "many": [2.0**n for n in range(-20, 5)]}, below=("zero", -10))
    few, many = figure.axes
    assert sum(bar.get_height() for bar in few.patches if hasattr(bar, "get_height")) >= 3
    assert few.get_xlim() == many.get_xlim() and few.get_xlim()[0] < -20
    assert written(figure).count("zero") == 1
    assert capsys.readouterr().out == "few: 3 numbers; many: 25 numbers\n"
    assert_can_be_read(figure)


def test_one_histogram_alone_can_be_read():
    assert_can_be_read(visuals.histograms({"one": [0.5, 0.25]}, "size"))


def test_zero_has_no_power():
    with pytest.raises(ValueError, match=r"^histograms: 0 has no power of two, and 1 number of 'a' is 0$"):
        visuals.histograms({"a": [1.0, 0.0]})
