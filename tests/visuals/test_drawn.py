"""The eye of these tests sees what is wrong; and every picture, of little and of much, can be read."""

import matplotlib.pyplot as plt
import pytest
import torch
from visuals.drawn import assert_can_be_read, faults, written
from visuals.some_runs import PROGRAMS, run_of

from tinydist import visuals
from tinydist.hardware import CLUSTERS, Cluster
from tinydist.pipeline_parallel import analyze, make_schedule
from tinydist.visuals.canvas import canvas

ALT = "A picture that is broken in one place."


def broken(alt=ALT, **look):
    figure, axes = canvas(alt, 2)
    axes.axis("off")
    axes.text(0.5, 0.5, "one", **look)
    return figure, axes


def test_a_text_over_another_is_seen():
    figure, axes = broken()
    axes.text(0.51, 0.5, "two")
    assert list(faults(figure)) == ["'one' overlaps 'two'"]


def test_a_text_that_is_cut_off_is_seen():
    figure, _ = broken()
    figure.text(0.99, 0.5, "beyond")
    assert list(faults(figure)) == ["'beyond' is cut off"]


def test_a_small_text_is_seen():
    assert list(faults(broken(fontsize=7)[0])) == ["'one' has 7 points"]


def test_a_picture_without_words_is_seen():
    assert list(faults(broken(alt="a picture")[0])) == ["its alt text is no sentence: 'a picture'"]


def test_what_is_not_drawn_is_not_seen():
    figure, axes = broken()
    axes.text(0.5, 0.5, "hidden", visible=False)
    axes.set_xticks([0, 5], ["in", "beyond the axis"])
    axes.set_xlim(0, 1)
    assert written(figure) == ["one"]


# Every picture. Of runs: small and large.


def runs(draw):
    return [pytest.param(draw, name, id=f"{draw.__name__}-{name}") for name in PROGRAMS]


@pytest.mark.parametrize("draw, name", runs(visuals.traffic) + runs(visuals.cluster))
def test_pictures_of_runs(draw, name):
    assert_can_be_read(draw(run_of(name)))


@pytest.mark.parametrize(
    "where", [*CLUSTERS.values(), Cluster("V100", 8, "NVLink 2"), CLUSTERS["PCIe box"].pod(2)], ids=str
)
def test_clusters(where):
    assert_can_be_read(visuals.cluster(where))


@pytest.mark.parametrize(
    "name, ranks, microbatches",
    [("1F1B", 1, 1), ("1F1B", 4, 8), ("ZB-V", 4, 8), ("DualPipeV", 4, 10), ("1F1B", 8, 64), ("1F1B", 32, 256)],
)
def test_schedules(name, ranks, microbatches):
    assert_can_be_read(visuals.schedule(analyze(make_schedule(name, ranks, microbatches))))


def test_several_schedules():
    names = ("GPipe", "interleaved 1F1B", "ZB-H1")
    assert_can_be_read(visuals.schedules({name: analyze(make_schedule(name, 4, 8)) for name in names}))


NUMBERS = {
    "bars": lambda: visuals.bars({"one": 3, "two": 0.5}, "ms"),
    "parts": lambda: visuals.bars({f"stage {n}": {"parameters": 2, "gradients": 2 / n} for n in range(1, 9)}, "GB"),
    "limit": lambda: visuals.bars({"one": 1, "two": 64e9}, "GB", limit=("an A100", 80), log=True),
    "one curve": lambda: visuals.curves([1, 2], {"a": [1, 2]}, "x", "y"),
    "the same curves": lambda: visuals.curves(
        [1, 2, 4], {name: [1, 2, 3] for name in "abcde"}, "x", "y", limit=("peak", 3)
    ),
    "powers": lambda: visuals.curves([1, 2**30], {"a": [2, 3e9], "b": [2, 3e9]}, "bytes", "s", log=True),
    "lost": lambda: visuals.curves(
        range(9), {"a": [4.0] + [float("nan")] * 8, "b": range(9)}, "step", "loss", zero=True
    ),
    "from right to left": lambda: visuals.curves([4, 2, 1], {"a": [1, 2, 3], "b": [1, 2, 3]}, "x", "y", limit=("c", 3)),
    "a narrow matrix": lambda: visuals.matrices({"8 heads": torch.eye(8), "1 head": torch.ones(8, 1)}, "row", "column"),
    "a matrix": lambda: visuals.matrices({"causal": torch.ones(6, 6).tril()}, "query", "key"),
    "matrices": lambda: visuals.matrices(
        {"a": torch.eye(16), "b": torch.eye(60), "c": torch.ones(1, 8)}, "row", "column"
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_pictures_of_numbers(name):
    assert_can_be_read(NUMBERS[name]())


@pytest.mark.parametrize("ranks, parts, frames", [(1, 1, 1), (2, 2, 2), (4, 4, 7), (8, 8, 3), (8, 1, 4)])
def test_steps(ranks, parts, frames):
    cells = [[["ABCDEFGH"[:ranks] + str(part + 1) for part in range(parts)]] * ranks] * frames
    assert_can_be_read(visuals.steps(cells))
    plt.close("all")
