"""The notebook API: ``check(my_function)`` and ``hint(my_function)``."""

import sys

from ..console.page import say
from ..console.progress_message import in_notebook, progress_message
from ..syllabus import progress
from ..syllabus.registry import exercise_of, find, what_next
from . import author as author  # so that all of the lab is there to be remembered
from . import trusted_functions
from .judging import judge as judge
from .judging import judge_isolated

LOADED_LATE = "torch._dynamo"  # by the first simulated rank of a process


def check(answer):
    """Judge a function, say what holds and what does not, and remember that it was tried."""
    try:
        exercise = exercise_of(answer)
    except (LookupError, TypeError) as error:
        say(str(error))
        return
    verdict = report(answer, exercise)
    if verdict.state == "wrong":
        say(f"\nA hint: hint({exercise.name})")
        if verdict.wrong.picture and in_notebook():
            verdict.wrong.picture()


def report(answer, exercise):
    """The same, for a program: the verdict, and no picture."""
    first = "" if LOADED_LATE in sys.modules else ", the first: parts of torch are loaded"
    with progress_message(f"check {answer.__name__}{first}"):
        verdict = judge_isolated(answer, exercise)
    say(*verdict.told)
    try:
        if verdict.state in ("passed", "wrong"):
            progress.count_try(exercise.name, verdict.passed)
    except progress.ProgressError as error:
        say(f"\nThis try was not noted: {error}")
    if verdict.passed:
        note = exercise.note(answer) if exercise.note else ""
        say(f"\n{exercise.why}", *filter(None, [note]), what_next(exercise))
    return verdict


def hint(exercise):
    """The next hint for a function, or for the exercise of that name: from general to specific, one each time."""
    try:
        exercise = find(exercise)
    except LookupError as error:
        say(str(error))
        return
    given, hints, unkept = 0, exercise.hints, None
    try:
        with progress.entry(exercise.name) as entry:
            given = entry["hints"]
            entry["hints"] = min(given + 1, len(hints))
    except progress.ProgressError as error:
        unkept = error
    number = min(given, len(hints) - 1)
    say(f"Hint {number + 1} of {len(hints)}: {hints[number]}")
    if given >= len(hints) - 1:
        say(f"This is the last hint. A solution: solutions/{exercise.chapter}.ipynb")
    if unkept:
        say(f"\nThat you have seen it was not noted: {unkept}")


trusted_functions.remember()
