"""Frames show the ledger at their moments, stand beside one another, and share their axis with the bytes below."""

import sys
from itertools import pairwise, product

import pytest
from matplotlib.colors import to_rgba
from sampled import sampled
from visuals.drawn import assert_can_be_read, texts, written
from visuals.named_runs import named_run

from tinydist import visuals
from tinydist.visuals.palette import GREY, RANKS

SECOND = {"since": ("F1", 1)}
RUNS, STATES = ("ddp", "torch ddp", "fsdp", "zero 1", "zero 2", "zero 3"), "optimizer states"


def titles(figure):
    return [
        text.get_text() for text, _ in texts(figure) if text.get_fontweight() == "bold" and text.get_fontsize() == 10
    ]


def test_every_block_has_a_frame_if_there_is_room():
    figure = visuals.ownership_timeline(named_run("fsdp"), **SECOND)
    assert titles(figure) == ["F1", "F2", "F3", "F4", "B4", "B3", "B2", "B1", "Adam"]
    assert_can_be_read(figure)


@pytest.mark.parametrize(
    "name, purpose",
    sampled(
        [*product(RUNS, ["parameters"]), ("torch ddp", "gradients"), ("zero 3", "gradients"), ("zero 2", STATES)],
        product(RUNS, ["parameters", "gradients", STATES]),
    ),
)
def test_it_can_be_read(name, purpose):
    assert_can_be_read(visuals.ownership_timeline(named_run(name), purpose))


def test_chosen_moments_stand_in_their_order():
    figure = visuals.ownership_timeline(named_run("zero 3"), "gradients", moments=["B1", "B4"], **SECOND)
    assert titles(figure) == ["B4", "B1"]


def test_more_moments_than_there_is_room_for_are_named():
    with pytest.raises(ValueError, match=r"ownership_timeline: \d+ frames fit side by side, got 20 moments"):
        visuals.ownership_timeline(named_run("fsdp"), moments=["F1"] * 20)


def test_what_was_never_held_is_named():
    with pytest.raises(ValueError, match="ownership_timeline: rank 0 held no optimizer states, or was not run"):
        visuals.ownership_timeline(named_run("pipeline"), "optimizer states")


def test_what_is_grey_below_is_in_the_legend():
    others, copies = "belongs to others (bytes of rank 0)", "each rank's own copy"
    assert others in written(visuals.ownership_timeline(named_run("zero 3"), **SECOND))
    words = written(visuals.ownership_timeline(named_run("zero 3"), "gradients", **SECOND))
    assert copies in words and others not in words


def test_frames_do_not_touch():
    figure = visuals.ownership_timeline(named_run("fsdp"))
    edges = [part.get_paths() for part in figure.axes[0].collections if part.get_zorder() == 4]
    spans = [(min(p.vertices[:, 0].min() for p in each), max(p.vertices[:, 0].max() for p in each)) for each in edges]
    assert all(left[1] < right[0] for left, right in pairwise(sorted(spans)))
    low, high = figure.axes[0].get_xlim()
    assert low <= min(spans)[0] and max(spans)[1] <= high


def test_the_bytes_are_the_ledgers_own_and_what_is_there_for_a_while():
    run = named_run("fsdp")
    area = visuals.ownership_timeline(run, **SECOND).axes[-1]
    own, rest = area.collections
    assert tuple(own.get_facecolor()[0]) == to_rgba(RANKS[0]) and tuple(rest.get_facecolor()[0]) == to_rgba(GREY)
    layer = 2 * 1000 * 1000
    assert own.get_paths()[0].vertices[:, 1].max() == layer  # a quarter of each of four
    assert rest.get_paths()[0].vertices[:, 1].max() == 2 * layer  # and one whole


def test_rest_and_peak_are_told(capsys):
    figure = visuals.ownership_timeline(named_run("fsdp"), **SECOND)
    assert {"peak 4.00 MB", "at rest 2.00 MB"} <= set(written(figure))
    assert capsys.readouterr().out.startswith("rank 0, parameters: 2.00 MB at rest, 4.00 MB at the peak, in ")


def test_all_strips_have_one_axis():
    figure = visuals.ownership_timeline(named_run("zero 2"), "gradients", since="B4")
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_names_of_transfers_stand_beside_them_where_they_have_a_little_room(monkeypatch):
    def names():
        return [text for text in written(visuals.ownership_timeline(named_run("fsdp"), **SECOND)) if text[:2] == "AG"]

    assert names() == ["AG4"]
    monkeypatch.setattr(sys.modules["tinydist.visuals.ownership_timeline"], "CLOSE", 10.0)  # inches
    assert names() == []
