"""Stage 3: every rank keeps the parameters of its own shard alone, too. This is FSDP.

    stage 2     the parameters are whole, always                              2 + 14/p bytes a parameter
    stage 3     a unit's are whole while it runs                              16/p, and the units that run
                (with gradients in fp32, 18/p)

    forward     gather 1 | 1 runs, gather 2 | free 1, 2 runs, gather 3 | free 2 ...       p.data: whole, then a shard
    backward    gather 3 | 3 runs, gather 2 | free 3, reduce-scatter 3's gradients, 2 runs, gather 1 | ...

A unit is a module that is gathered and freed at once: a block, say. While it runs, the next one is on its way
(``prefetch``), so at most two are whole, and communication hides behind compute.

Bytes sent: 3 (p-1)/p of the parameters: two all-gathers and a reduce-scatter. With ``reshard_after_forward=False``
parameters stay from forward to backward: 2 (p-1)/p, and at the peak all of them are whole. k microbatches of which all
but the last run in ``no_sync``: 2k all-gathers and one reduce-scatter; all gradients are whole meanwhile.

With ``replicas``, parts are those of the ranks of a node, and every node has them all (HSDP): all of this stays inside
of nodes, and across them go only the gradients of shards, all-reduced: 2 (r-1)/r of 1/p of the parameters, for r nodes.
Sources: Rajbhandari et al., ZeRO, 2019, sections 5.3 and 7.2.2; Zhao et al., PyTorch FSDP, 2023.
"""

from functools import cached_property, partial

from torch import nn

from ..rules import each_of, flag, stated, takes
from .gradients import Gradients
from .shards import sorted_by
from .units import Order, in_order, owners, tensors_in

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

    resharded = True

    def __init__(self, module, *arguments, units=(), reshard_after_forward=True, prefetch=True, **options):
        self.module, self.reshard_after_forward, self.prefetch = module, reshard_after_forward, prefetch
        self.units = in_order(self.name, module, units)
        self.order = Order(self.units[1:])
        super().__init__(module, *arguments, **options)
        self.buckets_of = {unit: [] for unit in self.units}
        for bucket in self.all_buckets:
            self.buckets_of[self.owner[bucket.parameters[0]]].append(bucket)
        self.reduction.ending.append(self._free_all)
        for unit in self.units:
            unit.register_forward_pre_hook(self._before_forward)
            unit.register_forward_hook(self._after_forward)

    # Start.

    @cached_property
    def owner(self):
        """Of a parameter, its unit."""
        return owners(self.module, set(self.units))

    def _frozen_and_sharded(self):
        trained = {parameter for bucket in self.buckets for parameter in bucket.parameters}
        return [parameter for parameter in self.owner if parameter not in trained]

    def _lists(self, parameters):
        """A bucket has the parameters of one unit, and one dtype."""
        return sorted_by(lambda each: (self.owner[each], each.dtype, self.apart(each)), parameters)

    # Forward. (In backward, it is that of a checkpoint: nothing is freed, and nothing recorded.)

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
            if self.reshard_after_forward:
                self._free(self.all_buckets if unit is self.module else self.buckets_of[unit])

    def _gather(self, unit):
        for bucket in self.buckets_of[unit]:
            bucket.start_gather()
        for bucket in self.buckets_of[unit]:
            bucket.gather()

    def _prefetch(self, units):
        """The first of them; what it takes to gather the second one is fetched."""
        for unit, prepare in zip(units if self.prefetch else (), ("start_gather", "fetch")):
            for bucket in self.buckets_of[unit]:
                if bucket.missing:  # in backward: its gradients are still to come
                    getattr(bucket, prepare)()

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
