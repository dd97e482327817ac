"""The third axis: the bytes that a rank held besides what it was given, at their peak."""

import torch

from .errors import Wrong


def held_besides(trial):
    """Bytes at the peak, by rank, without the arguments."""
    given = [sum(each.nbytes for each in arguments if isinstance(each, torch.Tensor)) for arguments in trial.arguments]
    return [memory.peak - nbytes for memory, nbytes in zip(trial.run.memory, given, strict=True)]


def holds_at_most(trial, most, limit_in_words):
    """``most``: bytes besides the arguments, by rank or for each."""
    for rank, held in enumerate(held_besides(trial)):
        allowed = most[rank] if isinstance(most, list) else most
        if held > allowed:
            raise Wrong(
                f"rank {rank} holds {held:,} bytes besides its tensor, where {allowed:,.0f} are enough: "
                f"{limit_in_words}",
                draw_memory(trial, rank),
            )


def draw_memory(trial, rank):
    def draw():
        from ..visuals import memory  # only now: matplotlib takes its time

        return memory(trial.run, rank)

    return draw
