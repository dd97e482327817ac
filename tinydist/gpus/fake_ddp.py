"""DistributedDataParallel for forecasts: torch's C++ reducer looks at the data of gradients, which fake ones lack.

The same messages at the same moments: parameters and buffers are broadcast when it is made; gradients are reduced in
buckets while backward runs, in the first step by the order of the parameters, from the second on by that of arrival.
Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (sizes and order of buckets).
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ..annotate import purpose, region
from ..torch_internals import before_backward_ends, graph_task

MIB = 2**20
FIRST_BUCKET = 1 * MIB


class FakeDDP(nn.Module):
    """Options that do not change what is sent or when are taken, and do nothing."""

    def __init__(
        self,
        module,
        device_ids=None,
        output_device=None,
        dim=0,
        broadcast_buffers=True,
        init_sync=True,
        process_group=None,
        bucket_cap_mb=None,
        find_unused_parameters=False,
        check_reduction=False,
        gradient_as_bucket_view=False,
        static_graph=False,
        **options,
    ):
        super().__init__()
        self.module, self.process_group = module, process_group or dist.group.WORLD
        self.device = next(module.parameters()).device
        self.device_ids, self.broadcast_buffers = device_ids, broadcast_buffers
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        self.first_bucket_bytes_cap = FIRST_BUCKET if bucket_cap_mb is None else self.bucket_bytes_cap
        self.require_backward_grad_sync, self.find_unused_parameters = True, find_unused_parameters
        self.require_forward_param_sync = True  # set by each forward, for the next one
        self.tensors = [each for each in module.parameters() if each.requires_grad]
        if init_sync:
            self._broadcast([*module.parameters(), *module.buffers()])
        self._fill_buckets(self.tensors[::-1])
        self.arrived, self.task = [], None
        for parameter in self.tensors:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _broadcast(self, tensors):
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.process_group, group_src=0)

    @torch.no_grad()
    def _fill_buckets(self, order):
        """As many parameters as fit, the first bucket smaller, so that communication begins early."""
        self.bucket_of, self.buckets, room = {}, [], 0  # by address
        for parameter in order:
            if room <= 0:
                self.buckets.append([])
                room = self.first_bucket_bytes_cap if len(self.buckets) == 1 else self.bucket_bytes_cap
            self.buckets[-1].append(parameter)
            self.bucket_of[id(parameter)] = len(self.buckets) - 1
            room -= parameter.nbytes
        self.flat, self.view = [], {}
        for bucket in self.buckets:
            sizes = [each.numel() for each in bucket]
            with purpose("communication"):
                self.flat.append(torch.empty(sum(sizes), dtype=bucket[0].dtype, device=self.device))
            views = zip(bucket, self.flat[-1].split(sizes), strict=True)
            self.view |= {id(each): view.view_as(each) for each, view in views}

    def forward(self, *inputs, **named):
        if self.device_ids:
            inputs, named = moved(inputs, self.device), moved(named, self.device)
        if self.broadcast_buffers and self.require_forward_param_sync:
            self._broadcast(self.module.buffers())
        output = self.module(*inputs, **named)
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        return output

    @contextmanager
    def no_sync(self):
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state, hook):
        raise NotImplementedError("a forecast of DDP with a communication hook: its hook would see no data")

    def join(self, *options, **named):
        raise NotImplementedError("a forecast of DDP's join(): run with real numbers, without --fake")

    # In backward.

    def _ready(self, parameter):
        if not self.require_backward_grad_sync:
            return
        if self.task != graph_task():
            self.task, self.works, self.arrived = graph_task(), [], []
            self.left = [len(bucket) for bucket in self.buckets]
            before_backward_ends(self._finish)
        self.arrived.append(parameter)
        with torch.no_grad():
            torch.mul(parameter.grad, 1 / self.process_group.size(), out=self.view[id(parameter)])
        self.left[self.bucket_of[id(parameter)]] -= 1
        while len(self.works) < len(self.buckets) and self.left[len(self.works)] == 0:  # in order
            self._reduce()

    def _reduce(self):
        with region(f"bucket {len(self.works)}"):
            flat = self.flat[len(self.works)]
            self.works.append(dist.all_reduce(flat, group=self.process_group, async_op=True))

    @torch.no_grad()
    def _finish(self):
        while len(self.works) < len(self.buckets):  # some of its parameters were not used
            self._reduce()
        for work, bucket in zip(self.works, self.buckets, strict=True):
            work.wait()
            for parameter in bucket:
                if parameter.grad is not None:
                    parameter.grad.copy_(self.view[id(parameter)])
        if len(self.arrived) == len(self.tensors) and list(self.bucket_of) != list(map(id, self.arrived)):
            self._fill_buckets(self.arrived)
        self.task, self.works = None, []  # which hold the buckets


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(each, device) for name, each in value.items()}
    return type(value)(moved(each, device) for each in value) if type(value) in (list, tuple) else value
