"""Do the numbers come through the all-reduce? Ranks of a check are threads, and could as well read a global variable.

So what one rank puts into its all-reduces is doubled on the way: gradients that come from them must follow.
"""

import torch.distributed as dist

from ...errors import Wrong

LOUD = 1  # the rank


def loud(answer):
    """The answer, where all that rank ``LOUD`` puts into an all-reduce counts twice."""

    def program(*arguments):
        group = dist.group.WORLD  # this rank's own handle
        all_reduce = group.allreduce

        def doubled(tensors, *options):
            for tensor in tensors:
                tensor.data.mul_(2)
            return all_reduce(tensors, *options)

        if dist.get_rank() == LOUD:
            group.allreduce = doubled
        return answer(*arguments)

    return program


def heard(judge):
    """A judge: ``judge(trial)`` holds for the numbers that have been doubled."""

    def judge_loud(trial):
        if trial.error is not None:
            raise trial.error
        try:
            judge(trial)
        except Wrong:
            raise Wrong(
                f"if what rank {LOUD} puts into the all-reduce is doubled on the way, the gradients do not follow: "
                "they do not come from the all-reduce. Ranks of a real cluster share no memory: whatever one knows of "
                "another has to come in a message"
            ) from None

    return judge_loud
