"""Curriculum learning by sequence length: training begins with short sequences, and they grow to the whole context.

    step       0      10      50     100 ...
    length     8     104     512    1024      fixed_linear(8, 1024, steps=100)
               8     328     720    1024      fixed_root, degree 2: it grows faster at first

A row is cut after its first tokens, so a step of B rows has B x length of them, and the same number of tokens takes
more steps. Of a sequence of t tokens a layer needs 24 t D^2 + 4 t^2 D FLOPs forward: per token, short ones save
attention's scores, and nothing else.

A schedule is a function step -> difficulty, and any other function is a custom one. DeepSpeed's scheduler stops asking
a custom one when it has reached the maximum.

Sources: Li et al. 2021, The Stability-Efficiency Dilemma, section 4; DeepSpeed 0.19.8,
runtime/data_pipeline/curriculum_scheduler.py.
"""

import math
from itertools import pairwise

from ..rules import count, each_of, function, must, positive, validate, whole
from .data import Batches


@validate(least=count, most=count, steps=count, multiple=count, degree=positive)
def fixed_root(least, most, steps, multiple=8, degree=2):
    """From ``least`` to ``most`` in ``steps`` steps, by the root of the step; in multiples of ``multiple``."""
    if least > most:
        raise ValueError(f"fixed_root: least ({least}) must be <= most ({most})")
    lowest = -(-least // multiple) * multiple  # the first multiple that is not below the least

    def difficulty(step):
        found = math.floor((float(step) / steps) ** (1.0 / degree) * (most - least) + least)
        return min(max(found - found % multiple, lowest), most)

    return difficulty


@validate(least=count, most=count, steps=count, multiple=count)
def fixed_linear(least, most, steps, multiple=8):
    """Straight up."""
    return fixed_root(least, most, steps, multiple, degree=1)


@validate(difficulties=each_of(count), last_steps=each_of(whole))
def fixed_discrete(difficulties, last_steps):
    """``difficulties[i]`` up to and including step ``last_steps[i]``; the last one, which has no end, after them."""
    if len(difficulties) != len(last_steps) + 1:
        raise ValueError(
            f"fixed_discrete: difficulties ({len(difficulties)}) must be one more than last_steps ({len(last_steps)})"
        )
    if not all(one < other for one, other in pairwise(last_steps)):
        raise ValueError(f"fixed_discrete: last_steps must increase, got {last_steps}")

    def difficulty(step):
        return next((found for found, last in zip(difficulties, last_steps) if step <= last), difficulties[-1])

    return difficulty


@validate(difficulty=function)
class CurriculumBatches(Batches):
    """``Batches`` of which step s has the first ``difficulty(s)`` tokens of each row, at most the context."""

    def __init__(self, tokens, batch, context, seed=0, *, difficulty):
        super().__init__(tokens, batch, context, seed)
        self.difficulty = difficulty

    def length(self, step):
        return min(must("CurriculumBatches", "difficulty(step)", count, self.difficulty(step)), self.context)

    def rows(self, step, rank, ranks):
        return tuple(each[:, : self.length(step)] for each in super().rows(step, rank, ranks))
