"""A picture begins and ends at seconds, marks, regions or blocks."""

import pytest
import torch
from visuals.named_runs import named_run
from visuals.some_runs import run_of

import tinydist
from tinydist.visuals.scene import Row, Scene, TimelineBlock, add, covered, name_of


def scene(run, **options):
    return Scene("timeline", run.trace, [0], **options)


def begins(run, during):
    return min(event.start for event in run.trace.of(0, "compute") if event.phase == during)


def test_it_begins_with_the_first_forward_pass():
    run = named_run("fsdp")
    assert scene(run).since == begins(run, "forward") > 0
    assert scene(run).since_words == " since the first forward pass"
    assert scene(run_of("star")).since == 0 and scene(run_of("star")).since_words == ""


def test_a_block_and_a_pass_are_moments():
    run = named_run("ddp")
    assert scene(run, since="backward").since == begins(run, "backward")
    part = scene(run, since="B4", until="B1")
    assert {block.name for block in part.rows[0].compute if block.name} == {"B4", "B3", "B2", "B1"}
    assert scene(run, since=("F1", 1)).since == scene(run, since=("F1", -1)).since > scene(run).since
    assert scene(run, until=("Adam", -1)).until > scene(run, until="Adam").until
    assert (
        scene(run, since=("F1", 1), until="Adam").until == scene(run, until=("Adam", -1)).until
    )  # the first from there


@tinydist.region("twice")
def work():
    return torch.ones(100) + 1


def program():
    for _ in range(2):
        tinydist.mark("step")
        work()


def test_marks_and_regions_are_moments():
    run = tinydist.launch(program, 1)
    (_, second), (one, two) = run.trace.marks, run.trace.regions
    assert scene(run, since=("step", 1)).since == second.time
    assert (scene(run, since=("twice", 1)).since, scene(run, until="twice").until) == (two.start, one.end)


def test_the_axis_says_where_its_zero_is():
    assert scene(named_run("ddp"), since="B4").since_words == " since B4"
    assert scene(named_run("ddp"), since=("F1", 1)).since_words == " since F1"
    assert scene(run_of("star"), since=20e-6).since_words == " since 20.0 us"
    assert [name_of(each) for each in ("B4", ("B4", 1), ("B4", -1), 1e-3)] == ["B4", "B4, 2", "last B4", "at 1.00 ms"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"since": "F9"}, r"timeline: no mark or region named 'F9'; available: .*'Optimizer.step#Adam.step'"),
        ({"since": "B1", "until": ("F1", 0)}, "timeline: nothing to draw from .* us to .* us"),
        ({"since": ("F1", 7)}, "no mark or region named 'F1'"),
    ],
)
def test_moments_that_are_not_there_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        scene(named_run("ddp"), **options)


def blocks(*parts):
    return [TimelineBlock(start, end, "forward", name) for start, end, name in parts]


def added(*parts, narrow=0.0):
    found = []
    for block in blocks(*parts):
        add(found, block, narrow)
    return found


def test_what_follows_under_the_same_name_is_one_block():
    assert added((0, 1, "F1"), (1, 2, "F1"), (2, 3, "F2")) == blocks((0, 2, "F1"), (2, 3, "F2"))


def test_after_a_wait_a_block_begins_again():
    assert added((0, 1, "F1"), (2, 3, "F1")) == blocks((0, 1, "F1"), (2, 3, "F1"))


def test_a_narrow_break_without_a_name_is_left_out():
    parts = (0, 1, "F1"), (1, 1.1, ""), (1.1, 2, "F1")
    assert added(*parts, narrow=0.2) == blocks((0, 2, "F1"))
    assert len(added(*parts, narrow=0.1)) == 3
    assert len(added((0, 1, "F1"), (1, 1.1, ""), (1.1, 2, "F2"), narrow=0.2)) == 3


def row_of(communication, narrow=0.0):
    row = Row.__new__(Row)
    row.communication, row.compute, row.waiting, row.narrow = communication, [], [], narrow
    return row


def test_bars_at_the_same_time_are_in_lanes_of_their_own():
    first, second, third = communication = blocks((0, 2, "AG1"), (1, 3, "AG2"), (2, 4, "AG3"))
    assert row_of(communication).lanes == [[first, third], [second]]
    assert row_of(communication, narrow=5).lanes == [communication]  # none of them can be told apart
    assert covered(blocks((0, 2, ""), (1, 3, ""), (5, 6, ""))) == 4


def test_pieces_of_a_block_are_found_as_a_whole():
    row = row_of([])
    row.compute = blocks((0, 1, "F1"), (1, 2, ""), (3, 4, "F1"), (4, 5, "F2"), (5, 6, "F1"))
    assert row.named("F1") == blocks((0, 4, "F1"), (5, 6, "F1"))
    assert [(block.start, block.end) for block in row.named("forward")] == [(0, 6)]


@pytest.mark.parametrize("runs, name", [(run_of, "star"), (run_of, "training"), (named_run, "fsdp")])
def test_all_seconds_of_the_events_are_in_the_blocks(runs, name):
    run = runs(name)
    (row,) = Scene("test", run.trace, [0], since=0.0).rows
    events = run.trace.of(0, "compute")
    waits = sum(event.end - event.start for event in events if event.name == "wait")
    assert sum(block.length for block in row.waiting) == pytest.approx(waits)
    computed = sum(event.end - event.start for event in events if event.name != "wait")
    assert sum(block.length for block in row.compute) == pytest.approx(computed)
    transfers = [(event.start, event.end) for event in run.trace.of(0) if event.transfer and event.name != "wait"]
    assert sorted(block[:2] for block in row.communication) == sorted(transfers)
