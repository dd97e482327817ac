"""Every operator of a rank passes here: its FLOPs and bytes for the clock, what it makes for the ledger, and where."""

import time
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .names import of_thread
from .record import Operator
from .stored import PLAIN, tensors_in
from .torch_internals import REGION_BEGINS, REGION_ENDS
from .untraced import untraced

IDLE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}  # start no kernel
SPEAKING = {"prim", "profiler"}  # operators that ask a tensor something, or name a region
ASKS_DEVICE = torch.ops.prim.device.default  # of a fake tensor: three times as often as anything is computed
ATTENTION = "_scaled_dot_product_flash_attention"  # has formulas; what processors use in its place has not
FIRST = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # products -> where their two operands begin
# The address of an operator, whose hash is a call -> (its name, or None if it computes nothing; its FLOP formula; where
# operands begin; itself, so that it keeps its address)
_known = {}


class Watcher(TorchDispatchMode):
    def __init__(self, record, rank):
        super().__init__()
        self.program, self.ledger, self.names = record.programs[rank], record.ledgers[rank], record.names[rank]
        self.measured = record.measured

    def __enter__(self):
        of_thread.ledger, of_thread.names = self.ledger, self.names
        self.names.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.ledger.close()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is ASKS_DEVICE:
            return args[0].device
        if not PLAIN.issuperset(types):
            return NotImplemented  # a DTensor, say: what it does with plain tensors comes here again
        began = self.measured and time.thread_time()
        result = func(*args, **kwargs) if kwargs else func(*args)
        self._note(func, args, result, time.thread_time() - began if self.measured else None)
        return result

    @untraced
    def _note(self, func, args, result, seconds):
        name, formula, first, _ = _known.get(id(func)) or _look_at(func)
        single = isinstance(result, torch.Tensor)
        made = [result] if single and result.layout is torch.strided else tensors_in((result,))
        where = self.names.now()
        for tensor in made:
            self.ledger.see(tensor, where)
        if name is not None:
            touched = tensors_in(args) + made
            if touched:
                flops = formula(*shapes(args), out_shape=result.shape if single else shapes(result)) if formula else 0
                nbytes = sum([tensor.nbytes for tensor in touched])
                dtype = computed_in(touched) if flops else (made or touched)[0].dtype
                product = None if first is None else product_of(*args[first : first + 2])
                self.program.append(Operator(name, flops, nbytes, dtype, seconds, where, product))
        elif func is REGION_BEGINS:
            self.names.begin(args[0])
        elif func is REGION_ENDS:
            self.names.end()


def _look_at(func):
    name = func.overloadpacket.__name__
    counted = func.overloadpacket
    if name.startswith(ATTENTION):
        counted = getattr(torch.ops.aten, name.replace("_for_cpu", ""))
    elif name.endswith("_") and func.namespace == "aten":  # in place: as much as out of place
        counted = getattr(torch.ops.aten, name[:-1], counted)
    # torch's formulas are wrapped in a search for tensors, which takes longer than most operators.
    formula = getattr(flop_registry.get(counted), "__wrapped__", None)
    idle = func.is_view or name in IDLE or func.namespace in SPEAKING
    known = _known[id(func)] = None if idle else name, formula, FIRST.get(name.rstrip("_")), func
    return known


@contextmanager
def products_in_tf32():
    """For this thread, which is a rank."""
    before, of_thread.tf32 = of_thread.tf32, True
    try:
        yield
    finally:
        of_thread.tf32 = before


def computed_in(operands):
    """At what rate a product goes: by the dtype of what is multiplied, and

    - "tf32" for float32, where torch's switch or precision.tf32 says so;
    - "mxfp8" for fp8 with scales of e8m0, of blocks.
    """
    dtype = operands[0].dtype
    if dtype == torch.float32:
        rounded = of_thread.tf32 or torch.backends.cuda.matmul.fp32_precision == "tf32"
        return "tf32" if rounded else dtype
    return "mxfp8" if any(each.dtype == torch.float8_e8m0fnu for each in operands) else dtype


def product_of(a, b):
    """(batch, rows, columns, inner)"""
    return *(a.shape[:-2] or (1,)), a.shape[-2], b.shape[-1], a.shape[-1]


def shapes(values):
    """``values`` with a shape in the place of each tensor."""
    return [getattr(value, "shape", value) for value in values]
