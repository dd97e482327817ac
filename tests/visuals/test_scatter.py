"""Each point stands where it should, with its name beside it."""

from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

POINTS = {"GPipe": (8.0, 33.0), "1F1B": (4.0, 33.0), "interleaved": (5.5, 28.5), "on the line": (4.0, 24.0)}


def test_points_and_their_names(capsys):
    figure = visuals.scatter(POINTS, "held", "seconds", ("nobody waits", 24.0))
    [axes] = figure.axes
    drawn = [tuple(line.get_xydata()[0]) for line in axes.lines if len(line.get_xydata()) == 1]
    assert drawn == list(POINTS.values())
    assert {*POINTS, "nobody waits"} <= {*written(figure)}
    said = "GPipe: 8, 33; 1F1B: 4, 33; interleaved: 5.50, 28.5; on the line: 4, 24 [held, seconds]"
    assert " ".join(capsys.readouterr().out.split()) == said
    assert_can_be_read(figure)


def test_one_point_without_a_line():
    assert_can_be_read(visuals.scatter({"alone": (1.0, 2.0)}, "x", "y"))
