"""Where tensors are, host or GPU, and where an operator computes.

A storage is on the GPU if the rank's ledger holds it, and on the host otherwise. A new one goes

1. where the call says:                     ``torch.zeros(2, device="cuda")``, ``x.to("cuda")``
2. where the operator's operands are:       ``x + y``
3. where the tensors of the call are:       what torch's C++ allocates inside ``loss.backward()``
4. to the host.
"""

import threading
from contextlib import contextmanager

import torch

from ..torch_internals import inside_of
from ..tracing.tensor_storage import plain_tensors, tensors_in
from .device_checks import HOST, device_among

META = torch.device("meta")
aten = torch.ops.aten
# By their addresses, since an operator's hash is a call
COPIES = {id(each) for each in (aten.copy_.default, aten._to_copy.default)}  # from one device to another


class Call(threading.local):
    """The call of torch that this thread is in: what it has said of the device, what it was given, what it draws from,
    and whether the program passed ``out``. (C++ does, with tensors that it has allocated itself: DDP's buckets.)"""

    device, given, generator, has_out = None, (), None, False


call = Call()


@contextmanager
def new_tensors_on(device):
    before, call.device = call.device, device
    try:
        yield
    finally:
        call.device = before


class Placement:
    """One rank's."""

    def __init__(self, ledger):
        self.ledger = ledger

    def device_of(self, tensor):
        """``cuda:0`` and so on, ``cpu``, or what else torch says of a tensor without memory."""
        for part in plain_tensors(tensor):
            if part.is_meta:
                return META
            try:
                holding = self.ledger.holding_of(part)
            except NotImplementedError:  # of torch.func's, which have no storage
                return self.device_of(inside_of(part))
            if holding is not None:
                return holding.device
        return HOST

    def of_operator(self, func, args, kwargs):
        """Where it computes. Raises RuntimeError where its operands are on two devices. (Each operator comes here.)"""
        if call.device is not None:
            return call.device
        operands = tensors_in(args)
        if not operands:
            return next(map(self.device_of, tensors_in(call.given)), HOST)
        if call.has_out and kwargs and "out" in kwargs:
            operands += tensors_in((kwargs["out"],))
        alive, found = self.ledger.alive, None
        for tensor in operands:
            holding = None if tensor.is_meta else alive.get(tensor.untyped_storage()._cdata)
            device = holding.device if holding is not None else META if tensor.is_meta else HOST
            if found is None:
                found = device
            elif device is not found and device != found and id(func) not in COPIES:
                return device_among(func, args, kwargs or {}, self.device_of)
        return found
