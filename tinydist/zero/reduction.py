"""When gradients are reduced: a bucket as soon as its last gradient is there, while backward goes on.

    backward    layer 3       layer 2       layer 1         the end
    gradients   [bucket 0 fills][bucket 1 fills ][bucket 2 ..
    ranks                      reduce-scatter 0 ][ 1        ][ 2

A bucket that fills and one under way: no more than two are between backward and their mean. All ranks reduce in the
same order, whatever takes part in the loss of each.

With ``replicas`` (HSDP) the mean of the ranks that share a model is then averaged over those which have another copy:
a reduce-scatter inside of a node, and an all-reduce of 1/p of it across.
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
    """Of ``buckets``, in the order in which backward fills them. ``filled(bucket)`` is called when the last gradient is
    there, ``reduced(bucket)`` when ``bucket.grad`` is.
    """

    def __init__(self, buckets, filled, reduced):
        self.buckets, self.filled, self.reduced = buckets, filled, reduced
        self.bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        self.synchronize, self.ending = True, []  # callables, for the end of each backward
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
        bucket.take(parameter)
        if not bucket.missing:
            self.filled(bucket)
            while self.synchronize and self._next_is_full():
                self._start_next()

    def _next_is_full(self):
        return self.started < len(self.buckets) and not self.buckets[self.started].missing

    def _start_next(self):
        self._go_on()  # those before: so that their memory is free
        bucket = self.buckets[self.started]
        self.started += 1
        self._advance(bucket, bucket.reduction())

    def _go_on(self):
        under_way, self.under_way = self.under_way, []
        for bucket, parts in under_way:
            self._advance(bucket, parts)

    def _advance(self, bucket, parts):
        """The next of them begins. If there is none, the mean is there."""
        try:
            next(parts)
        except StopIteration:
            self.reduced(bucket)
        else:
            self.under_way.append((bucket, parts))

    def _backward_ends(self):
        """Buckets that are not full have parameters that took no part: on this rank, but who knows of others."""
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
        """Is all there to step on?"""
        if any(bucket.grad is None or bucket.pending for bucket in self.buckets):
            raise RuntimeError(
                f"{name}: gradients to step on are missing. Call backward first, and the last one before a step "
                f"outside of no_sync (rank {dist.get_rank()})"
            )
