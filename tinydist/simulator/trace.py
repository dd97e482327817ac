"""What each rank did, recorded while it runs; and when, once a clock has put it on a cluster.

A rank's record is a list in its own order: operators that it ran, transfers that it issued and waited for, memory that
it took and gave back. No times: they follow from the record and the cluster (clock.py), so one run can be put on many.
"""

from typing import NamedTuple


class Operator(NamedTuple):
    name: str
    flops: float
    nbytes: float  # read and written
    dtype: str
    seconds: float | None = None  # measured, instead of computed from the rest


class Issue(NamedTuple):
    transfer: "Transfer"


class Wait(NamedTuple):
    transfer: "Transfer"


class Memory(NamedTuple):
    purpose: str
    nbytes: int  # negative when it is given back


class Transfer:
    """A collective, or a message (then ``ranks`` are its source and destination).

    ``stream`` names what runs one after another: a group's collectives, the messages from one rank to another.
    ``nbytes`` is what routes.py wants for ``name``. ``ranks`` is None while a side of a message is missing.
    """

    __slots__ = ("name", "nbytes", "ranks", "root", "stream")

    def __init__(self, name, ranks=None, stream=None, nbytes=0, root=None):
        self.name, self.ranks, self.stream, self.nbytes, self.root = name, ranks, stream, nbytes, root


class Event(NamedTuple):
    """Something that a rank did, in seconds of virtual time."""

    rank: int
    stream: str  # "compute", or the transfer's
    name: str  # of an operator or a collective, "message", "wait"
    start: float
    end: float
    transfer: Transfer | None = None
