"""The second axis, where collectives are called: which, how many bytes each rank sends by them, and who waits."""

from ..simulator.record import Issue, Wait
from .errors import Wrong
from .messages import SHARED, draw_traffic, many, of


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


def only_these(trial, names, instead=()):
    """No other collectives, and no messages. ``instead``: name -> what to say of it."""
    for call in (call for rank in range(trial.case.ranks) for call in collectives(trial, rank)):
        if call.name not in names:
            enough = f"{' and '.join(sorted(names))} {'is' if len(names) == 1 else 'are'} enough"
            advice = dict(instead).get(call.name, "")
            raise Wrong(f"you call {call.name}, where {enough}. {advice}".rstrip(), draw_traffic(trial))


def each_sends(trial, nbytes, formula, reason=lambda times: ""):
    """Exactly ``nbytes``, on every rank. ``reason(times)``: why it is so many times as much, if that is known."""
    for rank, row in enumerate(trial.run.traffic):
        if abs(sum(row) - nbytes) > 0.5:
            why = reason(sum(row) / nbytes) if nbytes else ""
            why = why or (SHARED if sum(row) < nbytes else "")
            raise Wrong(
                f"rank {rank} sends {sum(row):,.0f} bytes, where {formula} = {nbytes:,.0f} are right. {why}".rstrip(),
                draw_traffic(trial),
            )
