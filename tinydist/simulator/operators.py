"""Every operator of a rank passes here: its FLOPs and bytes for the clock, what it makes for the ledger."""

import time

import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .record import Operator

OWN = {torch.Tensor, torch.nn.Parameter, FakeTensor}
_known = {}  # operator -> (does it only make views?, its FLOP formula)


class Watcher(TorchDispatchMode):
    def __init__(self, record, rank):
        super().__init__()
        self.program, self.ledger = record.programs[rank], record.ledgers[rank]
        self.measured = record.measured

    def __exit__(self, *error):
        super().__exit__(*error)
        self.ledger.close()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not OWN.issuperset(types):
            return NotImplemented  # a DTensor, say: what it does with plain tensors comes here again
        kwargs = kwargs or {}
        began = time.thread_time()
        result = func(*args, **kwargs)
        seconds = time.thread_time() - began if self.measured else None
        views, formula = _known.get(func) or _look_at(func)
        made = tensors_in((result,))
        for tensor in made:
            self.ledger.see(tensor)
        if not views:
            flops = formula(*args, **kwargs, out_val=result) if formula else 0
            nbytes = sum([tensor.nbytes for tensor in tensors_in(args)]) + sum([tensor.nbytes for tensor in made])
            dtype = made[0].dtype if made else None
            self.program.append(Operator(func.overloadpacket.__name__, flops, nbytes, dtype, seconds))
        return result


def _look_at(func):
    _known[func] = func.is_view, flop_registry.get(func.overloadpacket)
    return _known[func]


def tensors_in(values):
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found
