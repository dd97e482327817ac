"""Copies between a device and its host, which go on while the device computes: on a stream for each direction."""

from .names import of_thread
from .record import Issue, Transfer, Wait
from .stored import span


def begin_copy(name, tensor, nbytes, seconds):
    """Of ``tensor``, on the device, or to it. What is to be called when it must have ended."""
    ledger, names = of_thread.ledger, of_thread.names
    if ledger is None or names is None:
        return lambda: None
    transfer = Transfer(name)
    transfer.ranks, transfer.stream, transfer.awaited = (ledger.rank,), f"{ledger.rank} {name}", 1
    transfer.nbytes, transfer.seconds = nbytes, seconds
    holding = ledger.holding_of(tensor)
    ledger.program.append(Issue(transfer, names.now(), ((holding, *span(tensor)),) if holding else ()))
    return lambda: ledger.program.append(Wait(transfer, names.now()))


def under_way():
    """Of this rank: a list for what waits for the ends of copies, if that is to be done later."""
    ledger = of_thread.ledger
    return [] if ledger is None else ledger.copies
