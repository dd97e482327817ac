"""Offload: the device keeps what it computes with; the rest has another home (homes.py), and the step is taken there.

    bytes a parameter   on the device          at home: host memory, or a disk       that cross, in a step
    Offload             weights 2              (2 gradient | 4 master | 8)/p         (2 to the host, 2 to the device)/p
    Infinity            the units that run     (2 weight | 2 | 4 | 8)/p              (2 to the host, 4 to the device)/p

The gradient of a shard goes home as soon as it is reduced; the new weights come back after the step (Offload), or when
the unit is gathered (Infinity: twice a step). Each rank moves its own shard over its own link, so the links of all
ranks work together. The results are those of stages 2 and 3.

Sources: Ren et al., ZeRO-Offload, 2021; Rajbhandari et al., ZeRO-Infinity, 2021, section 5.
"""

from functools import cached_property

import torch

from ..simulator.torch_internals import unobserved
from .buckets import Bucket
from .gradients import Gradients
from .homes import Host
from .memory import own_memory
from .optimizer_states import states_of
from .parameters import Parameters
from .shards import as_precise


class AwayBucket(Bucket):
    """Master weights, optimizer states and reduced gradients are at ``home``; if it is ``resharded``, its own part of
    the parameters, too, and no part is on the device while it is not whole.
    """

    at_home = False  # is the own part of the parameters there?

    def __init__(self, *arguments, home, **how):
        self.home = home
        super().__init__(*arguments, **how)
        if self.resharded:
            self.mine, self.at_home = self.put_away(self.home.keep(self.mine)), True
            self.show()

    def fill(self, parameter, values):
        if not self.at_home:
            return super().fill(parameter, values)
        start, place, size = self.segments[parameter]
        kept = self.home.keep(values.reshape(-1)[start : start + size])
        with self.home.at_work(lambda: [self.mine]):
            self.mine[place : place + size] = kept

    @cached_property
    def master(self):
        if not self.resharded:
            kept = self.home.keep(self.mine)
            with unobserved():
                return self.put_away(as_precise(kept))
        with self.home.at_work(lambda: [self.mine], changed=False):
            master = self.mine.to(as_precise(self.mine).dtype, copy=True)
        return self.put_away(master)

    def put_away(self, tensor):
        self.home.put_away(tensor)
        return tensor

    def own_part(self):
        if not self.resharded:
            return self.mine
        shard = own_memory(self, "parameters", self.dtype)
        with self.home.at_work(lambda: [self.mine], changed=False):
            self.home.bring(shard, self.mine)
        return shard

    def _shard_of(self, parameter):
        return self.whole.new_empty(0) if self.at_home else super()._shard_of(parameter)

    def own_copy(self, grad):
        """It is at home already, and not in ``gradients``."""
        return grad

    def add(self, mean):
        kept = self.home.keep(mean)
        with unobserved():
            super().add(kept)

    def also_stepped(self):
        """What is at home besides master and states, and changes in a step."""
        return [self.mine] if self.resharded else []

    def prepare(self):
        """At home, after the step: the new weights, to be brought once the step is known to be good."""
        if self.resharded:
            self.mine.copy_(self.master)
        else:
            self.new = self.master.to(self.mine.dtype, copy=True)

    def round(self):
        if not self.resharded:
            self.home.bring(self.mine, self.new)
            self.new = None


class _Away:
    """What both stages do in another way: the step."""

    def __init__(self, module, *arguments, home=None, **options):
        self.home = home or Host()
        super().__init__(module, *arguments, **options)

    def _bucket(self, parameters):
        return AwayBucket(parameters, home=self.home, resharded=self.resharded, **self.how)

    def _vectors(self, bucket):
        state = self.optimizer.state.get(bucket.master, {}).values()
        return [bucket.master, *(v for v in state if v.shape == bucket.master.shape), *bucket.also_stepped()]

    @property
    def param_groups(self):
        """Ranks that ask one another do it on the device of the first, which is not at home."""
        (group,) = super().param_groups
        return [{"params": [torch.empty(0, device=self.buckets[0].device), *group["params"]]}]

    def _square_of_the_own_norm(self):
        with unobserved():
            kept = super()._square_of_the_own_norm()
        square = torch.zeros((), device=self.buckets[0].device)
        self.home.bring(square, kept)
        return square

    def _multiply(self, factor):
        if isinstance(factor, torch.Tensor):
            factor = self.home.keep(factor)
        with unobserved():
            super()._multiply(factor)

    def _step_on(self, buckets):
        """At home, one after another; if that went well on all ranks, everybody gets the new weights."""
        if self.gradient_factor != 1.0:
            self._multiply(self.gradient_factor)
            self.gradient_factor = 1.0
        self._all_or_nothing(self._step_on_one, buckets)

    def _step_on_one(self, bucket):
        with self.home.at_work(lambda: self._vectors(bucket)):
            super()._step_on([bucket])
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

    # What is saved and loaded (checkpoint.py).

    def kept(self, row):
        if row not in self.all_buckets:
            return super().kept(row)
        tensors = self._vectors(row) if row in self.buckets else [row.mine]
        with self.home.at_work(lambda: tensors, changed=False):
            vectors, scalars = super().kept(row)
            return {key: vector.clone() for key, vector in vectors.items()}, scalars

    @torch.no_grad()
    def restore(self, loaded):
        away = [row for row in loaded if row in self.all_buckets]
        self._all_or_nothing(lambda bucket: self._restore(bucket, *loaded[bucket]), away)
        for bucket in away:
            if bucket in self.group_of:
                bucket.renew()
            else:
                bucket.free()
        super().restore({row: kept for row, kept in loaded.items() if row not in away})

    def _restore(self, bucket, vectors, scalars):
        changed = bucket.also_stepped()
        if bucket in self.group_of:
            changed = [bucket.master, *changed]
            for tensor in set(self._vectors(bucket)) - set(changed):
                self.home.drop(tensor)
            states = states_of(vectors, bucket.master.dtype)
            kept = {key: bucket.put_away(self.home.keep(vector)) for key, vector in states.items()}
            self.optimizer.state[bucket.master] = kept | scalars
        with self.home.at_work(lambda: changed):
            changed[0].copy_(vectors["weight"])
            if bucket in self.group_of:
                bucket.prepare()


class Offload(_Away, Gradients):
    """Stage 2 with optimizer states and gradients at ``home``: a ``Host()``, or a ``Disk(folder)``. ZeRO-Offload."""


class Infinity(_Away, Parameters):
    """Stage 3 with everything at ``home`` but the units that run. ZeRO-Infinity."""


def _copy_of_a_number(value):
    """Counts of steps are written in place; vectors are at home, which remembers them itself."""
    return value.clone() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
