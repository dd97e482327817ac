"""What a reader calls in a notebook: ``check(my_function)`` and ``hint(my_function)``."""

import sys

from . import progress
from .exercise import find, following
from .verdict import exercise_of, judge, paragraphs


def check(answer):
    """Judge a function, say what holds and what does not, and remember that it was tried."""
    try:
        exercise_of(answer)
    except (LookupError, TypeError) as error:
        print(error)
        return
    verdict = report(answer)
    if verdict.state == "wrong":
        print(f"\nA hint: hint({verdict.exercise.name})")
        if verdict.wrong.picture and in_notebook():
            verdict.wrong.picture()


def report(answer):
    """The same, for a program: the verdict, and no picture."""
    verdict = judge(answer)
    print(verdict)
    try:
        remember(verdict)
    except progress.DamagedProgress as error:
        print(f"\nThis try was not noted: {error}")
    if verdict.passed:
        print(f"\n{paragraphs(verdict.exercise.why)}\n{what_next(verdict.exercise)}")
    return verdict


def remember(verdict):
    if verdict.state in ("passed", "wrong"):
        name = verdict.exercise.name
        before = progress.of(name)
        progress.note(name, tries=before["tries"] + 1, passed=verdict.passed or before["passed"])


def what_next(exercise):
    """Within the chapter: what a notebook shows must not change with the chapters that come after it."""
    found = following(exercise)
    if found is None or found.chapter != exercise.chapter:
        return f"This was the last exercise of {exercise.chapter}. python -m tinydist lists them all."
    return f"Next: {found.name} ({found.minutes} minutes)"


def hint(exercise):
    """The next hint for a function, or for the exercise of that name: from general to specific, one each time."""
    try:
        exercise = find(exercise)
        given = progress.of(exercise.name)["hints"]
    except (LookupError, progress.DamagedProgress) as error:
        print(error)
        return
    hints = exercise.hints
    number = min(given, len(hints) - 1)
    print(paragraphs(f"Hint {number + 1} of {len(hints)}: {hints[number]}"))
    if given >= len(hints) - 1:
        print(f"This is the last hint. A solution: solutions/{exercise.chapter}.ipynb")
    if given < len(hints):
        progress.note(exercise.name, hints=given + 1)


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and shell.has_trait("kernel")
