"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

import torch

from tinydist.lab.author import Values, mistake
from tinydist.lab.differences import close

ORDER = ["gpipe", "one_f_one_b", "best_pipeline", "mended_pipeline"]

INTRODUCTION = """\
# Exercises: pipeline parallel

[Notebook 08](../notebooks/08_pipeline_parallel.ipynb) goes before these. You write schedules as what each rank does: \
GPipe with recomputation, and 1F1B where messages take time; choose stages, replicas and microbatches for a number of \
GPUs, which is arithmetic; and mend a worker that executes a schedule. Neither the schedules of \
`tinydist.pipeline_parallel`, nor its `find_schedule`, nor `torch.distributed.pipelining` are allowed; `verify` and \
`analyze` are. Four exercises, about 90 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is asked for the \
actions of every rank, for pipelines of several sizes. They are verified, and judged on the makespan, the bubble and \
what is held. The first property that does not hold is explained, and drawn where a picture helps.

**Hint.** `hint(gpipe)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check gpipe` checks, `hint \
gpipe` gives a hint, and `reset gpipe` puts the stub back.

P is the number of ranks, M that of microbatches; F and B are the seconds of a rank's \
forward and backward of a microbatch. An action is text: `2F0` is stage 2, forward, microbatch 0."""

IMPORTS = """\
from math import ceil

import torch
import torch.distributed as dist
import torch.nn.functional as F"""


class Varied(Values):
    """A result is compared with ``variants`` of the solution's, too, each (words, old text, new text, ...). A word or a
    small number is soon the same by chance: there a variant has to agree in all cases."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before = self.seen(trial), exercise.before(self)
        here = [each for each in (*exercise.mistakes, *self.variants) if self.gives(exercise, each, trial)]
        here = [each for each in here if self.hold(before, exercise, each, [trial.case])]
        others = [type(trial)(trial.program, case) for case in exercise.cases] if here else []
        agree = [sum(self.gives(exercise, each, other) for other in others) for each in here]
        telling = [
            isinstance(each, float | torch.Tensor) or (type(each) is int and each > 99) for each in mine.values()
        ]
        if here and (any(telling) or len(mine) > 4 or max(agree) == len(others)):
            likely = [each for each, count in zip(here, agree) if count == max(agree)]
            return {
                2: max(likely, key=lambda each: sum(self.alike_in(exercise, each, other) for other in others)).words
            }
        return super().mistaken(exercise, trial, right, earlier)

    def gives(self, exercise, mistake, trial):
        mine, its = self.seen(trial), self.seen(exercise.run(trial.case, mistake))
        if mine is None or its is None:
            return mine is its  # both end with an error
        return mine.keys() == its.keys() and all(close(mine[at], its[at]) for at in mine)

    def alike_in(self, exercise, mistake, trial):
        """In how many places, of all that came back."""
        mine, its = (Values.seen(self, each) or {} for each in (trial, exercise.run(trial.case, mistake)))
        return sum(at in its and close(each, its[at]) for at, each in mine.items())
