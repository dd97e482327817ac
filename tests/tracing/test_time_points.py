"""Moments with names, what was held between them, and a part of a run as a run."""

import re

import pytest
import torch
import torch.distributed as dist

import tinydist


def steps(count=3):
    x = torch.ones(100)
    for step in range(count):
        tinydist.mark("begin")
        with tinydist.region("step"):
            y = torch.ones(1000 * (step + 1))
            dist.all_reduce(x)
            del y
        tinydist.mark("end")


@pytest.fixture(scope="module")
def run():
    return tinydist.launch(steps, 2)


def test_marks_and_regions_have_their_times(run):
    marks = [(mark.rank, mark.name) for mark in run.trace.marks]
    assert marks == [(rank, name) for rank in (0, 1) for _ in range(3) for name in ("begin", "end")]
    region = run.trace.regions[1]
    assert run.trace.time(("step", 1)) == region.start and run.trace.time(("step", 1), at_end=True) == region.end
    assert run.trace.time(("begin", -1), rank=1) == [mark for mark in run.trace.marks if mark.rank == 1][-2].time
    assert run.trace.time(0.5) == 0.5


@pytest.mark.parametrize(
    "moment, words",
    [
        ("nothing", "rank 0 has these marks and regions: none named 'nothing'; there are: 'begin', 'step', 'end'"),
        (("begin", 3), "rank 0 has these marks and regions: 3 named 'begin', got ('begin', 3)"),
        (-1.0, 'a time point must be seconds, a name, or one of several as ("step", 2), got -1.0'),
        (
            ("begin", "end"),
            "a time point must be seconds, a name, or one of several as (\"step\", 2), got ('begin', 'end')",
        ),
    ],
)
def test_a_moment_that_is_none(run, moment, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        run.memory[0].at(moment)
    with pytest.raises(ValueError, match=re.escape(words)):
        run.between(moment, 1.0).seconds  # noqa: B018


def test_what_happens_at_one_instant_keeps_its_order():
    def program():
        tinydist.mark("a")
        x = torch.empty(100)  # takes no time
        tinydist.mark("b")
        del x
        tinydist.mark("c")

    run = tinydist.launch(program, 1)
    assert {mark.time for mark in run.trace.marks} == {0.0}
    assert [run.memory[0].at(name) for name in "abc"] == [{}, {"activations": 400}, {}]
    assert run.memory[0].at(0.0) == {}  # after all of it
    assert run.memory[0].peak_between("a", "b") == 400 and run.memory[0].peak_between("c") == 0
    assert run.between("b", "c").memory[0].peak == 400


def test_the_peak_between_two_moments(run):
    held = run.memory[0]
    assert [held.peak_between(("begin", k), ("end", k)) for k in range(3)] == [400 + 4000 * (k + 1) for k in range(3)]
    assert held.peak_between(("end", 0), ("begin", 1)) == 400
    assert held.peak_between(purpose="gradients") == 0
    assert held.peak_between() == held.peak


def test_a_series_is_what_was_held_after_each_change(run):
    held = run.memory[0]
    assert [nbytes for _, nbytes in held.series()][:4] == [400, 4400, 400, 8400]
    assert held.series("activations") == held.series() and held.series("gradients") == []
    assert [seconds for seconds, _ in held.series()] == sorted(seconds for seconds, _ in held.series())


def test_a_part_of_a_run_is_what_happened_in_it(run):
    parts = [run.between(("begin", k), ("end", k)) for k in range(3)]
    assert [part.traffic for part in parts] == [[[0, 400.0], [400.0, 0]]] * 3
    assert [part.memory[1].peak for part in parts] == [400 + 4000 * (k + 1) for k in range(3)]
    for k, part in enumerate(parts):
        whole = [event for event in run.trace.of(0) if "step" in event.regions]
        events = part.trace.of(0)
        assert [event.name for event in events] == ["ones", "all_reduce", "wait"]
        assert events[0].start == 0
        shift = whole[3 * k].start
        assert [event.start + shift for event in events] == pytest.approx([e.start for e in whole[3 * k : 3 * k + 3]])
        assert part.seconds == pytest.approx(run.trace.time(("end", k)) - run.trace.time(("begin", k)))
        assert [each.name for each in part.trace.memory[0].named] == ["begin", "step", "end"]
    assert sum(part.traffic[0][1] for part in parts) == run.traffic[0][1]


def test_a_region_is_a_part_of_a_run_and_so_are_seconds(run):
    assert run.between(("step", 1)).traffic == run.between(("begin", 1), ("end", 1)).traffic
    assert run.between(0.0, run.seconds).traffic == run.traffic
    assert [event[:5] for event in run.between(0.0, run.seconds).trace.events] == [e[:5] for e in run.trace.events]
    assert run.between(0.0, 0.0).traffic == [[0, 0], [0, 0]]


def test_parts_are_cut_out_of_the_one_replay_of_the_whole(monkeypatch):
    run, replays = tinydist.launch(steps, 2), []
    from tinydist.tracing import replay as module

    replay = module.replay
    monkeypatch.setattr(module, "replay", lambda *those: replays.append(those) or replay(*those))
    parts = [run.between(("step", k)) for k in range(3)]
    assert sum(part.traffic[0][1] for part in parts) == run.traffic[0][1] and len(replays) == 1
    assert parts[0].on("laptop").seconds == run.on("laptop").between(("step", 0)).seconds != parts[0].seconds


def test_each_rank_takes_part_with_what_it_did_between_its_own_moments():
    def program():
        x, rank = torch.ones(1000), dist.get_rank()
        for _ in range(3 * rank):
            x += 1  # rank 1 is later
        tinydist.mark("begin")
        x += 1
        work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
        tinydist.mark("end")
        work.wait()
        x += 1

    run = tinydist.launch(program, 2)
    part = run.between("begin", "end")
    assert [[event.name for event in part.trace.of(rank)] for rank in (0, 1)] == [["add_", "message"]] * 2
    first, second = (part.trace.of(rank)[0].start for rank in (0, 1))
    assert first == 0 and second == pytest.approx(run.trace.time("begin", 1) - run.trace.time("begin", 0))
    assert part.seconds == pytest.approx(run.trace.time("end", 1) - run.trace.time("begin", 0))
    assert part.traffic == [[0, 4000], [0, 0]]
    assert run.between("end", run.seconds).traffic == [[0, 0], [0, 0]]  # it was issued before


def test_ranks_that_are_not_run_take_part_in_the_transfers_of_the_others():
    one, all_ranks = (tinydist.launch(steps, 4, fake=True, only=only).between(("step", 1)) for only in ([0], None))
    assert one.traffic == all_ranks.traffic and one.seconds == all_ranks.seconds
    assert one.memory[0].peak == all_ranks.memory[0].peak and one.memory[1].peak == 0
    assert one.trace.owners(0.0) == all_ranks.trace.owners(0.0)


def test_a_part_of_a_run_on_another_cluster_is_that_part(run):
    other = run.on("PCIe box")
    assert run.between(("step", 1)).on("PCIe box").seconds == other.between(("step", 1)).seconds > 0


def test_a_part_of_a_part_is_an_error(run):
    with pytest.raises(ValueError, match="between: this is already a window of a run"):
        run.between("begin", "end").between("begin", "end")
