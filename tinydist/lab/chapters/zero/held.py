"""What a rank holds: now, and at its peak without what a model computes with."""

from ....simulator.memory import of_thread
from ...errors import Wrong
from ...memory import draw_memory

MODELS = ("parameters", "activations")


def held_now(purpose=None):
    """Bytes that this rank holds, in all or for one purpose."""
    held = of_thread.ledger.held
    return held[purpose] if purpose else sum(held.values())


def peak_besides(trial, rank, purposes=MODELS):
    """The most that a rank held for all other purposes together."""
    moments = (held for _, held in trial.run.memory[rank].over_time())
    return max(sum(nbytes for purpose, nbytes in held.items() if purpose not in purposes) for held in moments)


def at_most(trial, rank, held, most, what, advice):
    """``what``: the noun phrase in which the bytes are told."""
    if held > most:
        raise Wrong(
            f"rank {rank} holds {held:,} bytes {what}, where {most:,.0f} are enough. {advice}", draw_memory(trial, rank)
        )
