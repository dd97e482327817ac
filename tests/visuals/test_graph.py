"""A box stands below all that it needs, and arrows lead down."""

from itertools import pairwise

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist.visuals.graph import BOX, Passing, graph, placed, places, width_of

NAMES = {"a": "first", "b": "second", "c": "third", "d": "fourth"}
ARROWS = [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]


def test_boxes_have_names_and_arrows_lead_to_what_needs_them(said):
    figure = graph(NAMES, ARROWS)
    assert sorted(written(figure)) == sorted(NAMES.values())
    assert said() == "boxes: 4; arrows: 4\n"
    assert figure.alt.startswith("second needs first; third needs second;")
    assert_can_be_read(figure)


def test_each_stands_below_all_that_it_needs():
    rows, paths = placed(NAMES, ARROWS)
    row_of = {each: number for number, row in enumerate(rows) for each in row}
    assert [row_of[key] for key in "abcd"] == [0, 1, 2, 1]
    assert [(path[0], path[-1]) for path in paths] == ARROWS
    assert all(row_of[below] == row_of[above] + 1 for path in paths for above, below in pairwise(path))


def test_a_row_has_room_for_five_and_others_stand_below():
    names = {str(number): "a name" for number in range(8)}
    arrows = [("0", each) for each in list(names)[1:]]
    rows, paths = placed(names, arrows)
    assert [len([each for each in row if each in names]) for row in rows] == [1, 5, 2]
    passed = {path[1] for path in paths if len(path) > 2}
    assert passed == {Passing("0", 1)} and rows[1].count(Passing("0", 1)) == 1  # both arrows go through one place
    assert_can_be_read(graph(names, arrows))


def test_a_row_is_centered():
    row = ["a", Passing("c", 1), "b"]
    assert sum(x for _, x in places(row)) == pytest.approx(0)
    assert places_are_within(row)


def places_are_within(row):
    return all(abs(x) < width_of(row) / 2 for _, x in places(row))


def test_an_arrow_to_nothing_is_named():
    with pytest.raises(ValueError, match=r"^graph: an arrow leads from or to 'z', which has no name$"):
        graph(NAMES, [("a", "z")])


def test_two_boxes_can_be_read():
    assert_can_be_read(graph({"a": "the first of all", "b": "the second"}, [("a", "b")]))


def test_keys_may_be_numbers():
    """A box is a box, and an arrow passes beside it."""
    rows, _ = placed({0: "x", 1: "mul", 2: "add"}, [(0, 1), (1, 2), (0, 2)])
    (box, at), (_, beside) = sorted(places(rows[1]), key=lambda each: each[0] != 1)
    assert box == 1 and abs(at - beside) > BOX / 2
