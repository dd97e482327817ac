"""The memory ledger: bytes allocated on a rank, by purpose and by owner.

Every storage counts once, from the operator that allocated it until its last tensor is freed. Its purpose follows from
where it was allocated, and is corrected when more is known:

    parameters          registered with a module (buffers too)
    gradients           accumulated into a parameter's ``.grad``
    optimizer states    kept by an optimizer after its first step
    activations         allocated in the forward pass
    communication       allocated under ``purpose("communication")``
    other               everything else: temporary tensors of backward and the optimizer

Owners are labels, piece by piece: a parameter's memory has the parameter's name, and so have its gradients and its
optimizer's states. What is known of no parameter has the name of the module that made it. A program says what it knows
better: ``label(tensor, "layer 1")``.
"""

from operator import attrgetter
from typing import NamedTuple
from weakref import ref

import torch

from ..annotate import PURPOSES
from .tensor_storage import dims_cut, plain_tensors, span


class Shard(int):
    """The rank whose part of the whole it is. ``dim``: along which the whole is cut."""

    def __new__(cls, rank, dim=0):
        shard = super().__new__(cls, rank)
        shard.dim = dim
        return shard


class LabelSpan(NamedTuple):
    begin: int  # bytes from the start of the storage
    end: int
    label: object  # a str, or a ModuleName of which the name is not known yet
    shard: Shard | None = None  # None: it is the whole


BEGIN = attrgetter("begin")


class Holding(ref):
    """A storage: a weak reference to it, and what is known of it. The record keeps it when the storage is gone."""

    __slots__ = ("address", "device", "is_covered", "nbytes", "pieces", "purpose", "scope")

    def has_label_in(self, begin, end):
        return bool(self.pieces) and any([piece.begin < end and begin < piece.end for piece in self.pieces])

    def be_all_of(self, label, shard):
        self.pieces, self.is_covered = (LabelSpan(0, self.nbytes, label, shard),), True

    def add(self, piece):
        self.pieces = (*self.pieces, piece)
        self.is_covered = piece.end - piece.begin >= self.nbytes  # by one: nothing can be added
        if len(self.pieces) > 1:
            self.pieces = tuple(sorted(self.pieces, key=BEGIN))

    def replaced(self, new):
        """The pieces, with a new one over what was there."""
        kept = []
        for piece in self.pieces:
            kept += [piece._replace(end=min(piece.end, new.begin)), piece._replace(begin=max(piece.begin, new.end))]
        return tuple(sorted([new, *[piece for piece in kept if piece.begin < piece.end]], key=BEGIN))

    def within(self, begin, end):
        """The pieces between the two, counted from the first."""
        cut = [(max(piece.begin, begin) - begin, min(piece.end, end) - begin, piece) for piece in self.pieces]
        return [piece._replace(begin=low, end=high) for low, high, piece in cut if low < high]

    def labels(self, begin, end):
        """Of the bytes between the two: (bytes, label, shard), in order."""
        found, at = [], begin
        for piece in self.pieces:
            low, high = max(piece.begin, at), min(piece.end, end)
            if low < high:
                found += [(low - at, self.scope.module, None)] if at < low else []
                found.append((high - low, piece.label, piece.shard))
                at = high
        return found + ([(end - at, self.scope.module, None)] if at < end else [])


class StorageChange(NamedTuple):
    """A record entry: a storage was allocated, freed or resized."""

    holding: Holding
    before: int  # bytes
    after: int


class Ledger:
    """One rank's. Each change is noted in ``program``, the record of what the rank does."""

    def __init__(self, rank, program, module_names):
        self.rank, self.program, self.module_names = rank, program, module_names
        self.alive = {}  # address of a storage -> Holding
        self.nbytes = self.peak = 0  # of all that is alive, now and at most
        self.asked = None  # the purpose that the program gave
        self.device = None  # where new storages are, of a rank with several (gpus/)
        self.closed = False

    def see(self, tensor, scope):
        """Count the storage of a tensor that an operator has returned."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.alive:
            self.resized(storage)
        elif not tensor.is_meta:
            self._hold(storage, self.asked or ("activations" if torch.is_grad_enabled() else "other"), scope)

    def adopt(self, storage, scope):
        """Count a storage that no operator has returned: one that was read from a file."""
        if storage._cdata not in self.alive:
            self._hold(storage, self.asked or "other", scope)

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
        holdings = map(self.holding_of, plain_tensors(tensor))
        return any(holding and holding.purpose == purpose for holding in holdings)

    def mark(self, tensor, purpose, like=None):
        """Set the purpose of ``tensor`` retroactively; ``like`` is its parameter."""
        for part in [] if tensor is None else plain_tensors(tensor):
            holding = self.holding_of(part)
            if holding:
                holding.purpose = purpose
                if like is not None and not holding.is_covered:
                    self._belong_to(holding, part, like)

    # Who owns them.

    def _belong_to(self, holding, tensor, parameter):
        known = not holding.pieces and holding.nbytes == tensor.nbytes and self.module_names.find(parameter)
        if known:  # most are all of a parameter's
            holding.be_all_of(known, self.shard_of(parameter))
            return
        begin, end = span(tensor)
        if not holding.has_label_in(begin, end):
            for piece in self.pieces_like(tensor, parameter, begin, end):
                holding.add(piece)

    def pieces_like(self, tensor, parameter, start, end):
        """The pieces of ``parameter``, in a tensor of as many elements; of another, its one label for all of it."""
        part = self.module_names.find(parameter)
        if part:
            return [LabelSpan(start, end, part, self.shard_of(parameter))]
        (theirs,) = plain_tensors(parameter)
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

    def label(self, tensor, owner, shard=None):
        for part in plain_tensors(tensor):
            holding = self.holding_of(part)
            if holding:
                begin, end = span(part)
                if isinstance(owner, torch.Tensor):
                    owner = next((piece.label for piece in self.pieces_like(part, owner, begin, end)), "")
                self._label(holding, LabelSpan(begin, end, owner, shard))

    def _label(self, holding, piece):
        if not holding.has_label_in(piece.begin, piece.end):
            holding.add(piece)
        elif piece not in holding.pieces:  # from now on it is another's
            self._note(holding, holding.nbytes, 0)
            again = self._hold(holding(), holding.purpose, holding.scope)
            again.device, again.pieces = holding.device, holding.replaced(piece)

    # Changes.

    def _hold(self, storage, purpose, scope):
        holding = self.alive[storage._cdata] = Holding(storage, self._gone)
        holding.address, holding.nbytes, holding.purpose = storage._cdata, storage.nbytes(), purpose
        holding.scope, holding.pieces, holding.is_covered, holding.device = scope, (), False, self.device
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
            self.program.append(StorageChange(holding, before, after))

    def close(self):
        """The rank has ended: later changes of its tensors are not recorded."""
        self.closed = True
