"""Answers that need no ranks, called with one input after another; they may call no finished attention.

Torch's functions are seen as they are called, by whatever name; those of tinydist by the module that they are of.
"""

from functools import cached_property

import torch
from torch.overrides import TorchFunctionMode

from ...errors import Wrong
from ...own_work import Watched
from ...ranks import Trials
from ...values import kind

TORCHS = ("scaled_dot_product_attention", "multi_head_attention_forward", "_native_multi_head_attention")
SOLVED = ("tinydist.attention", "tinydist.lab.chapters", "torch.nn.attention")


class Noted(TorchFunctionMode):
    """Notes the names of torch's functions in ``names``."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class Answer(Watched):
    """A learner's, watched. ``lent``: what it may call of the modules that solve it."""

    def __init__(self, answer, lent=()):
        super().__init__(answer)
        self.lent, self.functions = {__name__, *lent}, set()

    def __call__(self, *arguments):
        with Noted(self.functions):
            return super().__call__(*arguments)

    def borrowed(self):
        for name in TORCHS:
            if name in self.functions:
                return f"torch's {name}"
        called = [f"{module}." for module in self.modules[1] - self.lent]
        return next((home for home in SOLVED if any(module.startswith(f"{home}.") for module in called)), None)


class OnOneRank(Trials):
    """No message says on which rank: there is one."""

    @cached_property
    def all(self):
        trials = super().all
        for trial in trials:
            if isinstance(trial.error, Exception):
                trial.error.__notes__ = []
        return trials


def own_work(answer, trials):
    """A judge: the answer is not the library's, or torch's, in disguise."""

    def judge():
        found = trials.all and answer.borrowed()
        if found:
            raise Wrong(f"you call {found}, where this is solved; here it is for you to build")

    return judge


def tensor_like(got, right, letters):
    """It is a tensor of the shape and dtype of ``right``; ``letters`` name its dims."""
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{kind(got)} came back, where a tensor is right")
    if got.shape != right.shape:
        raise Wrong(f"a result of shape {list(got.shape)} came back, where {letters} = {list(right.shape)} is right")
    if got.dtype != right.dtype:
        have, want = (str(each.dtype).removeprefix("torch.") for each in (got, right))
        raise Wrong(f"a result in {have} came back, where that of q, {want}, is right")
