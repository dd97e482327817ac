"""Copies between a device and its host, which go on while the device computes: on a stream for each direction."""

from .labels import span
from .names import of_thread
from .record import Issue, Transfer, Wait


def begin_copy(name, tensor, nbytes, seconds):
    """Of ``tensor``, on the device, or to it. What is to be called when it must have ended."""
    ledger, names = getattr(of_thread, "ledger", None), getattr(of_thread, "names", None)
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
    ledger = getattr(of_thread, "ledger", None)
    return [] if ledger is None else ledger.copies
