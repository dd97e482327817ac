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
from functools import partial
from typing import NamedTuple
from weakref import ref

import torch
from torch._subclasses import FakeTensor
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .labels import Holding, Piece, span
from .names import of_thread
from .torch_internals import conversions_told

PURPOSES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")


class Memory(NamedTuple):
    purpose: str
    nbytes: int  # negative: given back
    holding: Holding


class Ledger:
    """One rank's. Each change is noted in ``program``, the record of what the rank does."""

    def __init__(self, rank, program, parts):
        self.rank, self.program, self.parts = rank, program, parts
        self.alive = {}  # address of a storage -> Holding
        self.seen = self.seen_at_peak = 0  # how many there have been
        self.held = dict.fromkeys(PURPOSES, 0)  # purpose -> bytes
        self.total = self.peak = 0
        self.at_peak = self.held.copy()
        self.rising = False  # the peak is now, and at_peak not written yet
        self.asked = None  # the purpose that the program gave
        self.closed = False
        self.copies = []  # what waits for those under way (copies.py)

    def see(self, tensor, where):
        """Count the storage of a tensor that an operator has returned."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self.alive:
            self.resized(storage)
        elif not tensor.is_meta:
            nbytes = storage.nbytes()
            purpose = self.asked or ("activations" if torch.is_grad_enabled() else "other")
            self.seen += 1
            watched = ref(storage, partial(self.gone, address))
            holding = Holding(watched, nbytes, purpose, self.seen, len(self.program), where)
            self.alive[address] = holding
            self._change(holding, nbytes)

    def holding_of(self, tensor):
        return self.alive.get(tensor.untyped_storage()._cdata)

    # What they are for.

    def is_for(self, purpose, tensor):
        holdings = map(self.holding_of, stored(tensor))
        return any(holding and holding.purpose == purpose for holding in holdings)

    def mark(self, tensor, purpose, like=None):
        """Now it is known what ``tensor`` is for, and has been from the start; and that ``like`` is its parameter."""
        for part in [] if tensor is None else stored(tensor):
            holding = self.holding_of(part)
            if holding:
                if holding.purpose != purpose:
                    self._mark(holding, purpose)
                if like is not None and not holding.is_covered:
                    self._belong_to(holding, part, like)

    def _mark(self, holding, purpose):
        before, holding.purpose = holding.purpose, purpose
        made = self.program[holding.place]
        self.program[holding.place] = Memory(purpose, made.nbytes, made.holding)
        resized = holding.nbytes - made.nbytes
        if resized:
            changes = [Memory(before, -resized, holding), Memory(purpose, resized, holding)]
            self.program += changes if resized > 0 else changes[::-1]  # less comes first: there is no peak between
        if holding.number <= self.seen_at_peak:  # it was there, and for that purpose, at the peak
            self.at_peak[before] -= holding.nbytes
            self.at_peak[purpose] += holding.nbytes
        self.held[before] -= holding.nbytes
        self.held[purpose] += holding.nbytes

    # Whose they are.

    def _belong_to(self, holding, tensor, parameter):
        known = not holding.pieces and holding.nbytes == tensor.nbytes and self.parts.find(parameter)
        if known:  # most are all of a parameter's
            holding.be_all_of(known, self.rank if is_sharded(parameter) else None)
            return
        begin, end = span(tensor)
        if not holding.has_label_in(begin, end):
            for piece in self.pieces_like(tensor, parameter, begin, end):
                holding.add(piece)

    def pieces_like(self, tensor, parameter, start, end):
        """The pieces of ``parameter``, in a tensor of as many numbers; of another, its one label for all of it."""
        part = self.parts.find(parameter)
        if part:
            return [Piece(start, end, part, self.rank if is_sharded(parameter) else None)]
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
            storage, holding.watched = holding.watched(), None
            address = storage._cdata
            after = Holding(None, holding.nbytes, holding.purpose, holding.number, len(self.program) + 1, holding.where)
            after.watched, after.pieces = ref(storage, partial(self.gone, address)), holding.replaced(piece)
            self.alive[address] = after
            self.program += [
                Memory(holding.purpose, -holding.nbytes, holding),
                Memory(holding.purpose, holding.nbytes, after),
            ]

    # Changes.

    def gone(self, address, _):
        holding = self.alive.pop(address)
        holding.watched = None
        self._change(holding, -holding.nbytes)

    def resized(self, storage):
        holding, nbytes = self.alive.get(storage._cdata), storage.nbytes()
        if holding and nbytes != holding.nbytes:
            change, holding.nbytes = nbytes - holding.nbytes, nbytes
            self._change(holding, change)

    def _change(self, holding, nbytes):
        if self.closed:
            return
        if nbytes < 0:
            self._note_peak()
        self.held[holding.purpose] += nbytes
        self.total += nbytes
        self.program.append(Memory(holding.purpose, nbytes, holding))
        if self.total > self.peak:
            self.peak, self.rising = self.total, True

    def close(self):
        """The rank has ended: what becomes of its tensors now is not its doing."""
        self.closed = True
        self._note_peak()

    def _note_peak(self):
        if self.rising:
            self.at_peak, self.seen_at_peak, self.rising = self.held.copy(), self.seen, False


@contextmanager
def purpose(name):
    """What is made while this lasts is for ``name``, one of PURPOSES. Where no ledger is kept it does nothing."""
    if name not in PURPOSES:
        raise ValueError(f"purpose: must be one of {', '.join(PURPOSES)}, got {name!r}")
    ledger = getattr(of_thread, "ledger", None)
    if ledger is None:
        yield
        return
    before, ledger.asked = ledger.asked, name
    try:
        yield
    finally:
        ledger.asked = before


@contextmanager
def purposes_known(record, ledger):
    """While this lasts, parameters, gradients and optimizer states are marked as such, and as whose they are, in
    ``ledger()``, that of the rank which runs."""

    def registered(module, name, tensor):
        if tensor is not None:
            record.parts.own(module, name, tensor)
            ledger().mark(tensor, "parameters", tensor)
            if tensor.requires_grad and tensor.is_leaf:
                hooks.append(tensor.register_post_accumulate_grad_hook(accumulated))

    def converted(module):
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            ledger().mark(tensor, "parameters", tensor)
            ledger().mark(tensor.grad, "gradients", tensor)

    def accumulated(tensor):
        ledger().mark(tensor.grad, "gradients", tensor)

    def before_step(optimizer, args, kwargs):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if not ledger().is_for("optimizer states", parameter):  # as master weights are
                ledger().mark(parameter, "parameters", parameter)
            ledger().mark(parameter.grad, "gradients", parameter)

    def after_step(optimizer, args, kwargs):
        for parameter, state in optimizer.state.items():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    ledger().mark(value, "optimizer states", parameter)

    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage, size):
        resize(storage, size)
        ledger().resized(storage)

    hooks = [
        register_module_parameter_registration_hook(registered),
        register_module_buffer_registration_hook(registered),
        register_module_module_registration_hook(record.parts.own),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    for names in record.names:
        names.tell = registered
    torch.UntypedStorage.resize_ = resize_and_tell
    try:
        with conversions_told(converted):
            yield
    finally:
        torch.UntypedStorage.resize_ = resize
        for hook in hooks:
            hook.remove()


PLAIN = {torch.Tensor, torch.nn.Parameter, FakeTensor}
STORED = {  # layout -> what a tensor keeps in plain ones; a layout that is missing hides them
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def is_sharded(tensor):
    """Is it a rank's part of a larger one? (As a DTensor says.)"""
    return type(tensor) not in PLAIN and any(each.is_shard() for each in getattr(tensor, "placements", ()))


def stored(tensor):
    """The plain tensors in which ``tensor`` is stored: most are that themselves, a DTensor has its rank's part."""
    if type(tensor) not in PLAIN:
        tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout is torch.strided:
        return [tensor]
    return [getattr(tensor, part)() for part in STORED.get(tensor.layout, ())]
