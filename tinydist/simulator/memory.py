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

import threading
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from weakref import ref

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .torch_internals import conversions_told

PURPOSES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")


class Memory(NamedTuple):
    purpose: str
    nbytes: int  # negative: given back


class Ledger:
    """One rank's. Each change is noted in ``program``, the record of what the rank does."""

    def __init__(self, program):
        self.program = program
        self.alive = {}  # address of a storage -> [weak reference, bytes, purpose, its number, its place in program]
        self.seen = self.seen_at_peak = 0  # how many there have been
        self.held = dict.fromkeys(PURPOSES, 0)  # purpose -> bytes
        self.total = self.peak = 0
        self.at_peak = self.held.copy()
        self.rising = False  # the peak is now, and at_peak not written yet
        self.asked = None  # the purpose that the program gave
        self.closed = False

    def see(self, tensor):
        """Count the storage of a tensor that an operator has returned."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.alive:
            nbytes = storage.nbytes()
            purpose = self.asked or ("activations" if torch.is_grad_enabled() else "other")
            self.seen += 1
            watched = ref(storage, partial(self.gone, address))
            self.alive[address] = [watched, nbytes, purpose, self.seen, len(self.program)]
            self._change(purpose, nbytes)
        else:
            self.resized(storage)

    def mark(self, tensor, purpose):
        """Now it is known what ``tensor`` is for, and has been from the start."""
        for part in [] if tensor is None else stored(tensor):
            self._mark(part, purpose)

    def _mark(self, tensor, purpose):
        entry = self.alive.get(tensor.untyped_storage()._cdata)
        if entry and entry[2] != purpose:
            _, nbytes, before, number, place = entry
            entry[2] = purpose
            resized = nbytes - self.program[place].nbytes
            self.program[place] = Memory(purpose, self.program[place].nbytes)
            if resized:
                self.program += [Memory(before, -resized), Memory(purpose, resized)]
            if number <= self.seen_at_peak:  # it was there, and for that purpose, at the peak
                self.at_peak[before] -= nbytes
                self.at_peak[purpose] += nbytes
            self.held[before] -= nbytes
            self.held[purpose] += nbytes

    def gone(self, address, _):
        _, nbytes, purpose, *_ = self.alive.pop(address)
        self._change(purpose, -nbytes)

    def resized(self, storage):
        entry, nbytes = self.alive.get(storage._cdata), storage.nbytes()
        if entry and nbytes != entry[1]:
            change, entry[1] = nbytes - entry[1], nbytes
            self._change(entry[2], change)

    def _change(self, purpose, nbytes):
        if self.closed:
            return
        if nbytes < 0:
            self._note_peak()
        self.held[purpose] += nbytes
        self.total += nbytes
        self.program.append(Memory(purpose, nbytes))
        if self.total > self.peak:
            self.peak, self.rising = self.total, True

    def close(self):
        """The rank has ended: what becomes of its tensors now is not its doing."""
        self.closed = True
        self._note_peak()

    def _note_peak(self):
        if self.rising:
            self.at_peak, self.seen_at_peak, self.rising = self.held.copy(), self.seen, False


of_thread = threading.local()  # .ledger: that of the rank


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
def purposes_known(ledger):
    """While this lasts, parameters, gradients and optimizer states are marked as such in ``ledger()``."""

    def registered(module, name, tensor):
        if tensor is None:
            return
        ledger().mark(tensor, "parameters")
        if tensor.requires_grad and tensor.is_leaf:
            hooks.append(tensor.register_post_accumulate_grad_hook(accumulated))

    def converted(module):
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            ledger().mark(tensor, "parameters")
            ledger().mark(tensor.grad, "gradients")

    def accumulated(tensor):
        ledger().mark(tensor.grad, "gradients")

    def before_step(optimizer, args, kwargs):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            ledger().mark(parameter, "parameters")
            ledger().mark(parameter.grad, "gradients")

    def after_step(optimizer, args, kwargs):
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    ledger().mark(value, "optimizer states")

    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage, size):
        resize(storage, size)
        ledger().resized(storage)

    hooks = [
        register_module_parameter_registration_hook(registered),
        register_module_buffer_registration_hook(registered),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    torch.UntypedStorage.resize_ = resize_and_tell
    try:
        with conversions_told(converted):
            yield
    finally:
        torch.UntypedStorage.resize_ = resize
        for hook in hooks:
            hook.remove()


STORED = {  # layout -> what a tensor keeps in plain ones; a layout that is missing hides them
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def stored(tensor):
    """The plain tensors in which ``tensor`` is stored: most are that themselves, a DTensor has its rank's part."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout is torch.strided:
        return [tensor]
    return [getattr(tensor, part)() for part in STORED.get(tensor.layout, ())]
