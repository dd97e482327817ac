"""Hears what the program of a rank says about itself (annotate.py), and takes it down.

Copies between a device and its host go on while the device computes: on a stream for each direction.
"""

from contextlib import contextmanager

import torch

from .labels import Shard
from .names import Mark, of_thread
from .record import Issue, Operator, Transfer, Wait
from .stored import span


class Listener:
    """One rank's."""

    def __init__(self, program, ledger, names):
        self.program, self.ledger, self.names = program, ledger, names
        self.copies = []  # what waits for those under way

    def mark(self, name):
        self.program.append(Mark(name))

    def own_stages(self, pipeline, stages):
        for number, module in stages.items():
            self.names.parts.own_stage(pipeline, number, module)

    def ask_for(self, purpose):
        """What was asked for before."""
        before, self.ledger.asked = self.ledger.asked, purpose
        return before

    def label(self, tensor, whose, shard, dim):
        self.ledger.label(tensor, whose, None if shard is None else Shard(shard, dim))

    @contextmanager
    def products_in_tf32(self):
        before, of_thread.tf32 = of_thread.tf32, True
        try:
            yield
        finally:
            of_thread.tf32 = before

    def begin_copy(self, name, tensor, nbytes, seconds):
        transfer = Transfer(name)
        rank = self.ledger.rank
        transfer.ranks, transfer.stream, transfer.awaited = (rank,), f"{rank} {name}", 1
        transfer.nbytes, transfer.seconds = nbytes, seconds
        holding = self.ledger.holding_of(tensor)
        self.program.append(Issue(transfer, self.names.now(), ((holding, *span(tensor)),) if holding else ()))
        return lambda: self.program.append(Wait(transfer, self.names.now()))

    def stall(self, name, nbytes, seconds):
        self.program.append(Operator(name, 0, nbytes, torch.uint8, seconds))
