"""Where a chapter keeps its wrong answers."""


def collection():
    """A list, and a decorator that puts a wrong answer into it under a label of its own.

    ``@wrong(exercise, rejected_by, told)``: the exercise whose name the answer takes, the property that must reject it,
    and a part of the message that it must get.
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
