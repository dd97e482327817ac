"""Where a chapter keeps its wrong answers."""

from functools import cache

from tinydist.lab.exercise import Mistake
from tinydist.syllabus.registry import find


def collection():
    """A list, and a decorator that puts a wrong answer into it under a label of its own.

    ``@wrong(exercise, rejected_by, told)``: the exercise whose name the answer takes, the property that must reject it,
    and what of the message shows that it is this one: the world, the operation, the argument, what was received.
    """
    answers = []

    def wrong(exercise, rejected_by, told):
        def register(function):
            label, function.__name__ = f"{exercise}-{function.__name__}", exercise
            answers.append((label, function, rejected_by, told))
            return function

        return register

    return answers, wrong


def others():
    """The same of answers that are right, though not the solution: ``@right(exercise)``."""
    answers = []

    def right(exercise):
        def register(function):
            label, function.__name__ = f"{exercise}-{function.__name__}", exercise
            answers.append((label, function))
            return function

        return register

    return answers, right


@cache
def solved(name, *edits, **names):
    """The solution as a function, for answers that do something besides: with edits of its text, and ``names`` that
    they use. No check takes it for a call of the solution."""
    function = find(name).variant(Mistake("", edits, False))
    function.__globals__.update(names)
    return function
