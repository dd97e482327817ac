"""DistributedDataParallel: every rank has the model and a part of the batch; gradients are averaged during backward.

    start       rank 0's parameters and buffers go to all, so all begin alike
    forward     rank 0's buffers go to all; then the module, on this rank's part of the batch
    backward    as soon as the last gradient of a bucket is there, its all-reduce starts, and backward goes on
    its end     wait for the all-reduces: every rank has the same mean gradients, and takes the same step
    2nd step    buckets are made anew, in the order in which rank 0's gradients came in the first

Bytes a rank and step: 2(p-1)/p of the gradients. Bytes held: all parameters, gradients and optimizer states on every
rank. Time of backward: about max(compute, communication) + what the last bucket takes; more in the first step of a
module that does not use its parameters in the order of their definition, which is all that is known until then.
Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020, section 3.2; its
Reducer (which sends all gradients in one bucket in the first step).
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ..annotate import region
from ..collectives.agreement import broadcast_all, check_same_parameters, numbers_of_root
from ..rules import flag, function, takes
from ..torch_internals import before_backward_ends
from . import hooks
from .buckets import MIB, in_buckets
from .unused import unused


@takes(module=nn.Module, group=dist.ProcessGroup, find_unused_parameters=flag, static_graph=flag, hook=function)
@takes(grad_dtype=torch.dtype)
class DDP(nn.Module):
    """``module``, trained on all ranks of ``group`` as if on one that sees all their batches.

    bucket_bytes:   bucket size, in bytes (torch: bucket_cap_mb, in MiB).
    find_unused_parameters:  a parameter may take no part in the loss: a walk over the graph tells this rank which
                    (unused.py), and the ranks ask one another (one all-reduce more). Buckets stay as they are.
    static_graph:   whatever takes part in the first step does so in all: they ask once.
    hook:           what happens to a full bucket (hooks.py).
    grad_dtype:     gradients are added up, sent and left in it: torch.float32 for parameters of 16 bits, as Megatron's
                    main_grad, for 2 bytes a parameter more. Each backward's own gradient still comes in 16 bits. None:
                    as ``parameter.grad_dtype`` says.

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
        self.module, self.group, self.hook = module, group, hook
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.signature = self._signature()
        check_same_parameters("DDP", module, group)
        broadcast_all([*module.parameters(), *module.buffers()], group=group)
        for parameter in self._trained() if grad_dtype else ():
            parameter.grad_dtype = grad_dtype
        self.bucket_bytes = bucket_bytes
        self.share = 1 / dist.get_world_size(group)  # of a rank in the mean
        self.require_backward_grad_sync = True
        self.reducing = False  # does the backward to come average?
        self.idle = None  # what takes no part: in a static graph, once it is known
        self.joined = None  # join.py
        self._fill(self._trained())
        self.order = []  # of gradients, until buckets are made by it
        self.learning = len(self.buckets) > 1 and (static_graph or not find_unused_parameters)
        self.rebuild_due = False
        for parameter in self.bucket_of:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    # Start.

    def _trained(self):
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def _signature(self):
        return {name: (id(p), p.requires_grad) for name, p in self.module.named_parameters()}

    def _fill(self, parameters):
        self.buckets, self.bucket_of = [], {}  # those before are gone first
        self.buckets = in_buckets(parameters, self.bucket_bytes)
        self.bucket_of = {parameter: bucket for bucket in self.buckets for parameter in bucket.parameters}
        self._reset()

    # Forward.

    def forward(self, *inputs, **options):
        self._check_unchanged()
        self.reducing = self.require_backward_grad_sync and torch.is_grad_enabled()
        if self.joined and self.reducing:
            self.share = self.joined.share_of_those_left(1)
        if self.reducing:
            self.rebuild()
        if self.require_backward_grad_sync and self.training:
            broadcast_all(self.module.buffers(), group=self.group)
        output = self.module(*inputs, **options)
        if self.reducing and self.find_unused_parameters and not self.static_graph:
            self.idle = unused(list(self.bucket_of), output)
        return output

    def rebuild(self):
        """Once, after the first step: the order of rank 0's gradients goes to all, one number for each parameter."""
        if self.rebuild_due:
            parameters = self._trained()
            number = {parameter: number for number, parameter in enumerate(parameters)}
            seen = dict.fromkeys(self.order + parameters)  # what took no part comes last
            order = numbers_of_root([number[parameter] for parameter in seen], parameters[0].device, self.group)
            self._fill([parameters[number] for number in reversed(order)])
            self.order, self.learning, self.rebuild_due = [], False, False

    def _check_unchanged(self):
        now = self._signature()
        if now != self.signature:
            changed = dict(now.items() ^ self.signature.items())
            raise RuntimeError(
                f"DDP: the module has changed since it was wrapped: {', '.join(sorted(changed))}. Modify it "
                f"before wrapping it in DDP: hooks and buckets are built at construction (rank {dist.get_rank()})"
            )

    @contextmanager
    def no_sync(self):
        """Forward and backward in here only add to this rank's gradients; the next step outside averages all of it."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # Backward.

    def _reset(self):
        self.started, self.ending, self.finishes = 0, False, []
        for bucket in self.buckets:
            bucket.reset()

    def _gradient_is_ready(self, parameter):
        if not self.reducing:
            return
        if not self.ending:
            self.ending = True
            before_backward_ends(self._finish)
            for idle in self.idle or ():
                self.bucket_of[idle].take(idle)
        if parameter not in self.bucket_of[parameter].missing:
            raise RuntimeError(f"DDP: {self._why_late(self._names([parameter]))} (rank {dist.get_rank()})")
        if self.learning:
            self.order.append(parameter)
        self.bucket_of[parameter].take(parameter)
        self._start_full_buckets()

    def _why_late(self, name):
        if self.static_graph:
            return f"static_graph is True, but {name} takes part in the loss now and did not in the first step"
        if self.find_unused_parameters:
            return f"nothing that forward returned last leads to {name}, but it gets a gradient: its bucket has gone"
        return f"{name} gets a gradient twice in one backward, and the first may be on its way"

    def _start_full_buckets(self):
        """In their order, which is the same on all ranks."""
        while self.started < len(self.buckets) and not self.buckets[self.started].missing:
            with region(f"bucket {self.started}"):
                self.finishes.append(self.hook(self.buckets[self.started].flat, self.share, self.group))
            self.started += 1

    def _finish(self):
        try:
            missing = [parameter for bucket in self.buckets for parameter in bucket.missing]
            if missing and not self._may_be_unused:
                raise RuntimeError(
                    f"DDP: backward has ended without a gradient for {self._names(missing)}, but all ranks wait for it "
                    f"(rank {dist.get_rank()}). Freeze what is not trained, or pass find_unused_parameters=True if the "
                    "loss may leave it out"
                )
            for parameter in missing:
                self.bucket_of[parameter].take(parameter)
            self._start_full_buckets()
            for finish in self.finishes:
                finish()
            if self._may_be_unused:
                self._give_to_the_idle()
            self.rebuild_due = self.learning
        finally:
            self._reset()

    @property
    def _may_be_unused(self):
        return self.find_unused_parameters or (self.static_graph and self.idle is None)

    def _give_to_the_idle(self):
        """A parameter that any rank has used has the mean on every rank; one that nobody has used keeps its None."""
        parameters = list(self.bucket_of)
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8, device=parameters[0].device)
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group)
        idle = []
        for parameter, by_somebody in zip(parameters, used.tolist()):
            if by_somebody:
                parameter.grad = self.bucket_of[parameter].views[parameter]
            else:
                idle.append(parameter)
        if self.static_graph:
            self.idle = idle

    def _names(self, parameters):
        chosen = {id(parameter) for parameter in parameters}
        return ", ".join(name for name, parameter in self.module.named_parameters() if id(parameter) in chosen)
