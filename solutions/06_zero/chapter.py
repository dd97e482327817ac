"""What the exercises of this chapter share: their order, their notebook's beginning, a chain of layers, and what a rank
holds and sends."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Collectives, Malformed, Memory, Own, Values, Waits, Wrong, mistake
from tinydist.lab.differences import close
from tinydist.torch_internals import unobserved
from tinydist.tracing.scopes import of_thread

ORDER = ["sharded_adam", "shard_gradients", "sharded_linear", "mended_fsdp", "predicted_fsdp"]

INTRODUCTION = """\
# Exercises: ZeRO

[Notebook 06](../notebooks/06_zero.ipynb) goes before these. You climb the ladder by hand: an own shard of Adam, \
gradients freed while backward runs, a layer gathered and freed; then you find bugs in an FSDP training loop, and \
predict what FSDP holds and sends. Use the collectives of `torch.distributed`, but neither `tinydist.zero` nor \
torch's FSDP or `ZeroRedundancyOptimizer`; and keep numbers in tensors: memory of numpy counts, too. Five \
exercises, about 115 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values, on the bytes held, by purpose and at their peak, and \
on the bytes sent. The first property that does not hold is explained.

**Hint.** `hint(sharded_adam)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check sharded_adam` checks, \
`hint sharded_adam` gives a hint, and `reset sharded_adam` puts the stub back.

p is the number of ranks. Look at your own run whenever you like: `tinydist.launch(my_program, 4)`, and then \
`run.memory[0].peak` and `run.traffic`."""

IMPORTS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F"""

SOLVED = {
    "tinydist.zero": "tinydist.zero",
    "torch.distributed.fsdp": "torch's FSDP",
    "torch.distributed.optim": "torch's ZeroRedundancyOptimizer",
}
BY_HAND = [  # the first targets of programs
    Waits("whatever is started is waited for"),
    Own(
        "neither tinydist.zero nor torch's FSDP or ZeroRedundancyOptimizer",
        "use the collectives of torch.distributed",
        SOLVED,
    ),
]
WHOLE = {
    "all_reduce": "An all-reduce brings the whole sum to every rank, and each needs its shard alone: reduce-scatter",
    "broadcast": "Nobody has the whole to broadcast it: every rank owns a shard",
    "reduce": "One reduce for each rank is a reduce-scatter",
}
NUMBER = 8  # bytes at most
VIEW = "A view (chunk, split) keeps all memory of the tensor that it is a part of: clone the part"


class Sent(Bytes):
    """As many bytes as the solution sends; and by a collective that brings more than parts, not more than a number."""

    def judge(self, exercise, trial, right):
        for name, nbytes in (call for calls in Collectives("").seen(trial) for call in calls):
            if name in WHOLE and nbytes > NUMBER:
                raise Malformed(f"you call {name} with {nbytes:,} bytes. {WHOLE[name]}")
        super().judge(exercise, trial, right)


class Held(Memory):
    """Bytes that a rank holds: at their peak, or the most that the program has ``noted`` under that name in a dict of
    lists, its last argument."""

    measured = False  # so that bytes sent are judged before the world where what is sent changes

    def __init__(self, name, holds, noted="", **more):
        if noted:
            more["of"] = lambda trial: [max(arguments[-1][noted], default=0) for arguments in trial.arguments]
        super().__init__(holds, name=name, **more)

    def concerns(self, trial, exercise):
        return trial.error is None and (trial.case.measured or not exercise.measured)


def held_now(purpose=None):
    """Bytes that this rank holds, in all or for one purpose; 0 in runs where nobody counts them."""
    ledger = of_thread.ledger
    held = ledger.held if ledger else {}
    return held.get(purpose, 0) if purpose else sum(held.values())


def noted(tensor):
    """Its numbers, where no ledger counts them."""
    with unobserved():
        return tensor.detach().clone()


def function(returned, name):
    """What an answer returned, if it can be called."""
    if not callable(returned):
        raise Wrong(f"on rank {dist.get_rank()} it returned {returned!r}, where it should return the function {name}")
    return returned


def of(dtype):
    """In words, if it is not the usual one."""
    return "" if dtype == torch.float32 else f" of {str(dtype).removeprefix('torch.')}"


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights(shapes, dtype=torch.float32):
    """Of a chain of layers, one after another: [rows, columns], each."""
    for seed, shape in enumerate(shapes):
        yield numbers(*shape, seed=seed, dtype=dtype).div_(shape[1] ** 0.5)


class Varied(Values):
    """A result is compared with ``variants`` of the solution's, too, each (words, old text, new text, ...). Where it is
    wrong in several cases, one that gives the same by chance is not told: numbers agree in most, words and small
    numbers in all."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before = self.seen(trial), exercise.before(self)
        suspects = *exercise.mistakes, *self.variants
        here = [each for each in suspects if self.same(trial, exercise.run(trial.case, each))]
        here = [each for each in here if self.hold(before, exercise, each, [trial.case])]
        others = [type(trial)(trial.program, case) for case in exercise.cases] if here else []
        wrong = [other for other in others if not self.same(other, exercise.right(other.case))]
        agree = {each: sum(self.same(other, exercise.run(other.case, each)) for other in wrong) for each in here}
        sure = {each for each in here if self.enough(mine, agree[each], len(wrong))}
        if sure:
            likely = [each for each in here if each in sure and agree[each] == max(agree[one] for one in sure)]
            return {2: max(likely, key=lambda each: sum(self.places(exercise, each, other) for other in others)).words}
        return super().mistaken(exercise, trial, right, earlier)

    def enough(self, mine, agree, wrong):
        if len(mine) > 4 or any(isinstance(each, torch.Tensor) for each in mine.values()):
            return True
        number = any(type(each) is float or (type(each) is int and each > 99) for each in mine.values())
        return agree == wrong or (number and agree > wrong / 2)

    def same(self, trial, run):
        mine, its = self.seen(trial), self.seen(run)
        if mine is None or its is None:
            return mine is its  # both end with an error
        return mine.keys() == its.keys() and all(close(mine[at], its[at]) for at in mine)

    def places(self, exercise, mistake, trial):
        """In how many of all that came back they are the same."""
        mine, its = (Values.seen(self, each) or {} for each in (trial, exercise.run(trial.case, mistake)))
        return sum(at in its and close(each, its[at]) for at, each in mine.items())
