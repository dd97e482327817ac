"""In a notebook a run, its traffic and its memory are pictures; to a program they are what they were."""

import base64

import pytest
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals
from tinydist.visuals.figure import png


def silence():
    pass


def shown(thing):
    data, metadata = thing._repr_mimebundle_()
    assert set(data) == set(metadata) == {"image/png"} and metadata["image/png"]["width"] > 300
    return base64.b64decode(data["image/png"])


def test_a_run_shows_its_timeline():
    assert shown(run_of("star")) == png(visuals.timeline(run_of("star")))


def test_traffic_shows_who_sent_to_whom():
    assert shown(run_of("star").traffic) == png(visuals.traffic(run_of("star")))


def test_memory_shows_the_fullest_rank():
    run = run_of("star")
    peaks = [held.peak for held in run.memory]
    assert peaks[0] > max(peaks[1:])  # it receives from all
    assert shown(run.memory) == png(visuals.memory(run, rank=0))


def test_where_nothing_was_sent_or_held_there_is_no_picture():
    run = tinydist.launch(silence, 2)
    assert run.traffic._repr_mimebundle_() is run.memory._repr_mimebundle_() is run._repr_mimebundle_() is None


def test_to_a_program_they_are_lists():
    run = run_of("star")
    assert isinstance(run.traffic, list) and isinstance(run.memory, list)
    assert run.traffic == [list(row) for row in run.traffic] and repr(run.traffic) == repr(list(run.traffic))
    assert list(run.memory) == run.memory and len(run.memory) == 4


def test_the_memory_of_a_rank_is_told_shortly():
    held = run_of("training").memory[0]
    assert repr(held) == f"<peak {held.peak:,} bytes: {held.at_peak}>"


@pytest.mark.parametrize("part", ["traffic", "memory"])
def test_a_run_on_another_cluster_shows_its_own(part):
    run = run_of("ring")
    assert getattr(run.on("2 x 4"), part).trace is not getattr(run, part).trace
