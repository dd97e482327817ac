"""Offload: the device keeps what it computes with; the rest has another home (homes.py), and the step is taken there.

    bytes a parameter   on the device          at home: host memory, or a disk       that cross, in a step
    Offload             weights 2              (2 gradient | 4 master | 8)/p         (2 to the host, 2 to the device)/p
    Infinity            the units that run     (2 weight | 2 | 4 | 8)/p              (2 to the host, 4 to the device)/p

The gradient of a shard goes home as soon as it is reduced; the new weights come back after the step (Offload), or when
the unit is gathered (Infinity: twice a step). Each rank moves its own shard over its own link, so the links of all
ranks work together. The results are those of stages 2 and 3.

Sources: Ren et al., ZeRO-Offload, 2021; Rajbhandari et al., ZeRO-Infinity, 2021, section 5.
"""

from functools import cached_property, partial

import torch
import torch.distributed as dist

from ..simulator.memory import purpose
from ..simulator.torch_internals import unobserved
from .gradients import Gradients
from .homes import Host
from .optimizer_states import UNSCALED, states_of
from .parameters import Parameters, ShardedParameters
from .shards import FlatParameters, as_precise


class AwayStates(FlatParameters):
    """A row whose master weights, optimizer states and reduced gradients are at ``home``."""

    def __init__(self, parameters, group=None, home=None):
        self.home = home
        super().__init__(parameters, group)

    @cached_property
    def master(self):
        kept = self.home.keep(self.mine)
        with unobserved():
            return self.put_away(as_precise(kept))

    def put_away(self, tensor):
        self.home.put_away(tensor)
        return tensor

    def add(self, mean):
        kept = self.home.keep(mean)
        with unobserved():
            super().add(kept)

    def also_stepped(self):
        """What is at home besides master and states, and changes in a step."""
        return []

    def prepare(self):
        """At home, after the step: the new weights, to be brought once the step is known to be good."""
        self.new = self.master.to(self.mine.dtype, copy=True)

    def round(self):
        self.home.bring(self.mine, self.new)
        self.new = None


class AwayParameters(AwayStates, ShardedParameters):
    """A row of which no part is on the device while it is not whole."""

    def _own(self):
        return self.put_away(self.home.keep(FlatParameters._own(self)))

    @cached_property
    def master(self):
        with self.home.at_work(lambda: [self.mine], changed=False):
            master = self.mine.to(as_precise(self.mine).dtype, copy=True)
        return self.put_away(master)

    def start_gather(self):
        if not self.is_whole:
            self.whole.untyped_storage().resize_(self.nbytes)
            with purpose("parameters"):
                shard = self.whole.new_empty(self.mine.shape)
            with self.home.at_work(lambda: [self.mine], changed=False):
                self.home.bring(shard, self.mine)
            work = dist.all_gather_single(self.whole, shard, group=self.group, async_op=True)
            self.is_whole, self.arrive = True, work.wait

    def show_shard(self):
        for parameter in self.parameters:
            parameter.data = self.whole.new_empty(0)

    def also_stepped(self):
        return [self.mine]

    def prepare(self):
        self.mine.copy_(self.master)

    def round(self):
        """It is done, at home."""


class _Away:
    """What both stages do in another way: the step."""

    row = None

    def __init__(self, module, *arguments, home=None, **options):
        self.home = home or Host()
        self.flat_parameters = partial(self.row, home=self.home)
        super().__init__(module, *arguments, **options)

    def _vectors(self, flat):
        state = self.optimizer.state.get(flat.master, {}).values()
        return [flat.master, *(v for v in state if v.shape == flat.master.shape), *flat.also_stepped()]

    def _square_of_the_own_norm(self):
        with unobserved():
            kept = super()._square_of_the_own_norm()
        square = torch.zeros((), device=self.flats[0].whole.device)
        self.home.bring(square, kept)
        return square

    @torch.no_grad()
    def step(self):
        """All rows are stepped on at home; then, if that went well on all ranks, everybody gets the new weights."""
        self._collect_once()
        if self.gradient_factor is not UNSCALED:
            self.gradient_factor = self.home.keep(self.gradient_factor)
        self._all_or_nothing(self._step_on, self.flats)
        for end in [self._publish(flat) for flat in self.flats]:
            end()
        self._has_stepped()

    def _all_or_nothing(self, change, flats):
        """``change(flat)`` for each of ``flats``; if it fails, states are as before."""
        state = self.optimizer.state
        before = {
            master: {key: _copy_of_a_number(value) for key, value in kept.items()} for master, kept in state.items()
        }
        try:
            with self.home.all_or_nothing(self.group):
                for flat in flats:
                    change(flat)
        except BaseException:
            state.clear()
            state.update(before)
            for flat in self.flats:
                flat.master.grad = flat.new = None
            raise

    def _step_on(self, flat):
        with self.home.at_work(lambda: self._vectors(flat)):
            super()._step_on(flat)
            flat.prepare()

    # What is saved and loaded (checkpoint.py).

    def kept(self, row):
        if row not in self.all_flats:
            return super().kept(row)
        tensors = self._vectors(row) if row in self.flats else [row.mine]
        with self.home.at_work(lambda: tensors, changed=False):
            vectors, scalars = super().kept(row)
            return {key: vector.clone() for key, vector in vectors.items()}, scalars

    @torch.no_grad()
    def restore(self, loaded):
        away = [row for row in loaded if row in self.all_flats]
        self._all_or_nothing(lambda flat: self._restore(flat, *loaded[flat]), away)
        for flat in away:
            if flat in self.group_of:
                self._publish(flat)()
            else:
                flat.free()
        super().restore({row: kept for row, kept in loaded.items() if row not in away})

    def _restore(self, flat, vectors, scalars):
        changed = flat.also_stepped()
        if flat in self.group_of:
            changed = [flat.master, *changed]
            for tensor in set(self._vectors(flat)) - set(changed):
                self.home.drop(tensor)
            states = states_of(vectors, flat.master.dtype)
            kept = {key: flat.put_away(self.home.keep(vector)) for key, vector in states.items()}
            self.optimizer.state[flat.master] = kept | scalars
        with self.home.at_work(lambda: changed):
            changed[0].copy_(vectors["weight"])
            if flat in self.group_of:
                flat.prepare()


class Offload(_Away, Gradients):
    """Stage 2 with optimizer states and gradients at ``home``: a ``Host()``, or a ``Disk(folder)``. ZeRO-Offload."""

    row = AwayStates


class Infinity(_Away, Parameters):
    """Stage 3 with everything at ``home`` but the units that run. ZeRO-Infinity."""

    row = AwayParameters


def _copy_of_a_number(value):
    """Counts of steps are written in place; vectors are at home, which remembers them itself."""
    return value.clone() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
