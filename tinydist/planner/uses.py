"""What ZeRO 3 gathers where units are freed, and gathered, by their uses, as in DeepSpeed.

    forward     embedding, blocks, head        a unit is gathered, unless fewer than ``reuse`` numbers were used since
    backward    head, blocks, embedding        its last use. A tied table is used at both ends, four times in all

deepspeed/runtime/zero/partitioned_param_coordinator.py, __params_to_release (0.19.8, read). Its prefetch, which passes
over what is still there, and parameters of up to 1e5 numbers, which stay, are not counted.
"""

from functools import lru_cache
from math import inf

from .buckets import block_of, norm_sizes, table


def units(model, t, layers, first, last):
    """Numbers that ZeRO 3 gathers, but experts: for all of a pass; and for head, blocks, embedding."""
    words, both = table(model, t), first and last and model.tied
    head = (sum(norm_sizes(model)) + words * (not both)) * last
    begin = (words * (not both) + model.tokens * model.width * (model.positions == "learned")) * first
    return words * both, [head, *[block_of(model, t, False)] * layers, begin]


@lru_cache(4096)
def gathered_by_use(reuse, *part):
    """Numbers gathered for each: embedding, blocks, head of forward; and head, blocks, embedding of backward."""
    words, backward = units(*part)
    forward, ends = range(len(backward))[::-1], (0, len(backward) - 1)
    used, last, found = 0, {}, []
    for unit in (*forward, *reversed(forward)):
        uses = {unit: backward[unit]} | ({"tied": words} if unit in ends else {})
        found.append(sum(size for name, size in uses.items() if used - last.get(name, -inf) >= reuse))
        used += sum(uses.values())
        last |= dict.fromkeys(uses, used)
    return found[: len(backward)], found[len(backward) :]


def blocks_that_stay(reuse, *part):
    """How many blocks stay from forward to backward."""
    _, (_, *blocks, _) = gathered_by_use(reuse, *part)
    return blocks.count(0)
