"""DistributedDataParallel: every rank has the model and a part of the batch; gradients are averaged during backward.

    start       broadcast parameters and buffers from rank 0
    forward     broadcast buffers from rank 0; then run the module on this rank's shard of the batch
    backward    gradients are averaged in buckets (reducer.py): every rank has the same, and takes the same step

Bytes a rank and step: 2(p-1)/p of the gradients. Bytes held: all parameters, gradients and optimizer states on every
rank. Time of backward: about max(compute, communication) + what the last bucket takes; more in the first step of a
module that does not use its parameters in the order of their definition, which is all that is known until then.
Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020, section 3.2.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ..collectives.agreement import broadcast_all, check_same_parameters
from ..rules import flag, function, validate
from . import hooks
from .buckets import MIB
from .reducer import Reducer
from .unused import ReducerWithUnused


@validate(module=nn.Module, group=dist.ProcessGroup, find_unused_parameters=flag, static_graph=flag, hook=function)
@validate(grad_dtype=torch.dtype)
class DDP(nn.Module):
    """Train ``module`` on all ranks of ``group``, equivalent to one process with the combined batch.

    bucket_bytes:   bucket size, in bytes (torch: bucket_cap_mb, in MiB).
    find_unused_parameters:  allow parameters that get no gradient: traverse the graph to find them (unused.py), and
                    synchronize over ranks (one more all-reduce). Buckets are not rebuilt.
    static_graph:   the same parameters are used in every step: synchronize only once.
    hook:           communication hook: how a full bucket is reduced (hooks.py).
    grad_dtype:     dtype in which gradients are accumulated, communicated and stored: torch.float32 for 16-bit
                    parameters, as Megatron's main_grad, costs 2 more bytes per parameter. Autograd still produces
                    16-bit gradients. None: as ``parameter.grad_dtype`` says.

    Raises ``ValueError`` if the ranks bring different modules; ``RuntimeError`` if the module has changed since, or a
    parameter gets no gradient and ``find_unused_parameters`` is False.
    """

    def __init__(
        self,
        module,
        group=None,
        bucket_bytes=25 * MIB,
        find_unused_parameters=False,
        static_graph=False,
        hook=hooks.all_reduce,
        grad_dtype=None,
    ):
        super().__init__()
        self.module, self.group = module, group
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.signature = self._signature()
        check_same_parameters("DDP", module, group)
        broadcast_all([*module.parameters(), *module.buffers()], group=group)
        trained = {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}
        for parameter in trained if grad_dtype else ():
            parameter.grad_dtype = grad_dtype
        self.require_backward_grad_sync = True
        if find_unused_parameters or static_graph:
            self.reducer = ReducerWithUnused(static_graph, trained, group, bucket_bytes, hook)
        else:
            self.reducer = Reducer(trained, group, bucket_bytes, hook)

    def forward(self, *inputs, **options):
        self._check_unchanged()
        self.reducer.enabled = self.require_backward_grad_sync and torch.is_grad_enabled()
        if self.reducer.enabled:
            self.reducer.rebuild_buckets()
        if self.require_backward_grad_sync and self.training:
            broadcast_all(self.module.buffers(), group=self.group)
        output = self.module(*inputs, **options)
        if self.reducer.enabled:
            self.reducer.prepare_for_backward(output)
        return output

    @contextmanager
    def no_sync(self):
        """Context: backward only accumulates local gradients; the first backward outside it synchronizes them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _signature(self):
        return {name: (id(p), p.requires_grad) for name, p in self.module.named_parameters()}

    def _check_unchanged(self):
        now = self._signature()
        if now != self.signature:
            changed = dict(now.items() ^ self.signature.items())
            raise RuntimeError(
                f"DDP: the module has changed since it was wrapped: {', '.join(sorted(changed))}. Modify it "
                f"before wrapping it in DDP: hooks and buckets are built at construction (rank {dist.get_rank()})"
            )
