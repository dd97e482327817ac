"""Stage 3: every rank keeps the parameters of its own shard alone, too. This is FSDP.

    stage 2     the parameters are whole, always                              2 + 14/p bytes a parameter
    stage 3     a unit's are whole while it runs                              16/p, and the units that run

    forward     gather 1 | 1 runs, gather 2 | free 1, 2 runs, gather 3 | free 2 ...       p.data: whole, then a shard
    backward    gather 3 | 3 runs, gather 2 | free 3, reduce-scatter 3's gradients, 2 runs, gather 1 | ...

A unit is a module that is gathered and freed at once: a block, say. While it runs, the next one is on its way
(``prefetch``), so at most two are whole, and communication hides behind compute.

Bytes sent: 3 (p-1)/p of the parameters: two all-gathers and a reduce-scatter. With ``reshard_after_forward=False``
parameters stay from forward to backward: 2 (p-1)/p, and at the peak all of them are whole.
Sources: Rajbhandari et al., ZeRO, 2019, sections 5.3 and 7.2.2; Zhao et al., PyTorch FSDP, 2023.
"""

from functools import partial

import torch
from torch import nn

from ..rules import each_of, flag, stated, takes
from ..simulator.memory import purpose
from .gradients import Gradients
from .shards import FlatParameters


class ShardedParameters(FlatParameters):
    """A row that is whole only between ``gather`` and ``free``; else each parameter is the part this rank owns."""

    def __init__(self, parameters, group=None):
        super().__init__(parameters, group)
        self.nbytes = self.whole.nbytes
        self.is_whole, self.arrive = True, None
        if self.mine.untyped_storage().nbytes():  # else it is on a disk
            self.label_own(self.mine)
        self.free()

    def _own(self):
        with purpose("parameters"):
            return super()._own().clone()  # the row will go

    def start_gather(self):
        if not self.is_whole:
            self.whole.untyped_storage().resize_(self.nbytes)
            self.is_whole, self.arrive = True, super().gather()

    def gather(self):
        """To its end."""
        self.start_gather()
        if self.arrive:
            self.arrive()
            self.arrive = None
            self.show_whole()

    def free(self):
        """Tensors that autograd has saved are views of this memory: they have data again after the next gather."""
        if self.is_whole:
            if self.arrive:
                self.arrive()
            self.is_whole, self.arrive = False, None
            self.whole.untyped_storage().resize_(0)
            self.show_shard()

    def show_shard(self):
        for parameter, segment in self.segments.items():
            parameter.data = self.mine[segment.place : segment.place + segment.size]


a_choice = stated(
    "modules, or a function that says of a module whether it is one",
    lambda units: callable(units) or each_of(nn.Module, 0)(units),
)


@takes(module=nn.Module, units=a_choice, reshard_after_forward=flag, prefetch=flag)
class Parameters(Gradients):
    """Stage 2, but

    forward     gather a unit before it runs, and the next one meanwhile; free it after
    backward    the same, in the other direction; a unit whose gradients are all there is freed
    step        on the shard; no all-gather

    ``units``: modules of ``module``, or a rule: a function that says of a module whether it is one. What is in no unit
    belongs to ``module``, the outermost unit; what several units share, to the innermost one around them. All ranks run
    the same units. Between them a parameter is this rank's part of it, so read whole ones by ``checkpoint.gathered``.

    Raises ``ValueError`` for units that are not in the module, or are never called.
    """

    flat_parameters = ShardedParameters

    def __init__(self, module, *arguments, units=(), reshard_after_forward=True, prefetch=True, **options):
        self.module, self.reshard_after_forward, self.prefetch = module, reshard_after_forward, prefetch
        self.units = self._in_order(units)
        self.owner = owners(module, set(self.units))
        super().__init__(module, *arguments, **options)
        frozen = [parameter for parameter in self.owner if parameter not in self.flat_of]
        self.frozen = [self.flat_parameters(row, self.group) for row in self._rows(frozen)]
        self.flats_of = {unit: [] for unit in self.units}
        for flat in self.all_flats:
            self.flats_of[self.owner[flat.parameters[0]]].append(flat)
        for unit in self.units:
            unit.register_forward_pre_hook(self._before_forward)
            unit.register_forward_hook(self._after_forward)

    # Start.

    def _in_order(self, units):
        """The outermost first, and the others in the module's order, in which they are taken to run."""
        inside = list(self.module.modules())
        chosen = [each for each in inside if units(each)] if callable(units) else list(units)
        foreign = [type(unit).__name__ for unit in chosen if unit not in inside]
        if foreign:
            raise ValueError(f"{self.name}: units must be modules of the module, got {', '.join(foreign)}")
        lists = [type(unit).__name__ for unit in chosen if isinstance(unit, nn.ModuleList | nn.ModuleDict)]
        if lists:
            raise ValueError(f"{self.name}: units are gathered when they are called, and nobody calls a {lists[0]}")
        return [each for each in inside if each is self.module or each in chosen]

    def _rows(self, parameters):
        """A row has the parameters of one unit, and one dtype."""
        rows = {}
        for parameter in parameters:
            rows.setdefault((self.owner[parameter], parameter.dtype), []).append(parameter)
        return list(rows.values())

    @property
    def all_flats(self):
        return [*self.flats, *self.frozen]

    # Forward.

    def _before_forward(self, unit, inputs):
        self._gather(unit)
        place = self.units.index(unit)
        if not self.in_backward and place + 1 < len(self.units):
            self._prefetch(self.units[place + 1])

    def _after_forward(self, unit, inputs, output):
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(partial(self._before_backward, unit))
        if self.reshard_after_forward and not self.in_backward:  # there, forward is a checkpoint's
            for flat in self.all_flats if unit is self.module else self.flats_of[unit]:
                flat.free()

    def _gather(self, unit):
        for flat in self.flats_of[unit]:
            flat.start_gather()
        for flat in self.flats_of[unit]:
            flat.gather()

    def _prefetch(self, unit):
        for flat in self.flats_of[unit] if self.prefetch else ():
            if flat.missing:  # in backward: its gradients are still to come
                flat.start_gather()

    # Backward.

    def _before_backward(self, unit, gradient):
        self._backward_goes_on()
        if any(flat.missing for flat in self.flats_of[unit]):
            self._gather(unit)
        place = self.units.index(unit)
        if place != 1:  # the one before the first is the outermost, which is here since backward began
            self._prefetch(self.units[place - 1])

    def _is_full(self, flat):
        flat.free()
        super()._is_full(flat)

    def _backward_ends(self):
        super()._backward_ends()
        for flat in self.all_flats:
            flat.free()

    # A step.

    def _publish(self, flat):
        """Nobody else needs the new weights before the next gather."""
        flat.free()
        flat.round()
        return lambda: None

    def restore(self, loaded):
        for flat in self.frozen:
            flat.free()
        super().restore(loaded)


def owners(module, units):
    """Parameter -> the innermost of ``units`` that is around all modules which have it."""
    paths = {}

    def visit(inside, path):
        path = (*path, inside) if inside in units else path
        for parameter in inside.parameters(recurse=False):
            known = paths.get(parameter, path)
            paths[parameter] = tuple(a for a, b in zip(known, path) if a is b)
        for child in inside.children():
            visit(child, path)

    visit(module, ())
    return {parameter: path[-1] for parameter, path in paths.items()}


def tensors_in(output):
    if isinstance(output, torch.Tensor):
        return [output]
    inside = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return [tensor for each in inside for tensor in tensors_in(each)]
