"""The Reducer: gradients are averaged in buckets, while backward goes on.

    a gradient is ready        it is in its bucket now
    the bucket is full         its all-reduce starts, after those of the buckets before it, and backward goes on
    backward ends              wait for the all-reduces: ``parameter.grad`` is the mean over the ranks
    before the second step     buckets are rebuilt in the order in which rank 0's gradients came in the first

All ranks start the same buckets in the same order. unused.py knows what takes no part in the loss.
Source: Li et al., PyTorch Distributed, 2020, section 3.2; PyTorch's Reducer, whose names these are (it sends all
gradients in one bucket in the first step).
"""

import torch.distributed as dist

from ..annotate import region
from ..collectives.agreement import numbers_of_root
from ..torch_internals import before_backward_ends
from .buckets import in_buckets


class Reducer:
    """``names``: parameter -> its name, of all that are trained. The other arguments are those of ``DDP``."""

    def __init__(self, names, group, bucket_bytes, hook):
        self.names, self.group, self.bucket_bytes, self.hook = names, group, bucket_bytes, hook
        self.share = 1 / dist.get_world_size(group)  # of a rank in the mean
        self.enabled = False  # does the backward to come average?
        self._fill(list(names))
        self.learning = len(self.buckets) > 1  # the order of gradients, by which buckets are rebuilt
        self.order, self.rebuild_due = [], False
        for parameter in names:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def _fill(self, parameters):
        self.buckets, self.bucket_of = [], {}  # those before are gone first
        self.buckets = in_buckets(parameters, self.bucket_bytes)
        self.bucket_of = {parameter: bucket for bucket in self.buckets for parameter in bucket.parameters}
        self._reset()

    def _reset(self):
        self.started, self.handles = 0, []  # buckets whose all-reduce has begun, and what waits for each
        self.in_backward = False
        for bucket in self.buckets:
            bucket.reset()

    def rebuild_buckets(self):
        """Rebuild the buckets after the first step: broadcast rank 0's gradient order, one index per parameter."""
        if self.rebuild_due:
            parameters = list(self.names)
            number = {parameter: number for number, parameter in enumerate(parameters)}
            seen = dict.fromkeys(self.order + parameters)  # what took no part comes last
            order = numbers_of_root([number[parameter] for parameter in seen], parameters[0].device, self.group)
            self._fill([parameters[number] for number in reversed(order)])
            self.order, self.learning, self.rebuild_due = [], False, False

    # Backward.

    def prepare_for_backward(self, output):
        """``output`` is what forward returns: every parameter takes part in it."""

    def _gradient_is_ready(self, parameter):
        if not self.enabled:
            return
        if not self.in_backward:
            self.in_backward = True
            before_backward_ends(self._finalize_backward)
            self._begin_backward()
        if parameter not in self.bucket_of[parameter].missing:
            raise RuntimeError(f"DDP: {self._why_late(self.names[parameter])} (rank {dist.get_rank()})")
        if self.learning:
            self.order.append(parameter)
        self._mark_ready([parameter])

    def _begin_backward(self):
        """The first gradient is here."""

    def _mark_ready(self, parameters):
        for parameter in parameters:
            self.bucket_of[parameter].take(parameter)
        while self.started < len(self.buckets) and not self.buckets[self.started].missing:
            with region(f"bucket {self.started}"):
                self.handles.append(self.hook(self.buckets[self.started], self.share, self.group))
            self.started += 1

    def _finalize_backward(self):
        try:
            if missing := set().union(*[bucket.missing for bucket in self.buckets]):
                self._without_gradient(missing)
            for wait in self.handles:
                wait()
            self.rebuild_due = self.learning
        finally:
            self._reset()

    # Errors.

    def _without_gradient(self, missing):
        names = ", ".join(name for parameter, name in self.names.items() if parameter in missing)
        raise RuntimeError(
            f"DDP: backward ended without a gradient for {names}, which all ranks must reduce "
            f"(rank {dist.get_rank()}). Set requires_grad=False, or pass find_unused_parameters=True if the "
            "loss may not use it"
        )

    def _why_late(self, name):
        return f"{name} was marked ready twice in one backward, and its bucket may already be reducing"
