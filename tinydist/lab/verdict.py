"""What a check finds: the properties of an answer, judged in order, up to the first that does not hold.

A property is a name, what holds if the answer is right, and a function that returns if it does, and else raises
``Wrong`` with the reason, in the words of the field. An answer that has not been begun is told "not yet": the untouched
stub, and any that reaches a bare ``raise NotImplementedError``. One that sleeps for longer than a run waits is "not
judged".
"""

import contextlib
import warnings
from html import escape
from typing import NamedTuple

import torch

from ..simulator.stuck import StuckError
from .errors import Unjudged, Wrong, explain
from .exercise import Exercise
from .find import find
from .page import plain
from .untouched import untouched

HANGING = "padding-left: 21ch; text-indent: -21ch"  # below what holds
STANDS_OUT = "font-weight: bold; color: var(--jp-error-color1, #d32f2f)"


class Line(NamedTuple):
    """One property: ``state`` is "ok", "wrong" or "-" (not judged, as another one does not hold)."""

    name: str
    state: str
    holds: str

    def __str__(self):
        return f"  {self.name:<11} {self.state:<6} {self.holds}"

    def html(self):
        look = f"{HANGING}; {STANDS_OUT}" if self.state == "wrong" else HANGING
        return f'<div style="{look}">{escape(str(self))}</div>'


class Verdict(NamedTuple):
    exercise: Exercise
    state: str  # "passed", "wrong", "not yet", "not judged"
    lines: list = ()
    wrong: Wrong | None = None  # or why it was not judged

    @property
    def passed(self):
        return self.state == "passed"

    @property
    def told(self):
        title = f"{self.exercise.name}: {self.state}"
        if self.state == "not yet":
            return [title]
        return [title, *self.lines, *(["", str(self.wrong)] if self.wrong else [])]

    def __str__(self):
        return plain(self.told)


def judge(answer) -> Verdict:
    """Judge a learner's function, and print nothing. LookupError if no exercise has its name."""
    exercise = exercise_of(answer)
    if untouched(answer, exercise.source):
        return Verdict(exercise, "not yet")
    lines, wrong = [], None
    try:
        with the_same_every_time():
            for name, holds, judge_it in list(exercise.check(answer)):
                state = "-"
                if not wrong:
                    with contextlib.suppress(Unjudged):
                        wrong = what_is_wrong(judge_it)
                        state = "wrong" if wrong else "ok"
                lines.append(Line(name, state, holds))
    except NotImplementedError:
        return Verdict(exercise, "not yet")
    except StuckError as stuck:
        return Verdict(exercise, "not judged", wrong=explain(stuck))
    passed = all(line.state == "ok" for line in lines)
    return Verdict(exercise, "wrong" if wrong else "passed" if passed else "not judged", lines, wrong)


def exercise_of(answer):
    """The exercise that a learner's function answers."""
    exercise = find(answer)
    if not callable(answer):
        raise TypeError(f"check takes your function: check({exercise.name}), got {answer!r}")
    return exercise


@contextlib.contextmanager
def the_same_every_time():
    """What ``torch.empty`` returns holds NaN (whole numbers: the largest), and not by luck what an earlier run left.
    And of what torch means to change in later versions nothing is said, as it would be in every run."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def what_is_wrong(judge_it):
    try:
        judge_it()
    except Wrong as wrong:
        return wrong
    except NotImplementedError as error:
        if not error.args:
            raise
        return explain(error)
    except (Unjudged, StuckError):
        raise
    except Exception as error:
        return explain(error)
    return None
