"""Offload: the device keeps what it computes with; the rest has another home (homes.py), and the step is taken there.

    bytes a parameter   on the device          at home: host memory, or a disk       that cross, in a step
    Offload             weights 2              (2 gradient | 4 master | 8)/p         (2 to the host, 2 to the device)/p
    Infinity            the units that run     (2 weight | 2 | 4 | 8)/p              (2 to the host, 4 to the device)/p

(with gradients in 16 bits; in fp32, 4 instead of 2). The gradient of a shard goes home as soon as it is reduced, while
backward goes on; the new weights come back after the step (Offload), or two units before they run (Infinity: twice a
step). Each rank moves its own shard over its own link, so the links of all ranks work together. The results are those
of stages 2 and 3.

Sources: Ren et al., ZeRO-Offload, 2021; Rajbhandari et al., ZeRO-Infinity, 2021, section 5.
"""

from functools import cached_property

import torch

from ..torch_internals import unobserved
from .buckets import Bucket, State
from .gradients import Gradients
from .homes import Host
from .memory import own_memory
from .parameters import Parameters
from .shards import as_precise
from .stepper import Stepper


class AwayBucket(Bucket):
    """Master weights, optimizer states and reduced gradients are at ``home``; if it is ``resharded``, its own part of
    the parameters, too, and no part is on the device while it is not whole.
    """

    at_home = False  # is the own part of the parameters there?
    shard = bringing = None  # on the device, on its way

    def __init__(self, *arguments, home, **how):
        self.home = home
        super().__init__(*arguments, **how)
        if self.resharded:
            self.mine, self.at_home = self.put_away(self._kept(self.mine)), True
            self.show()

    def _kept(self, tensor):
        kept = self.home.keep(tensor)
        self.home.arrived()
        return kept

    def put_away(self, tensor):
        self.home.put_away(tensor)
        return tensor

    @cached_property
    def master(self):
        if not self.at_home:
            kept = self._kept(self.mine)
            with unobserved():
                return self.put_away(as_precise(kept))
        with self.home.at_work(lambda: [self.mine], changed=False):
            master = self.mine.to(as_precise(self.mine).dtype, copy=True)
        return self.put_away(master)

    # Parameters.

    def fill(self, parameter, values):
        if not self.at_home:
            return super().fill(parameter, values)
        start, place, size = self.segments[parameter]
        kept = self._kept(values.reshape(-1)[start : start + size])
        with self.home.at_work(lambda: [self.mine]):
            self.mine[place : place + size] = kept

    def _shard_of(self, parameter):
        return self.whole.new_empty(0) if self.at_home else super()._shard_of(parameter)

    def fetch(self):
        if self.at_home and self.state is State.SHARDED and self.shard is None:
            self.shard = own_memory(self, "parameters", self.dtype)
            with self.home.at_work(lambda: [self.mine], changed=False):
                self.bringing = self.home.bring(self.shard, self.mine)

    def own_part(self):
        self.fetch()
        own = self.shard if self.at_home else self.mine
        self._forget_shard()
        return own

    def free(self):
        super().free()
        self._forget_shard()

    def _forget_shard(self):
        if self.bringing:
            self.bringing()
        self.shard = self.bringing = None

    # Gradients, and a step.

    def own_copy(self, grad):
        """It is at home already, and not in ``gradients``."""
        return grad

    def add(self, mean):
        kept, before = self.home.keep(mean), self.grad
        if before is not None:
            self.home.arrived()
        with unobserved():
            super().add(kept)

    def stepped(self, states):
        """What changes in a step, at home."""
        return [self.master, *states, *([self.mine] if self.at_home else [])]

    def prepare(self):
        """At home, after the step: the new weights, to be brought once the step is known to be good."""
        if self.at_home:
            self.mine.copy_(self.master)
        else:
            self.new = self.home.room_like(self.mine).copy_(self.master)

    def round(self):
        if not self.at_home:
            self.bringing = self.home.bring(self.mine, self.new)
            self.new = None


class _Away:
    """What both stages have at ``home``, and step on there."""

    def __init__(self, module, *arguments, home=None, **options):
        self.home = home or Host()
        super().__init__(module, *arguments, **options)

    def _bucket(self, parameters):
        return AwayBucket(parameters, home=self.home, resharded=self.resharded, **self.how)

    def _stepper(self):
        return StepperAtHome(self.optimizer, self.buckets, self.home, self.group)


class Offload(_Away, Gradients):
    """Stage 2 with optimizer states and gradients at ``home``: a ``Host()``, or a ``Disk(folder)``. ZeRO-Offload."""


class Infinity(_Away, Parameters):
    """Stage 3 with everything at ``home`` but the units that run. ZeRO-Infinity."""


# The step, there: bucket after bucket, and what it changes is kept on all ranks or on none.


class StepperAtHome(Stepper):
    """One bucket at a time, as a disk reads and writes each."""

    def __init__(self, optimizer, buckets, home, group):
        super().__init__(optimizer, buckets)
        self.home, self.group = home, group

    def _vectors(self, bucket):
        if bucket not in self.buckets:  # frozen
            return [bucket.mine]
        state = self.optimizer.state.get(bucket.master, {}).values()
        return bucket.stepped([value for value in state if value.shape == bucket.master.shape])

    def with_gradients(self):
        """Ranks that ask one another do it on the device of the first, which is not at home."""
        self.home.arrived()
        return [torch.empty(0, device=self.buckets[0].device), *super().with_gradients()]

    def square_of_norm(self):
        self.home.arrived()
        with unobserved():
            kept = super().square_of_norm()
        square = torch.zeros((), device=self.buckets[0].device)
        self.home.bring(square, kept)()
        return square

    def multiply(self, factor):
        if isinstance(factor, torch.Tensor):
            factor = self.home.keep(factor)
        self.home.arrived()
        with unobserved():
            super().multiply(factor)

    def step(self):
        self.home.arrived()
        self._all_or_nothing(self._step_on_one, self.buckets)

    def _step_on_one(self, bucket):
        with self.home.at_work(lambda: self._vectors(bucket)):
            self.step_on([bucket])
            bucket.prepare()

    def _all_or_nothing(self, change, buckets):
        """``change(bucket)`` for each of ``buckets``; if it fails, states are as before."""
        state = self.optimizer.state
        before = {
            master: {key: _copy_of_a_number(value) for key, value in kept.items()} for master, kept in state.items()
        }
        try:
            with self.home.all_or_nothing(self.group):
                for bucket in buckets:
                    change(bucket)
        except BaseException:
            state.clear()
            state.update(before)
            for bucket in self.buckets:
                bucket.master.grad = bucket.new = None
            raise

    # What is saved and loaded.

    def kept(self, bucket):
        """In copies, as the next step changes what is at home."""
        tensors = self._vectors(bucket)
        with self.home.at_work(lambda: tensors, changed=False):
            vectors, scalars = super().kept(bucket)
            return {key: vector.clone() for key, vector in vectors.items()}, scalars

    def restore(self, loaded):
        self._all_or_nothing(lambda bucket: self._restore(bucket, *loaded[bucket]), loaded)

    def _restore(self, bucket, vectors, scalars):
        changed = [bucket.mine]
        if bucket in self.buckets:
            changed = bucket.stepped([])
            for tensor in set(self._vectors(bucket)) - set(changed):
                self.home.drop(tensor)
            kept = {key: self.home.keep(vector) for key, vector in self.states_of(bucket, vectors).items()}
            self.home.arrived()
            self.optimizer.state[bucket.master] = {k: bucket.put_away(v) for k, v in kept.items()} | scalars
        with self.home.at_work(lambda: changed):
            changed[0].copy_(vectors["weight"])
            if bucket in self.buckets:
                bucket.prepare()


def _copy_of_a_number(value):
    """Counts of steps are written in place; vectors are at home, which remembers them itself."""
    return value.clone() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
