"""Successive operators are one block; transfers at the same time have lanes of their own."""

import pytest
from visuals.named_runs import named_run
from visuals.some_runs import run_of

from tinydist.visuals.blocks import Block, Row, add, covered
from tinydist.visuals.scene import Scene


def blocks(*parts):
    return [Block(start, end, "forward", name) for start, end, name in parts]


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
    transfers = [(event.start, event.end) for event in run.trace.of(0) if event.stream != "compute"]
    assert sorted(block[:2] for block in row.communication) == sorted(transfers)
