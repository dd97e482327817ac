"""All ranks, or none: a rank that fails says so, and the others fail with it. Nobody goes on alone, nobody waits.

with unanimous("load failed; no rank was modified", group, CheckpointError) as said:
    ...                     each rank for itself: nothing in here communicates
    said.mine = ...
said.all                    what each rank said, once it is known that none has failed
"""

from contextlib import contextmanager

import torch.distributed as dist

from ..rules import ranks_in_words


class Said:
    mine = all = None


def place_in(group=None):
    """(rank, ranks) in ``group``. A process that has no process group is alone."""
    return (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else (0, 1)


@contextmanager
def unanimous(outcome, group, kind):
    """If an ``Exception`` is raised in here on some rank, ``kind`` is raised on all, with each reason and its ranks.

    ``outcome`` says what is the case then. All ranks of ``group`` must come here.
    """
    said, error = Said(), None
    try:
        yield said
    except Exception as raised:
        error = raised
    mine = error and (str(error) if isinstance(error, kind) else f"{type(error).__name__}: {error}")
    everybodys = _of_all(group, (mine, said.mine))
    reasons = {}
    for rank, (reason, _) in enumerate(everybodys):
        if reason is not None:
            reasons.setdefault(reason, []).append(rank)
    if reasons:
        each = "; on ".join(f"{ranks_in_words(ranks)}: {reason}" for reason, ranks in reasons.items())
        raise kind(f"{outcome}. On {each}") from error
    said.all = [word for _, word in everybodys]


def _of_all(group, mine):
    everybodys = [mine]
    if dist.is_initialized():
        everybodys = [None] * dist.get_world_size(group)
        dist.all_gather_object(everybodys, mine, group)
    return everybodys
