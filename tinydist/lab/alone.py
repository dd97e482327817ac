"""Answers that need no ranks: each is called on one, with one input after another, and nothing is said of ranks."""

from functools import cached_property

import torch

from .ranks import Case, Trials


class Input(Case):
    """Told by what it is about alone."""

    def __str__(self):
        return self.about


def input_of(arguments, about, expected=None, kind=None):
    """``arguments()``: a tuple, made anew."""
    return Input(1, lambda rank: arguments(), about, expected, kind=kind)


def copied(things):
    """A tuple with copies of its tensors, also of those in tuples in it."""
    return tuple(copied(each) if type(each) is tuple else copy_of(each) for each in things)


def copy_of(thing):
    return thing.clone() if isinstance(thing, torch.Tensor) else thing


class Calls(Trials):
    """No error says on which rank it was raised."""

    @cached_property
    def all(self):
        trials = super().all
        for trial in trials:
            if isinstance(trial.error, Exception):
                trial.error.__notes__ = []
        return trials

    def together(self, judge):
        """A judge of what is noted of all inputs together: none of them is told."""
        return lambda: judge(self.all[0])
