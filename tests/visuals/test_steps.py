"""A film shows what each rank holds, what is new in a step, and the messages that brought it."""

import re
from base64 import b64decode
from io import BytesIO

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from PIL import Image
from visuals.drawn import assert_can_be_read
from visuals.drawn import texts as drawn_texts

import tinydist
from tinydist import visuals
from tinydist.hardware import find_cluster
from tinydist.visuals.palette import RANKS, tint
from tinydist.visuals.step_cells import in_letters, steps_of, texts_of
from tinydist.visuals.steps import PALER, arrivals, lanes_of, meet

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
    return tinydist.launch(all_gather_ring, ranks, backend="simulated", cluster=NODE)


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def arrows(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def heavy(axes):
    return [path for boxes in axes.collections if boxes.get_linewidth()[0] > 1 for path in boxes.get_paths()]


def way(arrow):
    """The points that it passes."""
    path = arrow.get_path().interpolated(50)
    return path.vertices[path.codes != Path.CLOSEPOLY]


@given(st.lists(st.booleans(), min_size=1, max_size=8).filter(any), st.integers(1, 9))
def test_a_number_names_the_ranks_that_are_in_it(there, part):
    number = sum(part * 10**rank for rank, each in enumerate(there) if each)
    expected = "".join("ABCDEFGH"[rank] for rank, each in enumerate(there) if each) + str(part)
    assert in_letters(number) == in_letters(torch.tensor(number)) == expected


@pytest.mark.parametrize("cell, text", [(0, ""), (340, "B4C3"), (2011, "A1B1D2"), ("AB", "AB"), ("", "")])
def test_nothing_mixtures_and_texts(cell, text):
    assert in_letters(cell) == text


@pytest.mark.parametrize(
    "cell, texts",
    [
        ("ABC3", ("ABC3", "ABC", "3/4")),
        ("ABCD3", ("Σ3", "Σ", "Σ")),
        ("A1B1D2", ("A1B1D2", "ABD", "3/4")),
        ("A1", ("A1", "A", "A")),
        ("", ("", "", "")),
    ],
)
def test_what_stands_in_a_cell_of_less_and_less_room(cell, texts):
    assert texts_of(cell, 4) == texts


def test_frames_show_the_run():
    axes = visuals.steps(filmed()).axes
    assert [each.get_title(loc="left") for each in axes] == ["start", "step 0", "step 1", "step 2"]
    assert texts(axes[0]) == ["A1", "B2", "C3", "D4"]
    assert sorted(texts(axes[1])) == sorted(["A1", "D4", "A1", "B2", "B2", "C3", "C3", "D4"])
    assert texts(axes[3]) == ["A1", "B2", "C3", "D4"] * 4


def test_what_is_new_has_a_frame_and_an_arrow():
    start, *steps = visuals.steps(filmed()).axes
    assert not heavy(start) and not arrows(start)
    for axes in steps:
        assert len(heavy(axes)) == len(arrows(axes)) == 4


def test_an_arrow_for_each_cell_that_a_message_changed():
    before = [["A1", "A2"], ["B1", "B2"], ["", ""], ["", ""]]
    after = [["A1", "A2"], ["B1", "B2"], ["A1", "A2"], ["", "B2"]]
    found = arrivals(after, before, [(0, 2), (1, 3)])
    assert found == [(0, 2, 0), (0, 2, 1), (1, 3, 1)]


def test_of_several_messages_each_has_its_cell():
    before = [["A1", "A2", "A3"], ["B1", "B2", "B3"], ["C1", "C2", "C3"]]
    after = [["A1", "B1", "C1"], ["A2", "B2", "C2"], ["A3", "B3", "C3"]]
    messages = [(a, b) for a in range(3) for b in range(3) if a != b]
    assert sorted(arrivals(after, before, messages)) == [(a, b, a) for a in range(3) for b in range(3) if a != b]


def test_a_message_may_change_several_cells():
    before = [["A1", "A2", "", ""], ["", "", "B3", "B4"], [""] * 4]
    after = [*before[:2], ["A1", "A2", "B3", "B4"]]
    assert arrivals(after, before, [(0, 2), (1, 2)]) == [(0, 2, 0), (0, 2, 1), (1, 2, 2), (1, 2, 3)]


@st.composite
def some_arrows(draw):
    ranks = st.integers(0, 7)
    return list({draw(st.tuples(ranks, ranks, st.integers(0, 2))): True for _ in range(draw(st.integers(0, 9)))})


@given(some_arrows())
def test_arrows_that_would_meet_have_lanes_of_their_own(some):
    lanes = lanes_of([arrow for arrow in some if arrow[0] != arrow[1]])
    far = [arrow for arrow, lane in lanes.items() if lane is not None]
    assert all(abs(arrow[0] - arrow[1]) > 1 for arrow in far)
    for one in far:
        assert not any(
            lanes[one] == lanes[other] and one[2] == other[2] and meet(one, other) for other in far if other != one
        )


def tree(ranks=8):
    def broadcast():
        rank = dist.get_rank()
        x, film = torch.tensor([int(rank == 0)]), []
        film.append(x.clone())
        for far in (1, 2, 4):
            if rank < far:
                dist.send(x, rank + far)
            elif rank < 2 * far:
                dist.recv(x, rank - far)
            dist.barrier()
            film.append(x.clone())
        return film

    return tinydist.launch(broadcast, ranks, backend="simulated", cluster=NODE)


@pytest.mark.parametrize("run", [filmed, tree])
def test_no_arrow_crosses_a_text(run):
    figure = visuals.steps(run())
    boxes = [box for _, box in drawn_texts(figure)]
    for axes in figure.axes:
        for arrow in arrows(axes):
            points = axes.transData.transform(way(arrow))
            assert not any(box.contains(*point) for point in points for box in boxes)
    assert_can_be_read(figure)


def test_an_arrow_goes_from_the_sender_to_the_receiver():
    *_, last = visuals.steps(tree()).axes
    rows = [way(arrow)[:, 1] for arrow in arrows(last)]
    assert sorted((round(each[0]), round(each.max())) for each in rows) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_without_a_run_there_are_no_arrows():
    frames = list(zip(*filmed().results))
    assert not any(arrows(axes) or heavy(axes) for axes in visuals.steps(frames).axes)


def test_a_cell_has_a_stripe_for_each_rank():
    (axes,) = visuals.steps([[["AB"], [""]]], titles=["one"]).axes
    stripes = axes.collections[0].get_facecolor()
    assert [tuple(stripe) for stripe in stripes] == [to_rgba(tint(color, PALER)) for color in RANKS[:2]]


def test_some_frames_with_what_is_new_since_the_one_before():
    whole, some = visuals.steps(filmed()), visuals.steps(filmed(), only=[2])
    assert [axes.get_title(loc="left") for axes in some.axes] == ["step 1"]
    assert len(heavy(some.axes[0])) == len(heavy(whole.axes[2])) == 4
    assert some.axes[0].get_window_extent().width > 2 * whole.axes[2].get_window_extent().width


def test_at_most_four_in_a_row():
    figure = visuals.steps([[["A1", ""], ["", "B2"]]] * 7)
    lines = [round(axes.get_position().y0, 3) for axes in figure.axes if axes.get_visible()]
    assert sorted(lines.count(line) for line in set(lines)) == [3, 4]


def test_a_slider_shows_one_step_and_keeps_all():
    stepper = visuals.stepper(filmed())
    control = stepper.controls["step"]
    assert (control.min, control.max) == (0, 3)
    before = stepper.image.value
    control.value = 3
    assert stepper.image.value != before
    data, metadata = stepper._repr_mimebundle_()
    assert Image.open(BytesIO(b64decode(data["image/png"]))).width == 2 * metadata["image/png"]["width"]
    assert "in 4 tables" in metadata["image/png"]["alt"]


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
    visuals.steps(frames)
    assert capsys.readouterr().out == line


@pytest.mark.parametrize(
    "frames, message",
    [
        ([], "steps: run must be a run, or a list of frames, got []"),
        ([[[1]]] * 13, "steps: it has room for 1 to 12 frames, got 13: choose some with only=[...]"),
        ([[[1, 2], [3]]], "every frame needs the same number of parts per rank, got rows of 2, 1 cells"),
        ([[[1]], [[1], [2]]], "every frame needs the same number of ranks, got 1, 2"),
        ([[[1]] * 9], "at most 8 ranks are supported, got 9"),
        ([[[1.5]]], "a cell is a text or an integer >= 0, got 1.5"),
        ([[[-10]]], "a cell is a text or an integer >= 0, got -10"),
    ],
)
def test_what_cannot_be_drawn(frames, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        visuals.steps(frames)


def test_steps_and_frames_must_agree():
    def one_too_few():
        return all_gather_ring()[:-1]

    run = tinydist.launch(one_too_few, 4, backend="simulated", cluster=NODE)
    with pytest.raises(ValueError, match=r"steps: the run has 3 steps of messages, so 4 frames, but got 3"):
        visuals.steps(run)
    with pytest.raises(ValueError, match=r"steps: 4 frames need one title each, got 1"):
        visuals.steps(filmed(), titles=["one"])
    with pytest.raises(ValueError, match=r"steps: only must be one or more frames of 0 to 3, got \[4\]"):
        visuals.steps(filmed(), only=[4])


def test_ranks_that_return_no_rows_are_named():
    run = tinydist.launch(dist.get_rank, 2, backend="simulated", cluster=NODE)
    with pytest.raises(ValueError, match=r"steps: each rank must return its rows, .*; rank 0 did not"):
        visuals.steps(run)


def test_each_column_of_a_film_has_the_number_of_its_part():
    for axes in visuals.steps(filmed()).axes:
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    for axes in visuals.steps([[["A1", "A2"], ["", ""]]]).axes:
        assert not axes.get_xticklabels()  # the cells say it


def test_what_was_computed_has_no_arrow_and_columns_have_names():
    def program():
        films = all_gather_ring()
        return [[film[dist.get_rank()], "A"] if step == 0 else [film[0], "AB"] for step, film in enumerate(films)]

    run = tinydist.launch(program, 2, backend="simulated", cluster=NODE)
    sent = visuals.steps(run, columns=["held", "result"])
    figure = visuals.steps(run, columns=["held", "result"], computed=[1])
    assert_can_be_read(figure)
    assert sum(len(arrows(axes)) for axes in figure.axes) < sum(len(arrows(axes)) for axes in sent.axes)
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["held", "result"]
    with pytest.raises(ValueError, match="2 parts need one name each, got 1 columns"):
        visuals.steps(run, columns=["held"])
