"""The exercises and their notebooks: stubs are told "not yet", solutions pass, and the rest is the same."""

import ast

import nbformat
import pytest
import torch.distributed as dist
from lab.shipped import ROOT, shipped

from tinydist.hardware import costs
from tinydist.lab import judge
from tinydist.lab.find import course, find, of_chapter
from tinydist.lab.notebook import answer_in
from tinydist.lab.seconds import CLUSTER

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


# The references of collectives take what the formulas say that their algorithms take.

CLOSED_FORMS = {
    "left_reduce_scatter": costs.ring_reduce_scatter,
    "mended_all_reduce": costs.ring_all_reduce,
    "tree_reduce": costs.tree_reduce,
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_a_solution_takes_the_time_of_the_closed_form(name):
    case = next(case for case in find(name).cases if case.measured and case.ranks == 8)
    right, nbytes = find(name).right(case), case.arguments(0)[0].nbytes
    assert right.run.on(CLUSTER).seconds == pytest.approx(CLOSED_FORMS[name](nbytes, 8, CLUSTER.inside), rel=1e-6)


def test_an_all_to_all_by_pairs_is_granted_its_time():
    """(p-1) exchanges of counts and (p-1) of rows; posted all at once they take a third."""
    case = find("all_to_all_uneven").cases[-3]
    (seconds,) = (target for target in find("all_to_all_uneven").targets if target.name == "time")
    pairs = [costs.pairwise_all_to_all(nbytes, 4, CLUSTER.inside) for nbytes in (4 * 8, case.arguments(0)[0].nbytes)]
    granted = find("all_to_all_uneven").right(case).run.on(CLUSTER).seconds * seconds.room
    assert sum(pairs) < granted < 1.1 * sum(pairs)


# The bugs are those that it claims.


def test_given_program_is_right_where_sends_return_early(monkeypatch):
    """Its bugs show in no value: with sends that are buffered, the sums of the stub are right."""
    exercise = find("mended_all_reduce")
    stub = exercise.variant(*[mistake for mistake in exercise.mistakes if mistake.given])
    assert "a send waits for its receive" in str(judge(stub).wrong)
    monkeypatch.setattr(dist, "send", lambda tensor, dst: dist.isend(tensor.clone(), dst))
    verdict = judge(stub)
    assert [line.state for line in verdict.lines if line.name in ("runs", "values")] == ["ok", "ok"]
    assert verdict.state == "wrong"


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
