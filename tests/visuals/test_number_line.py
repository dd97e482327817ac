"""A mark for each number that a format has."""

from visuals.drawn import assert_can_be_read

from tinydist import visuals


def test_a_mark_for_each_number(capsys):
    figure = visuals.number_line({"e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6], "whole": [0, 1, 2]}, "value")
    [axes] = figure.axes
    assert [len(marks.get_segments()) for marks in axes.collections] == [8, 3]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["e2m1", "whole"]
    assert capsys.readouterr().out == "e2m1: 8 numbers from 0 to 6; whole: 3 numbers from 0 to 2\n"
    assert_can_be_read(figure)
    assert_can_be_read(visuals.number_line({f"format {n}": [n, 2 * n + 1] for n in range(6)}))
