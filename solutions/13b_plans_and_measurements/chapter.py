"""What the exercises of this chapter share: their order, their notebook's beginning, and how numbers are judged."""

from math import isfinite

from tinydist.lab.author import Malformed, Own, kind

ORDER = ["impossible_rows", "cause_of_error", "plan_for_budget"]

INTRODUCTION = """\
# Exercises: plans and measurements

[Notebook 13b](../notebooks/13b_plans_and_measurements.ipynb) goes before these. You find the rows of a table of \
throughput that cannot be, score a planner and name the cause of its error, and choose the plan that is done in time \
for the least money. All three are arithmetic: no ranks, no tensors. Three exercises, about 65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with plans, \
tables and prices of several kinds, published ones among them. The first property that does not hold is explained.

**Hint.** `hint(impossible_rows)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check impossible_rows` checks, \
`hint impossible_rows` gives a hint, and `reset impossible_rows` puts the stub back.

Units are bytes, seconds, FLOPs and FLOP/s, without kilo, mega or giga, unless a task says otherwise."""

IMPORTS = """\
import math
from itertools import combinations"""

FORMULAS = ("tinydist.plan", "tinydist.planner", "tinydist.hardware", "tinydist.model")
BY_HAND = Own("your own arithmetic", "here it is arithmetic, and yours", FORMULAS)


def number(name, given):
    if type(given) not in (int, float) or not isfinite(given):
        what = given if type(given) is float else kind(given)
        raise Malformed(f"{name} is {what}, where a number is right")


def numbers(got, names):
    """A dict of them."""
    if not isinstance(got, dict) or set(got) != set(names):
        raise Malformed(f"it returned {got!r}, where a dict is right: {', '.join(map(repr, names))}")
    for name in names:
        number(name, got[name])


def unchanged(name, trial):
    """The list that an answer is called with."""
    if trial.arguments[0][0] != trial.case.arguments(0)[0]:
        raise Malformed(
            f"the list {name} has changed: it belongs to the caller, who may need it again. sorted makes a new list"
        )
