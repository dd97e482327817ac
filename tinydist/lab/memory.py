"""The third axis: the bytes that a rank held besides what it was given, at their peak."""

import torch


def held_besides(trial):
    """Bytes at the peak, by rank, without the arguments."""
    given = [sum(each.nbytes for each in arguments if isinstance(each, torch.Tensor)) for arguments in trial.arguments]
    return [memory.peak - nbytes for memory, nbytes in zip(trial.run.memory, given, strict=True)]


def draw_memory(trial, rank):
    def draw():
        from ..visuals import memory  # only now: matplotlib takes its time

        return memory(trial.run, rank)

    return draw
