"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are tried on."""

from tinydist.lab.author import Malformed, Own, Target, Wrong

ORDER = ["faults_of_lock", "mend_lock", "cite"]

INTRODUCTION = """\
# Exercises: a map of tools

[Notebook 22](../notebooks/22_map_of_tools.ipynb) goes before these. You read a lock file as an installer does and say \
what is wrong with it before anything is downloaded; mend one with as few changes as possible; and write a retrieval \
step that cites its sources, and says when it has none. No ranks, no tensors, no tools: Python alone. Three exercises, \
about 80 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with locks, \
notes and questions that are drawn at random, from fixed seeds. The first property that does not hold is explained.

**Hint.** `hint(faults_of_lock)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check faults_of_lock` checks, \
`hint faults_of_lock` gives a hint, and `reset faults_of_lock` puts the stub back."""

IMPORTS = """\
import math
import re
from collections import Counter"""

READERS = {"packaging": "the package packaging", "pip": "pip"}
BY_HAND = Own("your own reading", "read versions and markers yourself", READERS)


class Equal(Target):
    """Lists and dicts of texts: what is missing, what is too much, or else the order."""

    name, decides = "values", True

    def shown(self, trial):
        return trial.returned[0]

    def judge(self, exercise, trial, right):
        got, its = trial.returned[0], right.returned[0]
        if type(got) is not type(its) or (isinstance(its, dict) and got.keys() != its.keys()):
            raise Malformed(f"it returned {got!r}, where a {type(its).__name__} like {its!r} is right")
        pairs = (
            {f"'{name}'": (got[name], its[name]) for name in its} if isinstance(its, dict) else {"the list": (got, its)}
        )
        for name, (mine, wanted) in pairs.items():
            if not isinstance(mine, list):
                raise Malformed(f"{name} is {mine!r}, where a list is right")
            if missing := [each for each in wanted if each not in mine]:
                raise Wrong(f"{name} lacks {missing[0]!r}: {mine!r}")
            if extra := [each for each in mine if each not in wanted]:
                raise Wrong(f"{name} has {extra[0]!r}, and should not: {mine!r}")
            if mine != wanted:
                raise Wrong(f"{name} is {mine!r}, where {wanted!r} is right: the order, or how often")
