"""What a reader calls in a notebook: ``check(my_function)`` and ``hint(my_function)``."""

import sys

from ..console.shell import command
from ..console.waiting import in_notebook, waiting_for
from . import author as author  # so that all of the lab is there to be remembered
from . import progress, tools
from .find import find, following
from .page import say
from .verdict import exercise_of, judge

LOADED_LATE = "torch._dynamo"  # by the first simulated rank of a process


def check(answer):
    """Judge a function, say what holds and what does not, and remember that it was tried."""
    try:
        exercise_of(answer)
    except (LookupError, TypeError) as error:
        say(str(error))
        return
    verdict = report(answer)
    if verdict.state == "wrong":
        say(f"\nA hint: hint({verdict.exercise.name})")
        if verdict.wrong.picture and in_notebook():
            verdict.wrong.picture()


def report(answer):
    """The same, for a program: the verdict, and no picture."""
    first = "" if LOADED_LATE in sys.modules else ", the first: parts of torch are loaded"
    with waiting_for(f"check {answer.__name__}{first}"):
        verdict = judge(answer)
    say(*verdict.told)
    try:
        remember(verdict)
    except progress.ProgressError as error:
        say(f"\nThis try was not noted: {error}")
    if verdict.passed:
        say(f"\n{verdict.exercise.why}", what_next(verdict.exercise))
    return verdict


def remember(verdict):
    if verdict.state in ("passed", "wrong"):
        with progress.entry(verdict.exercise.name) as entry:
            entry["tries"] += 1
            entry["passed"] |= verdict.passed


def what_next(exercise):
    """Within the chapter: what a notebook shows must not change with the chapters that come after it."""
    found = following(exercise)
    if found is None or found.chapter != exercise.chapter:
        return f"This was the last exercise of {exercise.chapter}. {command()} lists them all."
    return f"Next: {found.name} ({found.minutes} minutes)"


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


tools.remember()
