"""A film shows what each rank holds, what is new in a step, and the messages that brought it."""

import re
from io import BytesIO

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation
from PIL import Image

import tinydist
from tinydist import visuals
from tinydist.hardware import find_cluster
from tinydist.visuals.filmstrip import in_letters, steps_of, text_of
from tinydist.visuals.page import png
from tinydist.visuals.palette import RANKS

NODE = find_cluster("A100 node").communication_alone


def all_gather_ring():
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = torch.zeros(p, dtype=torch.int64)
    parts[rank] = (rank + 1) * 10**rank
    film = [parts.clone()]
    for step in range(p - 1):
        give, take = (rank - step) % p, (rank - step - 1) % p
        works = [
            dist.isend(parts[give : give + 1], (rank + 1) % p),
            dist.irecv(parts[take : take + 1], (rank - 1) % p),
        ]
        for work in works:
            work.wait()
        film.append(parts.clone())
    return film


def filmed(ranks=4):
    run = tinydist.launch(all_gather_ring, ranks, backend="simulated", cluster=NODE)
    return list(zip(*run.results)), run


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def arrows(axes):
    return [text for text in axes.texts if isinstance(text, Annotation)]


def heavy(axes):
    return [box for box in axes.patches if box.get_linewidth() > 1]


@given(st.lists(st.booleans(), min_size=1, max_size=8).filter(any), st.integers(1, 9))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_a_number_names_the_ranks_that_are_in_it(there, part):
    number = sum(part * 10**rank for rank, each in enumerate(there) if each)
    expected = "".join("ABCDEFGH"[rank] for rank, each in enumerate(there) if each) + str(part)
    assert in_letters(number) == in_letters(torch.tensor(number)) == expected


@pytest.mark.parametrize("cell, text", [(0, ""), (340, "B4C3"), (2011, "A1B1D2"), ("AB", "AB"), ("", "")])
def test_nothing_mixtures_and_texts(cell, text):
    assert in_letters(cell) == text


@pytest.mark.parametrize(
    "cell, short, text",
    [
        ("ABC3", False, "ABC3"),
        ("ABCD3", False, "Σ3"),
        ("ABCD3", True, "Σ"),
        ("ABC3", True, ""),
        ("A1B1D2", False, "3/4"),
        ("", False, ""),
    ],
)
def test_what_stands_in_a_cell(cell, short, text):
    assert text_of(cell, set("ABCD"), short) == text


def test_frames_show_the_run():
    frames, run = filmed()
    axes = visuals.filmstrip(frames, run).axes
    assert [each.get_title() for each in axes] == ["start", "step 0", "step 1", "step 2"]
    assert texts(axes[0]) == ["A1", "B2", "C3", "D4"]
    assert sorted(texts(axes[1])) == sorted(["A1", "D4", "A1", "B2", "B2", "C3", "C3", "D4"])
    assert texts(axes[3]) == ["A1", "B2", "C3", "D4"] * 4


def test_what_is_new_has_a_frame_and_an_arrow():
    frames, run = filmed()
    start, *steps = visuals.filmstrip(frames, run).axes
    assert not heavy(start) and not arrows(start)
    for axes in steps:
        assert len(heavy(axes)) == len(arrows(axes)) == 4
    below = {(round(arrow.xyann[1]), round(arrow.xy[1])) for arrow in arrows(steps[0])}
    assert below == {(0, 1), (1, 2), (2, 3), (3, 0)}


def test_arrows_of_a_step_stand_in_different_columns():
    def program():
        rank = dist.get_rank()
        x = torch.tensor([10**rank, 10**rank]) if rank < 2 else torch.zeros(2, dtype=torch.int64)
        before = x.clone()
        dist.send(x, rank + 2) if rank < 2 else dist.recv(x, rank - 2)
        return [before, x]

    run = tinydist.launch(program, 4, backend="simulated", cluster=NODE)
    _, axes = visuals.filmstrip(list(zip(*run.results)), run).axes
    assert sorted(round(arrow.xy[0] - 0.38) for arrow in arrows(axes)) == [0, 1]
    assert texts(axes) == ["A1", "A1", "B1", "B1"] * 2


def test_without_a_run_there_are_no_arrows():
    frames, _ = filmed()
    assert not any(arrows(axes) or heavy(axes) for axes in visuals.filmstrip(frames).axes)


def test_a_cell_has_a_stripe_for_each_rank():
    (axes,) = visuals.filmstrip([[["AB"], [""]]], titles=["one"]).axes
    stripes = [box.get_facecolor()[:3] for box in axes.patches[:2]]
    for stripe, color in zip(stripes, RANKS):
        assert stripe == pytest.approx([(1 + part) / 2 for part in to_rgb(color)])


def test_steps_are_the_messages_that_start_together():
    def tree():
        x, rank = torch.ones(1), dist.get_rank()
        for source, destination in [(0, 1), (0, 2), (1, 3)]:
            if rank == source:
                dist.send(x, destination)
            elif rank == destination:
                dist.recv(x, source)

    run = tinydist.launch(tree, 4, backend="simulated", cluster=NODE)
    assert steps_of(run) == [[(0, 1)], [(0, 2), (1, 3)]]


@pytest.mark.parametrize(
    "frames, line",
    [
        ([[[1, 0], [0, 20]], [[1, 20], [1, 20]]], "2 ranks x 2 parts: filled 2, 4\n"),
        ([[[1], [10]], [[11], [11]]], "2 ranks x 1 part: filled 2, 2; with all ranks added up 0, 2\n"),
    ],
)
def test_the_line(frames, line, capsys):
    visuals.filmstrip(frames)
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("ranks, frames", [(2, 2), (4, 4), (6, 6), (8, 8)])
def test_six_inches_wide_and_at_most_two_rows(ranks, frames):
    figure = visuals.filmstrip(*filmed(ranks))
    image = Image.open(BytesIO(png(figure)))
    assert image.width == 600 and 100 <= image.height <= 480
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == frames and len({round(axes.get_position().y0, 3) for axes in shown}) <= 2
    for axes in shown:
        box = axes.get_tightbbox()
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= 601 and box.y1 <= image.height + 1


@pytest.mark.parametrize(
    "frames, message",
    [
        ([], "filmstrip: it has room for 1 to 12 frames, got 0"),
        ([[[1]]] * 13, "filmstrip: it has room for 1 to 12 frames, got 13"),
        ([[[1, 2], [3]]], "every frame needs as many parts on each rank, got rows of 2, 1 cells"),
        ([[[1]], [[1], [2]]], "every frame needs as many ranks, got 1, 2"),
        ([[[1]] * 9], "it has colors for 8 ranks, got 9"),
        ([[[1.5]]], "a cell is a text or a whole number from 0, got 1.5"),
        ([[[-10]]], "a cell is a text or a whole number from 0, got -10"),
    ],
)
def test_what_cannot_be_drawn(frames, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        visuals.filmstrip(frames)


def test_steps_and_frames_must_agree():
    frames, run = filmed()
    with pytest.raises(ValueError, match=r"filmstrip: the run has 3 steps of messages, so 4 frames, but got 3"):
        visuals.filmstrip(frames[:-1], run)
    with pytest.raises(ValueError, match=r"filmstrip: 4 frames need as many titles, got 1"):
        visuals.filmstrip(frames, titles=["one"])
