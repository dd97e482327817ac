"""A picture begins and ends at seconds, marks, regions or blocks."""

import pytest
import torch
from visuals.named_runs import named_run
from visuals.some_runs import run_of

import tinydist
from tinydist.visuals.scene import Scene, name_of


def scene(run, **options):
    return Scene("timeline", run.trace, [0], **options)


def begins(run, during):
    return min(event.start for event in run.trace.of(0, "compute") if event.during == during)


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
