"""Where tensors are, host or GPU, and the rule that the operands of an operator must be on one device.

A storage is on the GPU if the rank's ledger holds it, and on the host otherwise. A new one goes

1. where the call says:                     ``torch.zeros(2, device="cuda")``, ``x.to("cuda")``
2. where the operator's operands are:       ``x + y``
3. where the tensors of the call are:       what torch's C++ allocates inside ``loss.backward()``
4. to the host.
"""

import threading
from contextlib import contextmanager

import torch

from ..tracing.tensor_storage import plain_tensors, tensors_in

HOST, META = torch.device("cpu"), torch.device("meta")
aten = torch.ops.aten
# By their addresses, since an operator's hash is a call
COPIES = {id(each) for each in (aten.copy_.default, aten._to_copy.default)}  # from one device to another
# Their first operand counts: indices are moved to it
INDEXING = aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default
BY_THE_FIRST = set(map(id, INDEXING))


class Call(threading.local):
    """The call of torch that this thread is in: what it has said of the device, and what it was given."""

    device, given = None, ()


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
            holding = self.ledger.holding_of(part)
            if holding is not None:
                return holding.device
        return HOST

    def of_operator(self, func, args):
        """Where ``func(*args)`` computes. Raises RuntimeError where its operands are on two devices."""
        if call.device is not None:
            return call.device
        operands = tensors_in(args)
        if not operands:
            return next(iter(self.devices_of(tensors_in(call.given))), HOST)
        if id(func) in BY_THE_FIRST:
            operands = operands[:1]
        found = self.devices_of(operands)
        if len(found) > 1:
            found = self.devices_of([each for each in operands if each.dim() or self.device_of(each) != HOST])
        if len(found) > 1 and id(func) not in COPIES:
            raise RuntimeError(self.two_devices(func, args))
        return next(iter(found), HOST)

    def devices_of(self, tensors):
        return dict.fromkeys(map(self.device_of, tensors))

    def two_devices(self, func, args):
        """As torch says it: of an operator that goes over elements, and of any other."""
        named = [
            (argument.name, self.device_of(each))
            for argument, value in zip(func._schema.arguments, args)
            for each in tensors_in((value,))
            if each.dim() or self.device_of(each) != HOST
        ]
        (_, first), *others = named
        name, other = next(each for each in others if each[1] != first)
        rule = "Expected all tensors to be on the same device, but"
        if torch.Tag.pointwise in func.tags:
            return f"{rule} found at least two devices, {first} and {other}!"
        if other.type == "cuda":  # the kernel is the GPU's, whose first operand counts
            name, other, first = named[0][0], first, other
        method = f"wrapper_CUDA_{func.overloadpacket.__name__}"
        return (
            f"{rule} got {name} is on {other}, different from other tensors on {first} "
            f"(when checking argument in method {method})"
        )
