"""ZeRO-Offload and ZeRO-Infinity: model states on an offload device (host memory or a drive), and the step there.

    bytes per parameter on the device          offloaded                             copied, in a step
    ZeROOffload         weights 2              (2 gradient | 4 master | 8)/p         (2 to the host, 2 to the device)/p
    ZeROInfinity        the units that run     (2 weight | 2 | 4 | 8)/p              (2 to the host, 4 to the device)/p

(with gradients in 16 bits; in fp32, 4 instead of 2). A shard's gradient is offloaded as soon as it is reduced, during
backward; the new weights come back after the step (ZeROOffload), or two units before they run (ZeROInfinity: twice a
step). Each rank copies its own shard over its own link, so all links are used at once. Results equal those of stages 2
and 3.

Sources: Ren et al., ZeRO-Offload, 2021; Rajbhandari et al., ZeRO-Infinity, 2021, section 5.
"""

from functools import cached_property, partial

import torch

from ...torch_internals import unobserved
from ..buckets import BucketState, ShardedBucket
from ..memory import shard_buffer
from ..sharded_step import ShardedStep
from ..sharding import at_least_fp32
from ..zero2 import ZeRO2
from ..zero3 import ZeRO3
from .cpu import CPUOffload


class OffloadedBucket(ShardedBucket):
    """Master weights, optimizer states and reduced gradients are on ``offload_device``; so is the parameter shard
    if the bucket is ``resharded``.
    """

    is_offloaded = False  # the shard of the parameters
    prefetched = wait_for_copy = None  # the shard on the device, and the wait for its copy

    def __init__(self, *arguments, offload_device, **how):
        self.offload_device = offload_device
        super().__init__(*arguments, **how)
        if self.resharded:
            self.shard, self.is_offloaded = self.evict(self._stored(self.shard)), True
            self.bind_views()

    def _stored(self, tensor):
        kept = self.offload_device.store(tensor)
        self.offload_device.synchronize()
        return kept

    def evict(self, tensor):
        self.offload_device.evict(tensor)
        return tensor

    @cached_property
    def master(self):
        if not self.is_offloaded:
            kept = self._stored(self.shard)
            with unobserved():
                return self.evict(at_least_fp32(kept))
        with self.offload_device.in_memory(lambda: [self.shard], changed=False):
            master = self.shard.to(at_least_fp32(self.shard).dtype, copy=True)
        return self.evict(master)

    # Parameters.

    def fill(self, parameter, values):
        if not self.is_offloaded:
            return super().fill(parameter, values)
        start, place, size = self.segments[parameter]
        kept = self._stored(values.reshape(-1)[start : start + size])
        with self.offload_device.in_memory(lambda: [self.shard]):
            self.shard[place : place + size] = kept

    def _shard_of(self, parameter):
        return self.unsharded.new_empty(0) if self.is_offloaded else super()._shard_of(parameter)

    def fetch(self):
        if self.is_offloaded and self.state is BucketState.SHARDED and self.prefetched is None:
            self.prefetched = shard_buffer(self, "parameters", self.dtype)
            with self.offload_device.in_memory(lambda: [self.shard], changed=False):
                self.wait_for_copy = self.offload_device.load(self.prefetched, self.shard)

    def own_part(self):
        self.fetch()
        own = self.prefetched if self.is_offloaded else self.shard
        self._forget_shard()
        return own

    def free(self):
        super().free()
        self._forget_shard()

    def _forget_shard(self):
        if self.wait_for_copy:
            self.wait_for_copy()
        self.prefetched = self.wait_for_copy = None

    # Gradients, and a step.

    def own_copy(self, grad):
        """It is offloaded already, and no view of ``gradients``."""
        return grad

    def add(self, mean):
        kept, before = self.offload_device.store(mean), self.grad
        if before is not None:
            self.offload_device.synchronize()
        with unobserved():
            super().add(kept)

    def changed_in_step(self, states):
        """The offloaded tensors that a step changes."""
        return [self.master, *states, *([self.shard] if self.is_offloaded else [])]

    def cast_on_host(self):
        """On the host, after the step: the new weights, to be copied once all ranks have succeeded."""
        if self.is_offloaded:
            self.shard.copy_(self.master)
        else:
            self.new_shard = self.offload_device.empty_like(self.shard).copy_(self.master)

    def cast_from_master(self):
        if not self.is_offloaded:
            self.wait_for_copy = self.offload_device.load(self.shard, self.new_shard)
            self.new_shard = None


class _Offloaded:
    """Common base of the offloaded stages: buckets and the step on ``offload_device``."""

    def __init__(self, module, *arguments, offload_device=None, **options):
        self.offload_device = offload_device or CPUOffload()
        super().__init__(module, *arguments, **options)

    def _bucket(self, parameters):
        return super()._bucket(parameters, partial(OffloadedBucket, offload_device=self.offload_device))

    def _sharded_step(self):
        return OffloadedStep(self.optimizer, self.buckets, self.offload_device, self.group)


class ZeROOffload(_Offloaded, ZeRO2):
    """ZeRO-Offload: stage 2, optimizer states and gradients on ``offload_device``: ``CPUOffload()`` (the default), or
    ``NVMeOffload(folder)``.
    """


class ZeROInfinity(_Offloaded, ZeRO3):
    """ZeRO-Infinity: stage 3 with everything on ``offload_device``, except the units that run."""


# The step on the host, bucket by bucket: its changes are kept on all ranks or on none.


class OffloadedStep(ShardedStep):
    """Steps bucket by bucket, because a drive reads and writes each one."""

    def __init__(self, optimizer, buckets, offload_device, group):
        super().__init__(optimizer, buckets)
        self.offload_device, self.group = offload_device, group

    def _vectors(self, bucket):
        if bucket not in self.buckets:  # frozen
            return [bucket.shard]
        state = self.optimizer.state.get(bucket.master, {}).values()
        return bucket.changed_in_step([value for value in state if value.shape == bucket.master.shape])

    def with_gradients(self):
        """The first is on the device: loss scalers all-reduce there."""
        self.offload_device.synchronize()
        return [torch.empty(0, device=self.buckets[0].device), *super().with_gradients()]

    def squared_norm(self):
        self.offload_device.synchronize()
        with unobserved():
            kept = super().squared_norm()
        square = torch.zeros((), dtype=kept.dtype, device=self.buckets[0].device)
        self.offload_device.load(square, kept)()
        return square

    def scale_grads(self, factor):
        if isinstance(factor, torch.Tensor):
            factor = self.offload_device.store(factor)
        self.offload_device.synchronize()
        with unobserved():
            super().scale_grads(factor)

    def step(self):
        self.offload_device.synchronize()
        self._all_or_nothing(self._step_on_one, self.buckets)

    def _step_on_one(self, bucket):
        with self.offload_device.in_memory(lambda: self._vectors(bucket)):
            self.step_on([bucket])
            bucket.cast_on_host()

    def _all_or_nothing(self, change, buckets):
        """``change(bucket)`` for each of ``buckets``; if it fails, states are as before."""
        state = self.optimizer.state
        before = {
            master: {key: _copy_of_scalar(value) for key, value in kept.items()} for master, kept in state.items()
        }
        try:
            with self.offload_device.transaction(self.group):
                for bucket in buckets:
                    change(bucket)
        except BaseException:
            state.clear()
            state.update(before)
            for bucket in self.buckets:
                bucket.master.grad = bucket.new_shard = None
            raise

    # Checkpoints.

    def kept(self, bucket):
        """As copies, because the next step modifies the offloaded tensors."""
        tensors = self._vectors(bucket)
        with self.offload_device.in_memory(lambda: tensors, changed=False):
            vectors, scalars = super().kept(bucket)
            return {key: vector.clone() for key, vector in vectors.items()}, scalars

    def restore(self, loaded):
        self._all_or_nothing(lambda bucket: self._restore(bucket, *loaded[bucket]), loaded)

    def _restore(self, bucket, vectors, scalars):
        changed = [bucket.shard]
        if bucket in self.buckets:
            changed = bucket.changed_in_step([])
            for tensor in set(self._vectors(bucket)) - set(changed):
                self.offload_device.discard(tensor)
            kept = {key: self.offload_device.store(vector) for key, vector in self.states_of(bucket, vectors).items()}
            self.offload_device.synchronize()
            self.optimizer.state[bucket.master] = {k: bucket.evict(v) for k, v in kept.items()} | scalars
        with self.offload_device.in_memory(lambda: changed):
            changed[0].copy_(vectors["weight"])
            if bucket in self.buckets:
                bucket.cast_on_host()


def _copy_of_scalar(value):
    """Step counts are written in place; vectors are offloaded, and restored by the device's transaction."""
    return value.clone() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
