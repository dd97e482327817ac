"""The smallest exercises: a reference and targets, without words; and a stub with the properties of its answers."""

from dataclasses import dataclass
from inspect import getdoc

from tinydist.lab.exercise import Exercise
from tinydist.lab.judging import Runs
from tinydist.syllabus import progress


def exercise(reference, cases, *targets):
    return Exercise(
        reference, "", 0, 0, test_cases=lambda: cases, targets=list(targets), mistakes=[], hints=[], why=""
    )  # fmt: skip


def worlds(answer, cases, *targets, reference=None):
    return Runs(exercise(reference or (lambda *arguments: None), cases, *targets), answer)


@dataclass
class Stated:
    """What a check and a hint want of an exercise."""

    stub: object
    check: object  # answer -> properties
    hints: tuple = ("h",)
    chapter: str = "99"
    title: str = "t"
    minutes: int = 5
    difficulty: int = 1
    why: str = "Because."
    note: object = None
    source: str = "def stub(x):\n    raise NotImplementedError"
    table: tuple = ()
    unavailable: object = str

    def run_reference(self):
        pass

    name = property(lambda self: self.stub.__name__)
    task = property(lambda self: getdoc(self.stub))


def course_of(monkeypatch, *exercises):
    """There are no others."""
    named = {each.name: each for each in exercises}
    monkeypatch.setattr("tinydist.syllabus.registry.of_name", named.get)
    monkeypatch.setattr("tinydist.syllabus.registry.chapters", lambda: ["99"])
    monkeypatch.setattr("tinydist.syllabus.registry.names_of", lambda chapter: list(named))


def note(name, **changes):
    """What a reader has done, as a check would."""
    with progress.entry(name) as entry:
        entry.update(changes)
