"""An exercise: a reference solution with its checks, known mistakes and hints, in one file.

The solution is the reference: it runs in the same test cases as the answer, and targets compare the two. A mistake is
an edit of the solution's source, with an explanation: if an answer is wrong, the mutated solutions are run in the same
test case, and the mistake that gives the same result is reported.
"""

import ast
import inspect
import linecache
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple

from . import blanks
from .cases import Trial, outside_of_tensors
from .communication_targets import Waits
from .judging import properties


class Mistake(NamedTuple):
    words: str
    edits: tuple  # old text, new text, old, new, ...
    given: bool  # is it in the program that the reader is to mend?


def mistake(words, *edits, given=False):
    return Mistake(words, edits, given)


def also(*edits):
    """Not a mistake: another right way, where the results in the hidden world may be others."""
    return Mistake("", edits, False)


def edits(mistakes):
    """Of all of them, one after the other."""
    return tuple(chain.from_iterable(each.edits for each in mistakes))


def call(answer, *arguments):
    return answer(*arguments)


def changed(case, rank=1):
    """The same world, where what a rank sends is changed on the way."""
    about = f"{case.about + ', ' if case.about else ''}and the numbers that rank {rank} sends changed on the way"
    return replace(case, changed=rank, about=about)


@dataclass(eq=False, repr=False)
class Exercise:
    reference: Callable
    title: str
    minutes: int
    difficulty: int  # 1 to 5
    test_cases: Callable  # () -> cases, small ones first
    targets: list
    mistakes: list
    hints: list  # from general to specific; the last is not the whole code
    why: str  # two sentences on why it matters
    program: Callable = call  # (answer, *arguments): what a rank does with the answer
    alternatives: list = field(default_factory=list)  # other right ones: also(...)
    note: Callable | None = None  # (right answer) -> what only some answers need to be told, or ""
    check_communication: bool = True  # the results, if messages are perturbed
    unavailable: Callable = str  # () -> why no answer can be judged on this machine, or ""
    _runs: dict = field(default_factory=dict, init=False)  # (case, mistakes) -> Trial

    def __post_init__(self):
        self.module = sys.modules[self.reference.__module__]  # kept, as its chapter may be loaded once more
        waits = any(isinstance(target, Waits) for target in self.targets)
        needed = not waits and any(case.ranks > 1 for case in self.test_cases())
        self.targets = (*self.targets, Waits()) if needed else tuple(self.targets)

    @property
    def name(self):
        return self.reference.__name__

    @property
    def chapter(self):
        return self.module.__package__

    @property
    def task(self):
        return inspect.getdoc(self.reference)

    @property
    def table(self):
        """What is looked at, and what must hold."""
        return [(target.name, target.holds) for target in self.targets]

    @cached_property
    def suspects(self):
        """Mistakes; and several of them at once, the first of which is reported."""
        given = [each for each in self.mistakes if each.given]
        several = [those for count in range(2, len(given) + 1) for those in combinations(given, count)]
        return self.mistakes + [Mistake(those[0].words, edits(those), True) for those in several]

    @cached_property
    def text(self):
        """The solution with its marks; and the number of its first line."""
        lines = inspect.getsource(self.module).splitlines()
        tree = ast.parse("\n".join(lines))
        (at,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == self.name)
        return "\n".join(lines[at.lineno - 1 : at.end_lineno]), at.lineno

    @property
    def solution(self):
        return blanks.solution(self.text[0])

    @property
    def source(self):
        """What stands in the reader's notebook."""
        return blanks.stub(blanks.edited(self.text[0], edits(each for each in self.mistakes if each.given)))

    @cached_property
    def cases(self):
        """One rank comes last, since with others there is more to say."""
        cases = [case for case in self.test_cases() if case.changed is None]
        return tuple(sorted(cases, key=lambda case: case.ranks == 1))

    @cached_property
    def hidden(self):
        """The world where what one rank sends is changed on the way; None, where nothing is sent."""
        several = [case for case in self.cases if case.ranks > 1 and not case.measured]
        if not several or not self.check_communication:
            return None
        chosen = [case for case in self.test_cases() if case.changed is not None]
        return chosen[0] if chosen else changed(next((case for case in several if case.ranks > 2), several[0]))

    @cached_property
    def hidden_by_value(self):
        """The same, where the change goes by the numbers, so that it does not matter in which message they travel."""
        return replace(self.hidden, by_value=True)

    @property
    def measured(self):
        """Are there worlds in which bytes held and seconds are judged?"""
        return any(case.measured for case in self.cases)

    @property
    def early(self):
        """The targets that are judged as the worlds are run."""
        last = max((place for place, target in enumerate(self.targets) if target.decides), default=-1)
        return self.targets[: last + 1]

    @property
    def listen(self):
        """A word in names of torch's functions, which answers should not call."""
        return next(filter(None, (target.torchs for target in self.targets)), "")

    def before(self, target):
        """The targets that are judged before it."""
        return self.targets[: self.targets.index(target)] if target in self.targets else []

    def check(self, answer):
        return properties(self, answer)

    def right(self, case):
        """What the reference does."""
        return self.run(case)

    def run_reference(self):
        """In all cases; what was run is kept."""
        for case in [*self.cases, *([self.hidden] if self.hidden else [])]:
            self.right(case)

    def run(self, case, *mistakes):
        """What it does with these mistakes."""
        key = case, mistakes
        if key not in self._runs:
            function = self.variant(*mistakes) if mistakes else self.reference
            self._runs[key] = self.trial(function, case, watched=False)
        return self._runs[key]

    def trial(self, function, case, watched=True):
        computed = any(target.operators and target.looks_at(case, self) for target in self.targets)
        observe = True if computed else "communication"
        trial = Trial(lambda *arguments: self.program(function, *arguments), case, watched, self.listen, observe)
        trial.exercise = self
        return trial

    def outside(self, case):
        """Bytes that the reference takes besides tensors."""
        if ("outside", case) not in self._runs:
            self._runs["outside", case] = outside_of_tensors(self.run(case), watched=True)
        return self._runs["outside", case]

    def solutions_among(self, called):
        """Names of this chapter's exercises whose solutions are among the functions that were called."""
        parts = [each.rpartition(".") for each in called if each.startswith(f"{self.chapter}.")]
        found = [(getattr(sys.modules.get(module), "EXERCISE", None), name) for module, _, name in parts]
        return [name for exercise, name in found if exercise is not None and exercise.name == name]

    def variant(self, *mistakes):
        """The solution with these, as a function."""
        text = "\n" * (self.text[1] - 1) + blanks.edited(self.solution, edits(mistakes))
        names = {**vars(self.module), "__name__": blanks.MISTAKEN}
        file = f"{self.module.__file__}, {zlib.crc32(text.encode()):08x}"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads the source
        exec(compile(text, file, "exec"), names)
        return names[self.name]


def exercise(**facts):
    """A decorator: registers the function as the reference of an exercise, and returns it unchanged."""

    def register(function):
        sys.modules[function.__module__].EXERCISE = Exercise(function, **facts)
        return function

    return register
