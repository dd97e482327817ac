"""Do the numbers come through the collectives? Ranks of a check are threads, and could as well read a global variable.

So what one rank puts into its collectives is doubled on the way: results must follow.
"""

import torch
import torch.distributed as dist

from .errors import Wrong
from .messages import SHARED

LOUD = 1  # the rank
# Methods of a group:
ALL_REDUCE = "allreduce"
GATHERS, REDUCES = ("allgather", "all_gather_single"), ("reduce_scatter", "reduce_scatter_single")


def loud(answer, calls=(ALL_REDUCE, *GATHERS, *REDUCES)):
    """The answer, where what rank ``LOUD`` puts into ``calls`` counts twice."""

    def program(*arguments):
        group = dist.group.WORLD  # this rank's own handle
        if dist.get_rank() == LOUD:
            for name in calls:
                doubled = doubled_in_place if name == ALL_REDUCE else doubled_copies
                setattr(group, name, doubled(getattr(group, name)))
        return answer(*arguments)

    return program


def doubled_in_place(collective):
    def call(tensors, *options):
        for tensor in tensors:
            tensor.data.mul_(2)
        return collective(tensors, *options)

    return call


def doubled_copies(collective):
    """The rank keeps what it has."""

    def call(outputs, inputs, *options):
        return collective(outputs, twice(inputs), *options)

    return call


def twice(inputs):
    """A tensor, or lists of them."""
    return 2 * inputs.detach() if isinstance(inputs, torch.Tensor) else [twice(each) for each in inputs]


def heard(judge):
    """A judge: ``judge(trial)`` holds for the numbers that have been doubled."""

    def judge_loud(trial):
        if trial.error is not None:
            raise trial.error
        try:
            judge(trial)
        except Wrong:
            raise Wrong(
                f"if what rank {LOUD} puts into the collectives is doubled on the way, the results do not follow: they "
                f"do not come from the collectives. {SHARED}"
            ) from None

    return judge_loud
