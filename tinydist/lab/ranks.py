"""An answer, run on simulated ranks: worlds of several sizes, and what came of each.

A ``Case`` is one world and what the answer is called with there; a ``Trial`` is a case that was run. ``Trials`` runs
each case once, when a property first asks for it, so that all properties are judged on the same runs; and none after
the first with wrong values.
"""

import contextlib
import io
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch.distributed as dist

from ..launch import launch
from ..simulator.deadlock import DeadlockError
from ..simulator.stuck import StuckError
from ..waiting import waiting_for
from .errors import Left, Unjudged, Wrong, indented, words
from .limit import Limit, TooLong

SHOWN = 12  # lines of what the ranks printed


@dataclass(frozen=True)
class Case:
    ranks: int
    arguments: Callable  # rank -> a tuple, made anew on that rank
    about: str = ""  # besides the number of ranks, as the learner reads it
    expected: object = field(default=None, compare=False)  # by rank, or whatever its judges take
    how: dict = field(default_factory=dict, compare=False)  # options of launch
    kind: object = None  # a message names other worlds in which it is right: those of the same kind

    def __str__(self):
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        return f"{ranks}, {self.about}" if self.about else ranks


def about(words):
    """Which cases: those that are told with these words."""
    return lambda case: words in case.about


class Trial:
    """``arguments`` and ``returned``: by rank, as they are after the run. ``error``: what stopped it, or None."""

    def __init__(self, answer, case):
        self.answer, self.case = answer, case
        self.run = self.error = None
        self.arguments, self.returned = (), ()
        self.limits = [Limit() for _ in range(case.ranks)]
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "launch: all ranks have ended")  # the verdict says it better
                self.run = launch(self._program, case.ranks, backend="simulated", **case.how)
            self.arguments, self.returned = zip(*self.run.results)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error = error
        if any(limit.passed for limit in self.limits) and not isinstance(self.error, TooLong):
            self.error = TooLong()  # the answer has swallowed it
        self.printed = printed.getvalue().splitlines()
        self._found = {}  # judge -> what it finds

    def _program(self):
        rank = dist.get_rank()
        arguments = self.case.arguments(rank)
        try:
            with self.limits[rank]:
                return arguments, self.answer(*arguments)
        except SystemExit as end:
            raise Left from end

    def again(self, **changes):
        """The same with another case."""
        return Trial(self.answer, replace(self.case, **changes))

    @property
    def stubbed(self):
        """A rank came to a bare ``raise NotImplementedError``."""
        return isinstance(self.error, NotImplementedError) and not self.error.args

    def judge(self, judge):
        """``judge(self)``; what it finds wrong says where."""
        error = self.found(judge)
        if isinstance(error, Wrong):
            text = f"With {self.case}: {error}"
            if self.printed:
                text += f"\nYour ranks printed:\n{indented(chr(10).join(self.printed[:SHOWN]))}"
            raise Wrong(text, error.picture)
        if error:
            raise error

    def found(self, judge):
        """What ``judge(self)`` raises, or None. It is asked once."""
        if judge not in self._found:
            self._found[judge] = None
            try:
                judge(self)
            except Exception as error:
                self._found[judge] = error
        return self._found[judge]


class Trials:
    """``values(trial)``: a judge of what came out. Where it finds something wrong, later cases are not run."""

    def __init__(self, answer, cases, values=lambda trial: None):
        self.answer, self.cases, self.values = answer, list(cases), values

    @cached_property
    def all(self):
        trials = []
        for case in self.cases:
            with waiting_for(f"{len(trials) + 1} of {len(self.cases)}: {case}"):
                trials.append(Trial(self.answer, case))
            if isinstance(trials[-1].error, StuckError | TooLong):
                break  # the others would take as long
            if trials[-1].error is None and trials[-1].found(self.values):
                break  # that is told, whatever comes of the others
        return trials

    def end(self, deadlocked=""):
        """A judge: every case comes to its end on every rank. ``deadlocked``: what else to say of a deadlock.
        Unjudged if some were not run."""
        for trial in self.all:
            if trial.stubbed:
                raise NotImplementedError
        try:
            self.each(came_to_its_end)()
        except Wrong as wrong:
            if deadlocked and any(isinstance(trial.error, DeadlockError) for trial in self.all):
                raise Wrong(f"{wrong}\n{deadlocked}", wrong.picture) from None
            raise
        if len(self.all) < len(self.cases):
            raise Unjudged

    def each(self, judge, among=lambda case: True):
        """A judge: ``judge(trial)`` finds nothing wrong with any case. The smallest world that fails is told."""

        def judge_all():
            right = defaultdict(set)  # kind -> sizes of worlds
            for trial in self.all:
                if among(trial.case):
                    try:
                        trial.judge(judge)
                    except Wrong as wrong:
                        others = right[trial.case.kind] - {trial.case.ranks}
                        raise Wrong(str(wrong) + also_right(others), wrong.picture) from None
                    right[trial.case.kind].add(trial.case.ranks)

        return judge_all


def came_to_its_end(trial):
    if isinstance(trial.error, StuckError):
        raise trial.error  # it is not judged
    if trial.error is not None:
        raise Wrong(words(trial.error))


def also_right(worlds):
    """Where it holds: that narrows down what is wrong."""
    sizes = sorted(worlds - {1})
    return f"\nWith {listed(sizes)} ranks this is right." if sizes else ""


def listed(things):
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last
