"""The ledger: the bytes that are alive on a rank, and what they are for.

Every storage counts once, from the operator that made it until its last tensor is gone. What it is for follows from
where it was made, and is corrected when it becomes known:

    parameters          registered with a module (buffers too)
    gradients           accumulated into a parameter's ``.grad``
    optimizer states    kept by an optimizer after its first step
    activations         made in the forward pass
    communication       made under ``purpose("communication")``
    other               all else: what backward and the optimizer make and soon drop
"""

from contextlib import contextmanager
from typing import NamedTuple

import torch

from .labels import Holding, Piece, Shard
from .names import of_thread
from .stored import dims_cut, span, stored

PURPOSES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")


class Memory(NamedTuple):
    """In the record: a storage has come, gone, or changed its size."""

    holding: Holding
    before: int  # bytes
    after: int


class Ledger:
    """One rank's. Each change is noted in ``program``, the record of what the rank does."""

    def __init__(self, rank, program, parts):
        self.rank, self.program, self.parts = rank, program, parts
        self.alive = {}  # address of a storage -> Holding
        self.nbytes = self.peak = 0  # of all that is alive, now and at most
        self.asked = None  # the purpose that the program gave
        self.closed = False
        self.copies = []  # what waits for those under way (copies.py)

    def see(self, tensor, where):
        """Count the storage of a tensor that an operator has returned."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.alive:
            self.resized(storage)
        elif not tensor.is_meta:
            self._hold(storage, self.asked or ("activations" if torch.is_grad_enabled() else "other"), where)

    def holding_of(self, tensor):
        return self.alive.get(tensor.untyped_storage()._cdata)

    @property
    def held(self):
        """{purpose: bytes} at this moment."""
        held = dict.fromkeys(PURPOSES, 0)
        for holding in self.alive.values():
            held[holding.purpose] += holding.nbytes
        return held

    # What they are for.

    def is_for(self, purpose, tensor):
        holdings = map(self.holding_of, stored(tensor))
        return any(holding and holding.purpose == purpose for holding in holdings)

    def mark(self, tensor, purpose, like=None):
        """Now it is known what ``tensor`` is for, and has been from the start; and that ``like`` is its parameter."""
        for part in [] if tensor is None else stored(tensor):
            holding = self.holding_of(part)
            if holding:
                holding.purpose = purpose
                if like is not None and not holding.is_covered:
                    self._belong_to(holding, part, like)

    # Whose they are.

    def _belong_to(self, holding, tensor, parameter):
        known = not holding.pieces and holding.nbytes == tensor.nbytes and self.parts.find(parameter)
        if known:  # most are all of a parameter's
            holding.be_all_of(known, self.shard_of(parameter))
            return
        begin, end = span(tensor)
        if not holding.has_label_in(begin, end):
            for piece in self.pieces_like(tensor, parameter, begin, end):
                holding.add(piece)

    def pieces_like(self, tensor, parameter, start, end):
        """The pieces of ``parameter``, in a tensor of as many numbers; of another, its one label for all of it."""
        part = self.parts.find(parameter)
        if part:
            return [Piece(start, end, part, self.shard_of(parameter))]
        (theirs,) = stored(parameter)
        holding = self.holding_of(theirs)
        pieces = holding.within(*span(theirs)) if holding else []
        if tensor.numel() == theirs.numel():
            larger, smaller = tensor.itemsize, theirs.itemsize
            return [
                piece._replace(begin=start + piece.begin * larger // smaller, end=start + piece.end * larger // smaller)
                for piece in pieces
            ]
        return [piece._replace(begin=start, end=end) for piece in pieces] if len(pieces) == 1 else []

    def shard_of(self, tensor):
        """This rank's part of a larger one, as a DTensor says; None: it is all that there is."""
        dims = dims_cut(tensor)
        return Shard(self.rank, dims[-1]) if dims else None

    def label(self, tensor, whose, shard=None):
        for part in stored(tensor):
            holding = self.holding_of(part)
            if holding:
                begin, end = span(part)
                if isinstance(whose, torch.Tensor):
                    whose = next((piece.label for piece in self.pieces_like(part, whose, begin, end)), "")
                self._label(holding, Piece(begin, end, whose, shard))

    def _label(self, holding, piece):
        if not holding.has_label_in(piece.begin, piece.end):
            holding.add(piece)
        elif piece not in holding.pieces:  # from now on it is another's
            self._note(holding, holding.nbytes, 0)
            self._hold(holding(), holding.purpose, holding.where).pieces = holding.replaced(piece)

    # Changes.

    def _hold(self, storage, purpose, where):
        holding = self.alive[storage._cdata] = Holding(storage, self._gone)
        holding.address, holding.nbytes, holding.purpose = storage._cdata, storage.nbytes(), purpose
        holding.where, holding.pieces, holding.is_covered = where, (), False
        self._note(holding, 0, holding.nbytes)
        return holding

    def _gone(self, holding):
        if self.alive.get(holding.address) is holding:  # else it has been another's since
            del self.alive[holding.address]
            self._note(holding, holding.nbytes, 0)

    def resized(self, storage):
        holding, nbytes = self.alive.get(storage._cdata), storage.nbytes()
        if holding and nbytes != holding.nbytes:
            before, holding.nbytes = holding.nbytes, nbytes
            self._note(holding, before, nbytes)

    def _note(self, holding, before, after):
        self.nbytes += after - before
        if self.nbytes > self.peak:
            self.peak = self.nbytes
        if not self.closed:
            self.program.append(Memory(holding, before, after))

    def close(self):
        """The rank has ended: what becomes of its tensors now is not its doing."""
        self.closed = True


@contextmanager
def purpose(name):
    """What is made while this lasts is for ``name``, one of PURPOSES. Where no ledger is kept it does nothing."""
    if name not in PURPOSES:
        raise ValueError(f"purpose: must be one of {', '.join(PURPOSES)}, got {name!r}")
    ledger = of_thread.ledger
    if ledger is None:
        yield
        return
    before, ledger.asked = ledger.asked, name
    try:
        yield
    finally:
        ledger.asked = before
