"""ZeRO stage 3 (FSDP): parameters are sharded, too, and gathered unit by unit when they are needed.

    stage 2     the parameters are always unsharded                           2 + 14/p bytes per parameter
    stage 3     a unit's are unsharded while it runs                          16/p, and the units that run
                (with gradients in fp32, 18/p)

    forward     gather 1 | 1 runs, gather 2 | free 1, 2 runs, gather 3 | free 2 ...       p.data: full, then a shard
    backward    gather 3 | 3 runs, gather 2 | free 3, reduce-scatter 3's gradients, 2 runs, gather 1 | ...

A unit is a module (such as a block) whose parameters are gathered and freed together. While it runs, the next one is
prefetched, so at most two are unsharded, and communication overlaps with compute.

Bytes sent: 3 (p-1)/p of the parameters: two all-gathers and a reduce-scatter. With ``reshard_after_forward=False``
parameters stay from forward to backward: 2 (p-1)/p, and at the peak all of them are unsharded. ``max_reuse_distance``
is between the two: units that backward needs soon again stay, the last ones. k microbatches of which
all but the last run in ``no_sync``: 2k all-gathers and one reduce-scatter; all gradients are unsharded meanwhile.

With ``replicas`` (HSDP), each node has all shards: all of this stays inside of nodes, and only the shards' gradients
are all-reduced across them: 2 (r-1)/r of 1/p of the parameters, for r nodes.
Sources: Rajbhandari et al., ZeRO, 2019, sections 5.3 and 7.2.2; Zhao et al., PyTorch FSDP, 2023; DeepSpeed 0.19.8,
runtime/zero/partitioned_param_coordinator.py, __params_to_release (reuse distance, there of each parameter).
"""

from functools import cached_property, partial
from math import prod

import torch
from torch import nn

from ..rules import amount, each_of, flag, stated, validate
from .sharding import grouped_by
from .zero2 import ZeRO2

a_choice = stated(
    "modules, or a function that says of a module whether it is one",
    lambda units: callable(units) or each_of(nn.Module, 0)(units),
)


@validate(module=nn.Module, units=a_choice, reshard_after_forward=flag, prefetch=flag, max_reuse_distance=amount)
class ZeRO3(ZeRO2):
    """``ZeRO2``, but

    forward     gather a unit before it runs, and prefetch the next one; free it after
    backward    the same, in reverse; a unit is freed when all its gradients are ready
    step        on the shard; no all-gather

    ``units``: modules of ``module``, or a policy: a function that says whether a module is a unit. Parameters outside
    of units belong to ``module``, the outermost unit; shared ones to the innermost unit around all their modules. All
    ranks must run the same units. ``max_reuse_distance``: a unit stays after forward if fewer numbers than these are
    used before its backward; the units behind it count twice. Otherwise a parameter is this rank's shard: read full
    ones by ``checkpoint.gathered``.

    Raises ``ValueError`` for units that are not in the module, or have no ``forward``.
    """

    resharded = True

    def __init__(
        self,
        module,
        *arguments,
        units=(),
        reshard_after_forward=True,
        prefetch=True,
        max_reuse_distance=0,
        **options,
    ):
        self.module, self.prefetch = module, prefetch
        self.units = in_order(self.name, module, units)
        self.order = Order(self.units[1:])
        super().__init__(module, *arguments, **options)
        self.buckets_of = {unit: [] for unit in self.units}
        for bucket in self.all_buckets:
            self.buckets_of[self.owner[bucket.parameters[0]]].append(bucket)
        kept = reused_within(max_reuse_distance, self.buckets_of) if reshard_after_forward else self.units
        self.freed_after = {unit: [] if unit in kept else self.buckets_of[unit] for unit in self.units}
        self.reduction.ending.append(self._free_all)
        for unit in self.units:
            unit.register_forward_pre_hook(self._before_forward)
            unit.register_forward_hook(self._after_forward)

    # Start.

    @cached_property
    def owner(self):
        """Parameter -> its unit."""
        return owners(self.module, set(self.units))

    def _frozen_and_sharded(self):
        trained = {parameter for bucket in self.buckets for parameter in bucket.parameters}
        return [parameter for parameter in self.owner if parameter not in trained]

    def _lists(self, parameters):
        """A bucket has the parameters of one unit, and one dtype."""
        return grouped_by(lambda each: (self.owner[each], each.dtype, self._kind(each)), parameters)

    # Forward. (During backward it is a recomputation: nothing is freed or recorded.)

    def _before_forward(self, unit, inputs):
        self._gather(unit)
        if not self.reduction.in_backward:
            if unit is self.module:
                self.order.forward_begins()
                self._prefetch(self.order.first())
            else:
                self._prefetch(self.order.begins(unit))

    def _after_forward(self, unit, inputs, output):
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(partial(self._before_backward, unit))
        if not self.reduction.in_backward:
            if unit is not self.module:
                self.order.ends(unit)
            for each in self.units if unit is self.module else [unit]:
                self._free(self.freed_after[each])

    def _gather(self, unit):
        for bucket in self.buckets_of[unit]:
            bucket.start_gather()
        for bucket in self.buckets_of[unit]:
            bucket.gather()

    def _prefetch(self, units):
        """Gather the first; fetch the second from its offload device."""
        if not self.prefetch:
            return
        for place, unit in enumerate(units):
            for bucket in self.buckets_of[unit]:
                if bucket.missing:  # in backward: its gradients are still to come
                    bucket.start_gather() if place == 0 else bucket.fetch()

    def _forward_gather(self):
        raise ValueError(
            f"{self.name}: overlap_param_gather is for stages 1 and 2; stage 3 gathers a unit before it runs, "
            "and prefetches the next one"
        )

    # Backward.

    def _before_backward(self, unit, gradient):
        self.reduction.backward_goes_on()
        if any(bucket.missing for bucket in self.buckets_of[unit]):
            self._gather(unit)
        self._prefetch(self.order.last() if unit is self.module else self.order.comes_back_to(unit))

    def _is_full(self, bucket):
        bucket.free()

    def _free_all(self):
        self._free(self.all_buckets)

    def _free(self, buckets):
        for bucket in buckets:
            bucket.free()


# Units: which modules, whose parameters, in which order.


class Order:
    """Execution order of units, for prefetching: definition order until a forward is recorded.

    defined     block 1, block 2, head (without the outermost unit)
    recorded    those that ran in the last forward, in that order: the next one is prefetched
    backward    those that ended in this forward, in reverse
    """

    def __init__(self, units):
        self.expected, self.begun, self.ended = list(units), [], []

    def forward_begins(self):
        self.expected, self.begun, self.ended = self.begun or self.expected, [], []

    def begins(self, unit):
        """The next two units; none, if another one was expected."""
        place = len(self.begun)
        self.begun.append(unit)
        return self.expected[place + 1 : place + 3] if self.expected[place : place + 1] == [unit] else []

    def ends(self, unit):
        self.ended.append(unit)

    def comes_back_to(self, unit):
        """In backward. The next two units."""
        while unit in self.ended and self.ended.pop() is not unit:
            pass
        return self.last()

    def first(self):
        return self.expected[:2]

    def last(self):
        return self.ended[:-3:-1]


def reused_within(distance, buckets_of):
    """Units that backward uses within so many numbers after their forward: it uses the outermost at once."""
    outermost, *inner = buckets_of
    kept, between = {outermost} if distance else set(), 0
    for unit in reversed(inner):
        if between < distance:
            kept.add(unit)
        between += 2 * sum(prod(shape) for bucket in buckets_of[unit] for shape in bucket.shapes)
    return kept


def in_order(name, module, units):
    """``units``, modules or a policy, as a list in the module's order; the outermost is the first."""
    inside = list(module.modules())
    chosen = [each for each in inside if units(each)] if callable(units) else list(units)
    foreign = [type(unit).__name__ for unit in chosen if unit not in inside]
    if foreign:
        raise ValueError(f"{name}: units must be submodules of the module, got {', '.join(foreign)}")
    lists = [type(unit).__name__ for unit in chosen if isinstance(unit, nn.ModuleList | nn.ModuleDict)]
    if lists:
        raise ValueError(f"{name}: {lists[0]} has no forward() and cannot be a unit")
    return [each for each in inside if each is module or each in chosen]


def owners(module, units):
    """Parameter -> the innermost of ``units`` around all modules that use it."""
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
