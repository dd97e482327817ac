"""The second axis, where collectives are called: which, how many bytes each rank sends by them, and who waits."""

from ..simulator.record import Issue, Wait
from .errors import Wrong
from .messages import many, of


def collectives(trial, rank=0):
    """The transfers of a rank, in the order in which it started them."""
    return [entry.transfer for entry in of(trial.run.record.programs[rank], Issue)]


def waited(trial):
    for rank, program in enumerate(trial.run.record.programs):
        forgotten = set(collectives(trial, rank)) - {entry.transfer for entry in of(program, Wait)}
        if forgotten:
            raise Wrong(
                f"rank {rank} does not wait for {many(len(forgotten), 'collective')}: call wait() on what a call with "
                "async_op=True returns, before you read the result. Else nobody knows whether the numbers are there"
            )
