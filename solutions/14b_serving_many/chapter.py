"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

from tinydist.lab.author import Values

ORDER = ["read_load_log", "plan_batch"]

INTRODUCTION = """\
# Exercises: serving many requests

[Notebook 14b](../notebooks/14b_serving_many.ipynb) goes before these. You read what the log of a load test says about \
latency, and plan how many sequences a GPU serves in memory and in time. No ranks, no messages. Two exercises, about \
40 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(read_load_log)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check read_load_log` checks, \
`hint read_load_log` gives a hint, and `reset read_load_log` puts the stub back."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.serving", "tinydist.attention", "tinydist.planner", "torch.nn.attention")


class Part(Values):
    """Of what came back, that which has ``key`` in its name."""

    def __init__(self, name, key, holds, **more):
        super().__init__(holds, **more)
        self.name, self.key = name, key

    def seen(self, trial):
        found = super().seen(trial)
        return found and {(rank, path): each for (rank, path), each in found.items() if self.key in path}
