"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tinydist.lab.author import Malformed, Target, Wrong

ORDER = ["round_to_bfloat16", "lost_updates", "kahan_step", "scaled_step", "mended_fp16_step", "training_bytes"]

INTRODUCTION = """\
# Exercises: mixed precision

[Notebook 04](../notebooks/04_mixed_precision.ipynb) goes before these. You round by hand, predict where updates \
vanish, keep them without a master weight in a step that casts as autocast does, let all ranks skip and clip together \
by a single number, mend a step of training in fp16, and predict what training holds in memory. Six exercises, about \
two and a half hours.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(round_to_bfloat16)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check round_to_bfloat16` checks,\
 `hint round_to_bfloat16` gives a hint, and `reset round_to_bfloat16` puts the stub back.

You need no GPU: a CPU rounds fp16 and bf16 as a GPU does. Use neither `torch.amp` nor `tinydist.precision` in your \
answers: what they do, you build."""

IMPORTS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F"""

HERE = "here it is for you to do"
SOLVED = {"tinydist.precision": "tinydist.precision", "torch.amp.grad_scaler": "torch's GradScaler"}
SHORT = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
CALLED = {"_to_copy": "a cast (.to, .bfloat16, .half, autocast)", "lift_fresh": "torch.tensor"}  # by the learner


class Casts(TorchDispatchMode):
    """Notes the operators that take or make numbers of 16 or 8 bits."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for verb, values in (("makes", result), ("takes", args)):
            for dtype in short(values):
                name = func.overloadpacket.__name__
                self.found.append((CALLED.get(name, name), verb, dtype))
        return result


def short(values):
    """The dtypes of the tensors among them that have 16 or 8 bits."""
    if isinstance(values, torch.Tensor):
        return [values.dtype] if values.dtype in SHORT else []
    return [dtype for each in values for dtype in short(each)] if isinstance(values, list | tuple) else []


class ByHand(Target):
    """No operator took or made numbers of 16 or 8 bits: on the way to them torch rounds. Of programs that return
    (something, what ``Casts`` has found)."""

    decides = True

    def __init__(self, name, holds):
        super().__init__(holds)
        self.name = name

    def judge(self, exercise, trial, right):
        for name, verb, dtype in trial.returned[0][-1][:1]:
            kind = str(dtype).removeprefix("torch.")
            raise Malformed(
                f"{name} {verb} {kind} numbers: torch rounds to them, and the task is to do without. Compute with "
                "float32, with float64, or with their bits as whole numbers"
            )


class Exactly(Target):
    """Thing ``at`` of what a program returns, number by number. ``example(arguments, mine, right, wrong)`` tells of one
    of them in words, ``wrong``: their places."""

    decides = True

    def __init__(self, name, holds, at, example):
        super().__init__(holds)
        self.name, self.at, self.example = name, at, example

    def seen(self, trial):
        return None if trial.error is not None else trial.returned[0][self.at]

    def alike(self, mine, other, right):
        return 2 * torch.equal(mine, other)

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        wrong = (mine != its).nonzero().flatten().tolist()
        if wrong:
            example = self.example(trial.case.arguments(0), mine, its, wrong)
            raise Wrong(f"{len(wrong)} of {len(its)} {'is' if len(wrong) == 1 else 'are'} wrong. {example}")
