"""Answers that need no ranks, called with one input after another; and what answers of this chapter may not use."""

from functools import cached_property

import torch
from torch.overrides import TorchFunctionMode

from ...errors import Wrong
from ...own_work import Watched
from ...ranks import Case, Trials

HERE = tuple(f"{__package__}.{module}" for module in ("states", "rows", "columns", "mended_flash"))
SOLVED = ("tinydist.attention", "torch.nn.attention", *HERE)


class Input(Case):
    """Told by what it is about alone: it is called on one rank."""

    def __str__(self):
        return self.about


def input_of(about, arguments, expected=None):
    """``arguments``: a tuple; the answer gets copies of its tensors."""
    return Input(1, lambda rank: tuple(copied(each) for each in arguments), about, [expected])


def copied(thing):
    if isinstance(thing, tuple):
        return tuple(copied(each) for each in thing)
    return thing.clone() if isinstance(thing, torch.Tensor) else thing


class Attention(TorchFunctionMode):
    """Notes torch's functions that have attention in their names: what they do inside is not seen."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if "attention" in name:
            self.found.add(name)
        return function(*args, **(kwargs or {}))


class Calls(Trials):
    def __init__(self, answer, cases):
        self.watched, self.attention = Watched(answer), Attention()
        super().__init__(self.noted, cases)

    def noted(self, *arguments):
        with self.attention:
            return self.watched(*arguments)

    @cached_property
    def all(self):
        trials = super().all
        for trial in trials:
            if isinstance(trial.error, Exception):
                trial.error.__notes__ = []  # on which rank
        return trials

    def own_work(self):
        """A judge: it is not the library's, or torch's, in disguise."""
        self.end()
        for home in SOLVED:
            if self.watched.calls(home, 1):
                raise Wrong(f"you call {home}, where this is solved; here it is for you to do")
        for name in sorted(self.attention.found):
            raise Wrong(f"you call torch's {name}, where this is solved; here it is for you to do")
