"""The execution record of each rank, in program order: operators, transfers issued and awaited, allocations, frees.

It has no timestamps. They are computed from the record and a cluster (clock.py), so a run can be replayed on many
clusters.
"""

from typing import NamedTuple

import torch

from ..rules import ranks_in_words
from .ledger import Ledger
from .module_names import ModuleNames
from .scopes import Scope, Scopes
from .tensor_storage import plain_tensors, span

SIZE_IS_OF_ALL = {"all_gather", "reduce_scatter"}  # what counts is the tensor that has a piece of every rank


class Operator(NamedTuple):
    name: str
    flops: float
    nbytes: float  # read and written
    dtype: object  # torch's, or "tf32", "mxfp8"
    seconds: float | None = None  # if it was measured
    scope: Scope = Scope()
    product: tuple | None = None  # (batch, rows, columns, inner), if it is one of two matrices, or of stacks of them


class Issue(NamedTuple):
    transfer: "Transfer"
    scope: Scope
    carried: tuple  # (Holding, from, to): the bytes that travel


class Wait(NamedTuple):
    transfer: "Transfer"
    scope: Scope


class Transfer:
    """A collective, or a message: then ``ranks`` are its source and its destination.

    ``stream`` names what runs one after another: the collectives of a group, the messages from one rank to another.
    ``nbytes`` is what routes.py wants for ``name``; ``awaited``, how many calls make it start. ``seconds``: what it
    takes, if it is on no link of the cluster (observer.py).
    """

    __slots__ = ("awaited", "name", "nbytes", "ranks", "root", "seconds", "stream")

    def __init__(self, name):
        self.seconds = None
        self.name, self.ranks, self.stream, self.root, self.nbytes, self.awaited = name, (), "", None, 0, None


class Record:
    """``measured``: operators take measured CPU time instead of the modeled time on the cluster.
    ``operators``: False to record communication only."""

    def __init__(self, ranks, measured=False, operators=True):
        self.measured, self.operators = measured, operators
        self.replaced = {}  # what the program asked of a GPU -> what it got instead (gpus/)
        self.reads = {}  # the line of the program that reads a number which only a GPU would know -> how
        self.programs = [[] for _ in range(ranks)]
        self.module_names = ModuleNames()
        self.ledgers = [Ledger(rank, program, self.module_names) for rank, program in enumerate(self.programs)]
        self.scopes = [Scopes(program, self.module_names) for program in self.programs]

    def collective(self, handle, meeting, name, root, inputs, outputs, alike):
        """Record that the rank of ``handle`` has joined the collective ``meeting``."""
        group, transfer = handle.group, meeting.transfer
        if transfer is None:
            transfer = meeting.transfer = Transfer(name.removeprefix("monitored_"))  # a barrier
            transfer.ranks, transfer.awaited = group.ranks, group.present
            transfer.stream = ranks_in_words(group.ranks) + (f", group {group.name}" if group.name != "0" else "")
            transfer.root = None if root is None else group.ranks[root]
            transfer.nbytes = (
                {} if name == "all_to_all" else sum([part.nbytes for tensor in alike for part in plain_tensors(tensor)])
            )
            if name in SIZE_IS_OF_ALL:
                transfer.nbytes *= len(group.ranks)
        if name == "all_to_all":
            for peer, tensor in zip(group.ranks, inputs, strict=True):
                transfer.nbytes[handle.owner, peer] = tensor.nbytes
        larger = outputs if name == "all_gather" else inputs
        self._issue(handle.owner, transfer, larger if larger is alike else [*alike, *larger])

    def message(self, handle, mine, other):
        """The rank of ``handle`` has posted ``mine``; ``other`` is its other side, if that is there."""
        transfer = mine.transfer = other.transfer if other else Transfer("message")
        self._issue(handle.owner, transfer, [mine.tensor])
        peer = other.owner if other else mine.peer
        if other or handle.alone_with(peer):
            ends = handle.owner, handle.group.ranks[peer]
            transfer.ranks = ends if mine.signature.name == "send" else ends[::-1]
            transfer.stream = "{} to {}".format(*transfer.ranks)
            transfer.nbytes, transfer.awaited = mine.tensor.nbytes, 2 if other else 1

    def wait(self, rank, event):
        self.programs[rank].append(Wait(event.transfer, self.scopes[rank].now()))

    def _issue(self, rank, transfer, tensors):
        carried = tuple(self._bytes_of(rank, tensors))
        self.programs[rank].append(Issue(transfer, self.scopes[rank].now(), carried))

    def _bytes_of(self, rank, tensors):
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                for part in plain_tensors(tensor):
                    holding = self.ledgers[rank].holding_of(part)
                    if holding:
                        yield holding, *span(part)
            else:  # consecutive pieces
                ends = [*self._bytes_of(rank, tensor[:1]), *self._bytes_of(rank, tensor[-1:])]
                if len(ends) == 2 and ends[0][0] is ends[1][0]:
                    ends = [(ends[0][0], ends[0][1], ends[1][2])]
                yield from ends
