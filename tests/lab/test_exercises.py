"""The exercises and their notebooks: stubs are told "not yet", solutions pass, and the rest is the same."""

import ast

import nbformat
import pytest
import torch.distributed as dist
from lab.shipped import ROOT, shipped

from tinydist.hardware import costs
from tinydist.lab import judge
from tinydist.lab.chapters.collectives import all_reduce, all_to_all, reduce_scatter, tree_broadcast
from tinydist.lab.chapters.collectives.inputs import LARGE, nbytes, sum_case
from tinydist.lab.exercise import CATALOGUE, course, find, of_chapter
from tinydist.lab.memory import held_besides
from tinydist.lab.notebook import answer_in
from tinydist.lab.ranks import Trial
from tinydist.lab.seconds import CLUSTER, EXACT

CHAPTERS = sorted({exercise.chapter for exercise in course()})
EACH = pytest.mark.parametrize("name", [exercise.name for exercise in course()])
CHAPTER = pytest.mark.parametrize("chapter", CHAPTERS)


def solution(name):
    return answer_in(ROOT / "solutions" / f"{find(name).chapter}.ipynb", name)


def notebook(folder, chapter):
    return nbformat.read(shipped(folder) / f"{chapter}.ipynb", as_version=4).cells


def tagged(cells):
    """name of the exercise -> place of its cell."""
    return {cell.metadata["tags"][0]: place for place, cell in enumerate(cells) if cell.metadata.get("tags")}


@EACH
def test_stub_is_told_not_yet(name):
    in_notebook = answer_in(shipped() / f"{find(name).chapter}.ipynb", name)
    assert judge(in_notebook).state == "not yet"


@EACH
def test_solution_passes(name):
    verdict = judge(solution(name))
    assert verdict.passed, verdict
    assert len(verdict.lines) > enough(find(name)) and all(line.state == "ok" for line in verdict.lines)


def enough(exercise):
    """Targets. One of a few minutes may be about one thing."""
    return 3 if exercise.minutes > 10 else 1


@EACH
def test_what_a_reader_is_told(name):
    exercise = find(name)
    assert len(exercise.hints) >= 2 and len(exercise.table) >= enough(exercise) and exercise.why.count(".") >= 2
    assert 1 <= exercise.difficulty <= 5 and exercise.minutes > 0 and exercise.task


# Room: passing has some, and the solutions use no more than half of it.

# exercise -> a large case, the bytes that it may hold (None: exact), and the seconds of the closed form
ROOM = {
    "tree_broadcast": (tree_broadcast.case(8, 1, (LARGE,)), lambda n: n / 8, costs.tree_broadcast),
    "ring_reduce_scatter": (
        sum_case(8, (LARGE,), reduce_scatter.parts_of_the_sum),
        lambda n: 2 * n / 8,
        costs.ring_reduce_scatter,
    ),
    "ring_all_reduce": (sum_case(8, (LARGE,), all_reduce.the_sum), lambda n: 2 * n / 8, costs.ring_all_reduce),
    "mended_all_reduce": (sum_case(8, (LARGE,), all_reduce.the_sum), lambda n: 2 * n / 8, costs.ring_all_reduce),
}


@pytest.mark.parametrize("name", ROOM)
def test_solutions_use_half_of_the_room_at_most(name):
    """Memory: half of what is granted. Time: it is the closed form, whatever room is granted above that."""
    case, granted, seconds = ROOM[name]
    trial = Trial(solution(name), case)
    assert max(held_besides(trial)) <= granted(nbytes(case)) / 2
    took = trial.run.on(CLUSTER).seconds
    assert took == pytest.approx(seconds(nbytes(case), 8, CLUSTER.inside), rel=(EXACT - 1) / 2)


def test_all_to_all_uses_half_of_the_room():
    trial = Trial(solution("all_to_all_uneven"), all_to_all.case(4, "large"))
    for held, result in zip(held_besides(trial), trial.case.expected, strict=True):
        assert held <= (2 * result.nbytes + 4 * all_to_all.COUNT * 4) / 2


def test_all_to_all_takes_no_longer_than_the_closed_form():
    trial = Trial(solution("all_to_all_uneven"), all_to_all.case(4, "even", all_to_all.WIDE))
    whole = trial.arguments[0][0].nbytes
    pairwise = [costs.pairwise_all_to_all(nbytes, 4, CLUSTER.inside) for nbytes in (4 * all_to_all.COUNT, whole)]
    assert trial.run.on(CLUSTER).seconds <= sum(pairwise)


def test_a_tree_may_post_all_its_sends_at_once():
    def tree_broadcast(tensor, src):
        rank, p = dist.get_rank(), dist.get_world_size()
        me, distance, sending = (rank - src) % p, 1, []
        while distance < p:
            if me < distance and me + distance < p:
                sending.append(dist.isend(tensor, (rank + distance) % p))
            elif distance <= me < 2 * distance:
                dist.recv(tensor, (rank - distance) % p)
            distance *= 2
        for work in sending:
            work.wait()

    assert judge(tree_broadcast).passed


def test_an_all_to_all_may_go_by_pairs():
    """In step k to the rank that is k further: what the closed form is of."""
    from lab.wrong_answers.collectives import pairwise

    def all_to_all_uneven(tensor, rows):
        return pairwise(tensor, rows)

    assert judge(all_to_all_uneven).passed


# The bugs of the third are those that it claims.


def test_given_program_is_right_where_sends_return_early(monkeypatch):
    """Its bugs show in no value: with sends that are buffered, the stub passes up to the bytes."""
    stub = CATALOGUE["mended_all_reduce"].stub
    case = sum_case(4, (10,), all_reduce.the_sum)
    assert "DeadlockError" in repr(Trial(stub, case).error)
    monkeypatch.setattr(dist, "send", lambda tensor, dst: dist.isend(tensor.clone(), dst))
    trial = Trial(stub, case)
    for (tensor,), expected in zip(trial.arguments, case.expected, strict=True):
        assert tensor.allclose(expected)


# The notebooks.


def test_every_chapter_has_its_notebooks_and_they_have_no_other():
    for folder in ("exercises", "solutions"):
        assert sorted(path.stem for path in ROOT.glob(f"{folder}/*.ipynb")) == CHAPTERS


@CHAPTER
def test_notebooks_are_the_same_but_for_the_blanks(chapter):
    blank, filled = notebook("exercises", chapter), notebook("solutions", chapter)
    assert [cell.id for cell in blank] == [cell.id for cell in filled]
    for stub, answer in zip(blank, filled, strict=True):
        assert (stub.cell_type, stub.metadata) == (answer.cell_type, answer.metadata)
        if stub.metadata.get("tags"):
            assert heading(stub.source) == heading(answer.source)
            assert stub.source != answer.source
        else:
            assert stub.source == answer.source


def heading(source):
    """What a function is called, takes and says that it does."""
    (function,) = ast.parse(source).body
    return function.name, ast.dump(function.args), ast.get_docstring(function)


@CHAPTER
def test_stub_cells_are_those_of_the_package(chapter):
    cells = notebook("exercises", chapter)
    places = tagged(cells)
    assert list(places) == [exercise.name for exercise in of_chapter(chapter)]
    for name, place in places.items():
        assert cells[place].source == find(name).source
        assert cells[place + 1].source == f"check({name})"


@CHAPTER
def test_tasks_in_the_notebook_are_those_of_the_package(chapter):
    cells = notebook("exercises", chapter)
    for name, place in tagged(cells).items():
        text, exercise = cells[place - 1].source, find(name)
        assert exercise.title in text
        assert f"{exercise.minutes} minutes, difficulty {exercise.difficulty} of 5" in text
        assert " ".join(exercise.task.replace("``", "`").split()) in " ".join(text.split())
        assert all(f"| {what} | {target} |" in text for what, target in exercise.table)
