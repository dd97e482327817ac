"""The properties of an answer to an exercise in one file, lazily: no world is run that could not change the verdict.

What stands in the targets up to the values is judged as the worlds are run; where one of them does not hold, later
worlds are not run.
"""

from collections import defaultdict
from functools import partial

from ..console.waiting import waiting_for
from .errors import Unjudged, Wrong, indented
from .messages import SHARED
from .sent import Own
from .target import Ends, Malformed
from .worlds import Alone

SHOWN = 12  # lines of what the ranks printed


def properties(exercise, answer):
    worlds = Worlds(exercise, answer)
    yield "runs", worlds.in_words(), worlds.end
    heard = [("heard", "the results follow what is sent", worlds.follow)] if exercise.hidden else []
    for target in exercise.targets:
        if target.measured:
            yield from heard
            heard = []
        yield target.name, target.holds, partial(worlds.hold, target)
    yield from heard


class Worlds:
    """An answer in the worlds of its exercise."""

    def __init__(self, exercise, answer):
        self.exercise, self.answer = exercise, answer
        self.trials, self.wrong = [], {}  # target -> what it finds wrong
        self.right = defaultdict(set)  # target -> sizes of worlds in which it holds
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
            with waiting_for(f"{number} of {len(cases)}: {case}"):
                trial = self.exercise.trial(self.answer, case)
            self.trials.append(trial)
            own = [target for target in self.exercise.early if isinstance(target, Own)] if trial.error else []
            if any(self.find(target, trial) for target in [*own, Ends(), *self.exercise.early]):
                return
        self.complete = True

    def end(self):
        self.run()
        if self.trials[-1].stubbed:
            raise NotImplementedError
        self.raise_wrong(Ends())

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
                self.right[target].add(trial.case.ranks)
            except Wrong as wrong:
                others = () if isinstance(wrong, Malformed) else sorted(self.right[target] - {1, trial.case.ranks})
                self.wrong[target] = Wrong(told(str(wrong), trial, others), wrong.picture)
        return target in self.wrong

    def follow(self):
        """In the hidden world, to one of the right ways."""
        exercise, wrong, failed = self.exercise, None, None
        trial = exercise.trial(self.answer, exercise.hidden)
        values = [target for target in [Ends(), *exercise.targets] if target.decides]
        for way in [(), *((way,) for way in exercise.ways)]:
            try:
                for target in values:
                    target.judge(exercise, trial, exercise.run(exercise.hidden, *way))
                return
            except Wrong as error:
                wrong, failed = error, target
        if trial.error is None:
            earlier = [each.case for each in self.trials]
            found = failed.mistaken(exercise, trial, exercise.right(exercise.hidden), earlier)
            do_not = f"the results do not follow what is sent: they do not come from that alone. {SHARED}"
            wrong = found.get(2, do_not)
        raise Wrong(told(str(wrong), trial))


def told(text, trial, others=()):
    """``others``: sizes of worlds in which it is right."""
    text = f"With {trial.case}: {text}"
    if trial.printed:
        text += f"\nYour ranks printed:\n{indented(chr(10).join(trial.printed[:SHOWN]))}"
    return text + (f"\nWith {listed(others)} ranks this is right." if others else "")


def listed(things):
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last
