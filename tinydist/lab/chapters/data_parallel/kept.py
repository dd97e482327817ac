"""What a step keeps for the next ones: nothing. More steps hold no more bytes than few."""

from ...errors import Wrong
from ...memory import draw_memory
from .layers import LAYER

WORLD, COUNTS = 2, (1, 2, 3)  # ranks, layers in each bucket
FEW, MORE = 2, 4  # steps
SIZE = sum(COUNTS) * LAYER  # bytes of the gradients


def nothing_kept(trials):
    """A judge: as much as the gradients once is granted."""

    def judge():
        few, more = (of_steps(trials, steps) for steps in (FEW, MORE))
        for rank in range(WORLD):
            grown = held(more, rank) - held(few, rank)
            if grown > SIZE:
                raise Wrong(
                    f"With {WORLD} ranks, rank {rank} holds {grown:,} bytes more after {MORE} steps than after {FEW}: "
                    f"each step keeps what it has sent, {grown // (MORE - FEW):,} bytes. At its end finish must forget "
                    "what was started",
                    draw_memory(more, rank),
                )

    return judge


def of_steps(trials, steps):
    return next(each for each in trials.all if each.case.ranks == WORLD and each.case.kind == (COUNTS, steps))


def held(trial, rank):
    """Bytes at the peak, without the gradients that are noted in each step."""
    return trial.run.memory[rank].peak - trial.arguments[rank][1] * SIZE
