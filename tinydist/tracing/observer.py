"""The observer of a rank: records each operator, and the annotations of its program (annotate.py).

Every operator passes here: its FLOPs and bytes for the clock, what it makes for the ledger, and its scope. Host-device
copies overlap with compute, on one stream per direction.
"""

import functools
import sys
import time
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..annotate import listen
from ..torch_internals import REGION_BEGINS, REGION_ENDS
from .ledger import Shard
from .record import Issue, Operator, Transfer, Wait
from .scopes import MarkPoint, of_thread
from .tensor_storage import PLAIN, span, tensors_in

IDLE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}  # start no kernel
SPEAKING = {"prim", "profiler"}  # operators that ask a tensor something, or name a region
ASKS_DEVICE = torch.ops.prim.device.default  # of a fake tensor: three times as often as anything is computed
ATTENTION = "_scaled_dot_product_flash_attention"  # has formulas; what processors use in its place has not
FIRST = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # matmuls -> index of their first operand
FILLS = "fill_ zero_ uniform_ normal_ zeros_like ones_like full_like rand_like randn_like new_zeros new_ones new_full"
# What operators read and write that do not read all of their arguments, or write something else than what they return
# (``made``). fully_shard's: the first one writes a part of what it returns, the others an argument.
TOUCHED = {
    **{f"aten::{name}": lambda made, *_, **__: made for name in FILLS.split()},
    "aten::copy_": lambda made, target, source, *_: [source, target],
    "aten::embedding": lambda made, table, rows, *_: [rows, *made, *made],
    "aten::nll_loss_forward": lambda made, scores, targets, *_: [targets, *made],
    "aten::nll_loss_backward": lambda made, gradient, scores, targets, *_: [targets, *made],
    "fsdp::all_gather_copy_in": lambda made, shards, *_: [*shards, *shards],
    "fsdp::split_with_sizes_copy": lambda made, whole, *_, out: [whole, *out],
    "fsdp::chunk_cat": lambda made, tensors, *_, out, **__: [*tensors, out],
    "tinydist::kernel": lambda made, number, reads, writes: [*reads, *writes],
}
# The address of an operator, whose hash is a call -> (its name, or None if it computes nothing; its FLOP formula; where
# operands begin; what it touches, if that is not its arguments and results; itself, so that it keeps its address)
_known = {}


def hidden_from_debuggers(function):
    """``function(*arguments)``, in which ``sys.settrace`` sees nothing."""

    @functools.wraps(function)
    def call(*arguments):
        trace = sys.gettrace()
        if trace is None:
            return function(*arguments)
        sys.settrace(None)
        try:
            return function(*arguments)
        finally:
            sys.settrace(trace)

    return call


class Observer(TorchDispatchMode):
    """Of one rank, while its program runs."""

    def __init__(self, record, rank):
        super().__init__()
        self.program, self.ledger, self.scopes = record.programs[rank], record.ledgers[rank], record.scopes[rank]
        self.measured = record.measured
        self.copies = []  # what waits for those under way

    def __enter__(self):
        of_thread.ledger, of_thread.scopes = self.ledger, self.scopes
        listen(self)
        self.scopes.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.ledger.close()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is ASKS_DEVICE:
            return args[0].device
        if of_thread.paused:
            return func(*args, **kwargs or {})
        if not PLAIN.issuperset(types):
            return NotImplemented  # a DTensor, say: what it does with plain tensors comes here again
        return self.compute(func, args, kwargs)

    def compute(self, func, args, kwargs):
        """Run an operator, and record it."""
        began = self.measured and time.thread_time()
        result = func(*args, **kwargs) if kwargs else func(*args)
        self._note(func, args, kwargs, result, time.thread_time() - began if self.measured else None)
        return result

    @hidden_from_debuggers
    def _note(self, func, args, kwargs, result, seconds):
        name, formula, first, touches, _ = _known.get(id(func)) or _look_at(func)
        single = isinstance(result, torch.Tensor)
        made = [result] if single and result.layout is torch.strided else tensors_in((result,))
        scope = self.scopes.now()
        for tensor in made:
            self.ledger.see(tensor, scope)
        if name is not None:
            touched = touches(made, *args, **kwargs or {}) if touches else tensors_in(args) + made
            if touched:
                flops = formula(*shapes(args), out_shape=result.shape if single else shapes(result)) if formula else 0
                nbytes = sum([tensor.nbytes for tensor in touched])
                dtype = computed_in(touched) if flops else (made or touched)[0].dtype
                product = None if first is None else product_of(*args[first : first + 2])
                self.program.append(Operator(name, flops, nbytes, dtype, seconds, scope, product))
        elif func is REGION_BEGINS:
            self.scopes.begin(args[0])
        elif func is REGION_ENDS:
            self.scopes.end()

    # What the program says.

    def mark(self, name):
        self.program.append(MarkPoint(name))

    def own_stages(self, pipeline, stages):
        for number, module in stages.items():
            self.scopes.module_names.own_stage(pipeline, number, module)

    def ask_for(self, purpose):
        """What was requested before."""
        before, self.ledger.asked = self.ledger.asked, purpose
        return before

    def label(self, tensor, owner, shard, dim):
        self.ledger.label(tensor, owner, None if shard is None else Shard(shard, dim))

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
        self.program.append(Issue(transfer, self.scopes.now(), ((holding, *span(tensor)),) if holding else ()))
        return lambda: self.program.append(Wait(transfer, self.scopes.now()))

    def stall(self, name, nbytes, seconds):
        self.program.append(Operator(name, 0, nbytes, torch.uint8, seconds))


def _look_at(func):
    name = func.overloadpacket.__name__
    counted = func.overloadpacket
    if name.startswith(ATTENTION):
        counted = getattr(torch.ops.aten, name.replace("_for_cpu", ""))
    elif name.endswith("_") and func.namespace == "aten":  # in place: as much as out of place
        counted = getattr(torch.ops.aten, name[:-1], counted)
    from torch.utils.flop_counter import flop_registry  # only now: it loads Triton, if that is installed

    # torch's formulas are wrapped in a search for tensors, which takes longer than most operators.
    formula = getattr(flop_registry.get(counted), "__wrapped__", None)
    idle = func.is_view or name in IDLE or func.namespace in SPEAKING
    touches = TOUCHED.get(func._schema.name) or written_lists(func._schema)
    known = _known[id(func)] = None if idle else name, formula, FIRST.get(name.rstrip("_")), touches, func
    return known


def written_lists(schema):
    """What an operator touches that returns nothing and writes into lists (foreach, fused optimizers); else None.

    A fused optimizer writes gradients only if it unscales them, for a loss scaler.
    """
    if schema.returns:
        return None
    written = [
        place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info and argument.alias_info.is_write and argument.name != "grads"
    ]
    return lambda made, *args, **_: tensors_in(args) + tensors_in(args[place] for place in written if place < len(args))


def computed_in(operands):
    """The rate of a matmul: by the dtype of what is multiplied, and

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
