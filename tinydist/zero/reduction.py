"""Gradient reduction, overlapped with backward: a bucket is reduced as soon as its last gradient is ready.

    backward    layer 3       layer 2       layer 1         the end
    gradients   [bucket 0 fills][bucket 1 fills ][bucket 2 ..
    ranks                      reduce-scatter 0 ][ 1        ][ 2

At most two buckets hold unreduced gradients: one fills, one is reduced. All ranks reduce in the same order, whichever
parameters each used.

With ``replicas`` (HSDP): a reduce-scatter inside of a node, then an all-reduce of 1/p of the gradients across nodes.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..rules import stated
from ..torch_internals import before_backward_ends

a_dtype = stated(
    "a floating-point dtype, or None",
    lambda given: given is None or (isinstance(given, torch.dtype) and given.is_floating_point),
)


class Reduction:
    """Of ``buckets``, in the order in which backward fills them. Calls ``filled(bucket)`` when its last gradient is
    ready, and ``reduced(bucket)`` when ``bucket.grad`` is.
    """

    def __init__(self, buckets, filled, reduced):
        self.buckets, self.filled, self.reduced = buckets, filled, reduced
        self.bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        self.synchronize, self.ending = True, []  # called at the end of each backward
        self.reset()
        for parameter in self.bucket_of:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def reset(self):
        self.started, self.in_backward, self.under_way = 0, False, []
        for bucket in self.buckets:
            bucket.missing = set(bucket.parameters)

    @contextmanager
    def no_sync(self):
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before

    # Backward.

    def backward_goes_on(self):
        if not self.in_backward:
            self.in_backward = True
            before_backward_ends(self._backward_ends)

    def _gradient_is_ready(self, parameter):
        self.backward_goes_on()
        bucket = self.bucket_of[parameter]
        bucket.accumulate_grad(parameter)
        if not bucket.missing:
            self.filled(bucket)
            while self.synchronize and self._next_is_full():
                self._start_next()

    def _next_is_full(self):
        return self.started < len(self.buckets) and not self.buckets[self.started].missing

    def _start_next(self):
        self._go_on()  # those before: so that their memory is freed
        bucket = self.buckets[self.started]
        self.started += 1
        self._advance(bucket, bucket.reduction())

    def _go_on(self):
        under_way, self.under_way = self.under_way, []
        for bucket, parts in under_way:
            self._advance(bucket, parts)

    def _advance(self, bucket, parts):
        """Start the next collective of this bucket; after the last one, the mean is ready."""
        try:
            next(parts)
        except StopIteration:
            self.reduced(bucket)
        else:
            self.under_way.append((bucket, parts))

    def _backward_ends(self):
        """Reduce buckets that are not full, too: their unused parameters may be used on other ranks."""
        try:
            while self.synchronize and self.started < len(self.buckets):
                self._start_next()
            while self.under_way:
                self._go_on()
        finally:
            self.reset()
            for end in self.ending:
                end()

    def check_done(self, name):
        """Raises ``RuntimeError`` if gradients for a step are missing."""
        if any(bucket.grad is None or bucket.pending for bucket in self.buckets):
            raise RuntimeError(
                f"{name}: gradients are missing. Call backward before step, and the last backward "
                f"outside of no_sync (rank {dist.get_rank()})"
            )
