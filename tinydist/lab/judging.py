"""Judging: the properties of an answer, evaluated in order up to the first failure.

A property is a name, what holds if the answer is right, and a function that returns if it does, and else raises
``Wrong`` with the reason. An answer that has not been begun is told "not yet": the untouched stub, and any that reaches
a bare ``raise NotImplementedError``. One that sleeps for longer than a run waits is "not judged"; so is any where the
exercise is unavailable on this machine. No case is run that could not change the verdict: what stands in the targets up
to the values is judged as the cases are run; where one of them does not hold, later cases are not run.
"""

import contextlib
import warnings
from collections import defaultdict
from functools import partial
from textwrap import indent
from typing import NamedTuple

import torch

from ..console.page import Styled, plain
from ..console.progress_message import in_notebook
from ..simulator.autograd_warning import UnseenByAutograd
from ..simulator.stuck import StuckError
from ..syllabus.registry import exercise_of
from . import trusted_functions
from .blanks import is_stub
from .cases import Alone
from .communication_targets import Own
from .errors import Unjudged, Wrong, explain, listed
from .isolation import AVAILABLE, ProcessEnded, case_begins, run_isolated
from .messages import SHARED
from .target import ENDS, Malformed

SHOWN = 12  # lines of what the ranks printed
HANGING = "padding-left: 23ch; text-indent: -23ch"  # below what holds
STANDS_OUT = "font-weight: bold; color: var(--jp-error-color1, #d32f2f)"


class Line(NamedTuple):
    """One property: ``state`` is "ok", "wrong" or "-" (not judged, as another one does not hold)."""

    name: str
    state: str
    holds: str

    @property
    def styled(self):
        look = f"{HANGING}; {STANDS_OUT}" if self.state == "wrong" else HANGING
        after = " (not judged)" if self.state == "-" else ""
        return Styled(f"  {self.name:<13} {self.state:<6} {self.holds}{after}", look)


class Verdict(NamedTuple):
    exercise: object
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
        return [title, *(line.styled for line in self.lines), *(["", str(self.wrong)] if self.wrong else [])]

    def __str__(self):
        return plain(self.told)


def judge(answer, exercise=None) -> Verdict:
    """Judge a learner's function, and print nothing. LookupError if no exercise has its name."""
    exercise = exercise or exercise_of(answer)
    if is_stub(answer, exercise.source):
        return Verdict(exercise, "not yet")
    if reason := exercise.unavailable():
        return Verdict(exercise, "not judged", wrong=Wrong(reason))
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


def judge_isolated(answer, exercise) -> Verdict:
    """The same, in a process of its own where that is possible, so that an answer cannot end this one."""
    if not AVAILABLE or is_stub(answer, exercise.source) or exercise.unavailable():
        return judge(answer, exercise)
    with the_same_every_time():
        exercise.run_reference()  # here, where it is kept for the next check
    try:
        return run_isolated(lambda: portable(judge(answer, exercise)))._replace(exercise=exercise)
    except ProcessEnded as ended:
        first, *others = (Line(name, "-", holds) for name, holds, _ in exercise.check(answer))
        lines = [first._replace(state="wrong"), *others]
        return Verdict(exercise, "wrong", lines, Wrong(str(ended)))


def portable(verdict):
    """The verdict, as it travels from one process to another: its picture is drawn."""
    wrong, picture = verdict.wrong, None
    if wrong and wrong.picture and in_notebook():
        from IPython.display import display  # it is there: the notebook's own
        from IPython.utils.capture import capture_output

        with capture_output() as captured:
            figure = wrong.picture()
            if figure is not None:
                display(figure)
        picture = captured.show
    return verdict._replace(exercise=None, wrong=wrong and Wrong(str(wrong), picture))


@contextlib.contextmanager
def the_same_every_time():
    """What ``torch.empty`` returns holds NaN (whole numbers: the largest), and not by luck what an earlier run left.
    Of what torch means to change in later versions nothing is said, as it would be in every run. And a collective of
    which autograd sees nothing is an error: PyTorch warns that its gradients may be silently wrong."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("error", UnseenByAutograd)
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def what_is_wrong(judge_it):
    try:
        judge_it()
    except Exception as error:
        not_begun = isinstance(error, NotImplementedError) and not error.args
        if not_begun or isinstance(error, (Unjudged, StuckError)):
            raise
        return error if isinstance(error, Wrong) else explain(error)
    return None


# The properties of an exercise.


def properties(exercise, answer):
    trusted_functions.remember_exercise(exercise)
    runs = Runs(exercise, answer)
    yield "runs", runs.in_words(), runs.end
    depends = "results depend only on received data"
    hidden = [("communication", depends, runs.follow)] if exercise.hidden else []
    for target in exercise.targets:
        if target.measured:
            yield from hidden
            hidden = []
        yield target.name, target.holds, partial(runs.hold, target)
    yield from hidden


class Runs:
    """An answer in the cases of its exercise."""

    def __init__(self, exercise, answer):
        self.exercise, self.answer = exercise, answer
        self.trials, self.wrong = [], {}  # target -> what it finds wrong
        self.right = defaultdict(list)  # target -> cases in which it holds
        self.over = self.complete = False

    def in_words(self):
        sizes = sorted({case.ranks for case in self.exercise.cases})
        if isinstance(self.exercise.cases[0], Alone):
            return "it ends without an error"
        return f"it ends on {listed(sizes)} rank{'s' * (sizes != [1])} without an error"

    def run(self):
        """All of them, or up to the first in which it is wrong."""
        if self.over:
            return
        self.over, cases = True, self.exercise.cases
        for number, case in enumerate(cases, start=1):
            with case_begins(number, len(cases), case):
                trial = self.exercise.trial(self.answer, case)
            self.trials.append(trial)
            own = [target for target in self.exercise.early if isinstance(target, Own)] if trial.error else []
            if any(self.find(target, trial) for target in [*own, ENDS, *self.exercise.early]):
                return
        self.complete = True

    def end(self):
        self.run()
        if self.trials[-1].stubbed:
            raise NotImplementedError
        self.raise_wrong(ENDS)

    def hold(self, target):
        self.run()
        if target not in self.exercise.early:
            for trial in self.trials:
                if self.find(target, trial):
                    break
        self.raise_wrong(target)

    def raise_wrong(self, target):
        if target in self.wrong:
            raise self.wrong[target]
        if not self.complete:
            raise Unjudged

    def find(self, target, trial):
        """Is something wrong? What, is kept."""
        if target.concerns(trial, self.exercise):
            try:
                target.compare(self.exercise, trial, [each.case for each in self.trials[: self.trials.index(trial)]])
                self.right[target].append(trial.case)
            except Wrong as wrong:
                right = "" if isinstance(wrong, Malformed) else self.right_with(target, trial.case)
                self.wrong[target] = Wrong(told(str(wrong), trial, right), wrong.picture)
        return target in self.wrong

    def right_with(self, target, case):
        """Other numbers of ranks, in cases that differ from it in ranks and sizes alone."""
        ranks = {each.ranks for each in self.right[target] if each.kind == case.kind} - {1, case.ranks}
        return f"\nWith {listed(sorted(ranks))} ranks this is right." if ranks else ""

    def follow(self):
        """In the hidden case, to one of the right ways; or, if it groups otherwise what it sends, in the one where it
        does not matter in which message a number travels."""
        exercise = self.exercise
        trial = exercise.trial(self.answer, exercise.hidden)
        failed, wrong = self.strays(trial, exercise.hidden)
        if not wrong:
            return
        if trial.error is None:
            by_value = exercise.hidden_by_value
            if not self.strays(exercise.trial(self.answer, by_value), by_value)[1]:
                return
            earlier = [each.case for each in self.trials]
            found = failed.mistaken(exercise, trial, exercise.right(exercise.hidden), earlier)
            do_not = f"the results do not follow what is sent: they do not come from that alone. {SHARED}"
            wrong = found.get(2, do_not)
        raise Wrong(told(str(wrong), trial))

    def strays(self, trial, case):
        """From all right ways: the target that the last of them misses, and how. (None, None) if it follows one."""
        exercise, failed, wrong = self.exercise, None, None
        values = [target for target in [ENDS, *exercise.targets] if target.decides]
        for way in [(), *((way,) for way in exercise.alternatives)]:
            try:
                for target in values:
                    target.judge(exercise, trial, exercise.run(case, *way))
                return None, None
            except Wrong as error:
                failed, wrong = target, error
        return failed, wrong


def told(text, trial, right=""):
    text = f"With {trial.case}: {text}"
    if trial.printed:
        text += f"\nYour ranks printed:\n{indent(chr(10).join(trial.printed[:SHOWN]), '  ')}"
    return text + right
