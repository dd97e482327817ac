"""All-or-nothing operations: if one rank fails, all ranks raise, so none continues alone and none hangs.

with consensus("load failed; no rank was modified", group, CheckpointError) as exchange:
    ...                     each rank by itself: no communication in here
    exchange.mine = ...
exchange.all                what each rank passed, once it is known that none has failed
"""

from contextlib import contextmanager

import torch.distributed as dist

from ..rules import ranks_in_words


class Exchange:
    mine = all = None


def place_in(group=None):
    """(rank, world size) in ``group``; (0, 1) without a process group."""
    return (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else (0, 1)


@contextmanager
def consensus(outcome, group, kind):
    """If any rank raises an ``Exception`` in the body, all raise ``kind``, with the reasons and ranks.

    ``outcome`` begins the message. A collective: all ranks of ``group`` must enter.
    """
    exchange, error = Exchange(), None
    try:
        yield exchange
    except Exception as raised:
        error = raised
    mine = error and (str(error) if isinstance(error, kind) else f"{type(error).__name__}: {error}")
    gathered = _gathered(group, (mine, exchange.mine))
    reasons = {}
    for rank, (reason, _) in enumerate(gathered):
        if reason is not None:
            reasons.setdefault(reason, []).append(rank)
    if reasons:
        each = "; on ".join(f"{ranks_in_words(ranks)}: {reason}" for reason, ranks in reasons.items())
        raise kind(f"{outcome}. On {each}") from error
    exchange.all = [theirs for _, theirs in gathered]


def _gathered(group, mine):
    gathered = [mine]
    if dist.is_initialized():
        gathered = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, mine, group)
    return gathered
