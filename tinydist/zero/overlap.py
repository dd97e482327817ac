"""Communication that overlaps with compute: gradients are reduced during backward, and parameters gathered in forward.

``Reduction``: a bucket is reduced as soon as its last gradient is ready.

    backward    layer 3       layer 2       layer 1         the end
    gradients   [bucket 0 fills][bucket 1 fills ][bucket 2 ..
    ranks                      reduce-scatter 0 ][ 1        ][ 2

At most two buckets hold unreduced gradients: one fills, one is reduced. All ranks reduce in the same order, whichever
parameters each used.

With ``replicas`` (HSDP): a reduce-scatter inside of a node, then an all-reduce of 1/p of the gradients across nodes.

``ForwardGather``: the all-gather of stages 1 and 2 in the next forward, instead of right after the step.

    after the step       step | gather 1 | gather 2 | gather 3 | layer 1, 2, 3 ...
    overlapped           step | gather 1 | layer 1   | layer 2  | layer 3 ...
                                           gather 2   gather 3

A layer waits for its own bucket alone, and starts the gather of the one after the next: at most two are in progress.
Parameters of a module that forward does not call (``self.position.weight[:T]``) are waited for by the module around it.
The same bytes are sent. Megatron-LM: ``--overlap-param-gather``.
"""

from collections import deque
from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..rules import stated
from ..torch_internals import before_backward_ends

a_dtype = stated(
    "a floating-point dtype, or None",
    lambda given: given is None or (isinstance(given, torch.dtype) and given.is_floating_point),
)

IN_PROGRESS = 2  # gathers


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


class ForwardGather:
    """Of ``buckets``, in the order in which forward uses them, for ``module``."""

    def __init__(self, module, buckets):
        self.buckets, self.stale, self.called = buckets, deque(), set()
        self.bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        for layer in module.modules():
            layer.register_forward_pre_hook(lambda layer, inputs: self._before(layer))
        module.register_forward_hook(lambda module, inputs, output: self.finish())
        module.register_state_dict_pre_hook(lambda module, prefix, keep_vars: self.finish())

    def start(self):
        """The shards have new weights: gather the first buckets."""
        for bucket in self.buckets:
            bucket.after_step()
            bucket.bind_views()  # to the shards, so that nobody reads what is stale
        self.stale = deque(self.buckets)
        self._start_first()

    def finish(self):
        self._wait_for(set(self.stale))

    def _before(self, layer):
        self.called.add(layer)  # before the first step nothing is stale
        if self.stale:
            self._wait_for(set(self._read_by(layer)))

    def _read_by(self, layer):
        """Buckets of its own parameters, and of those of modules in it that forward has not called."""
        yield from (self.bucket_of[p] for p in layer.parameters(recurse=False) if p in self.bucket_of)
        for child in layer.children():
            if child not in self.called:
                yield from self._read_by(child)

    def _wait_for(self, buckets):
        waiting = buckets.intersection(self.stale)
        while waiting:
            first = self.stale.popleft()
            first.gather()
            self._start_first()
            waiting.discard(first)

    def _start_first(self):
        for bucket in list(self.stale)[:IN_PROGRESS]:
            bucket.start_gather()
