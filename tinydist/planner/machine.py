"""Time of each operator on a cluster: at measured efficiency, or as on the simulated clock.

    Measured(cluster)     matmuls by tiles and waves, memory and links at measured efficiency (efficiency.py)
    Clock(cluster)        rooflines and rings, by hardware.costs: what a run on simulated ranks takes on that cluster

Both know links and devices by hardware.
"""

from dataclasses import dataclass
from functools import cached_property, singledispatchmethod
from math import prod

from ..hardware import Cluster
from ..hardware.costs import kernel_time, ring_all_gather, ring_reduce_scatter
from ..hardware.lookup import look_up
from ..rules import validate
from .efficiency import DEVICES, Efficiency
from .operators import CollectiveOp, Flash, Matmul, MemoryOp, OverlapOp


@dataclass(frozen=True)
class Group:
    """Ranks that communicate, and how many of them are in one node."""

    ranks: int
    per_node: int

    @classmethod
    def along(cls, axis, stride, cluster):
        """Of an axis whose neighbors are ``stride`` ranks apart."""
        return cls(axis, max(1, min(axis, cluster.devices_per_node // stride)))

    @property
    def nodes(self):
        return -(-self.ranks // self.per_node)


@validate(cluster=Cluster, dtype=str)
@dataclass(frozen=True)
class Machine:
    cluster: Cluster
    dtype: str = "bfloat16"

    @singledispatchmethod
    def seconds(self, operator, group):
        """Of one operator on a rank of the tensor group."""

    @seconds.register
    def _(self, operator: Matmul, group):
        return self.product(*operator)

    @seconds.register
    def _(self, operator: MemoryOp, group):
        return self.memory(operator.nbytes)

    @seconds.register
    def _(self, operator: Flash, group):
        return self.flash(operator)

    @seconds.register
    def _(self, operator: CollectiveOp, group):
        return self.collective(operator.what, operator.nbytes, group)

    @seconds.register
    def _(self, operator: OverlapOp, group):
        """Overlapped, the matmul is slower."""
        sent, product = self.seconds(operator.sent, group), self.seconds(operator.product, group)
        return max(sent, product + self.contention * sent)

    def in_turns(self, operator, group):
        """Of what could be meanwhile, if the program waits."""
        return self.seconds(operator.sent, group) + self.seconds(operator.product, group)

    def collective(self, what, nbytes, group):
        if what == "all-reduce":
            return self.collective("reduce-scatter", nbytes, group) + self.collective("all-gather", nbytes, group)
        return self.half(what, nbytes, group) if group.ranks > 1 else 0.0


@validate(cluster=Cluster, dtype=str, efficiency=Efficiency)
@dataclass(frozen=True)
class Measured(Machine):
    efficiency: Efficiency | None = None  # None: the device's

    def __post_init__(self):
        name = self.cluster.device.name.split()[0]
        object.__setattr__(self, "efficiency", self.efficiency or look_up("efficiency", DEVICES, name))

    @property
    def contention(self):
        return self.efficiency.contention

    @property
    def gap(self):
        return self.efficiency.gap

    @cached_property
    def bandwidth(self):
        return self.efficiency.memory * self.cluster.device.memory_bandwidth

    @cached_property
    def rate(self):
        return self.efficiency.tiles.rate_within(self.efficiency.matmul, self.bandwidth)

    def product(self, batch, rows, columns, inner):
        """By tiles; or as long as its operands take to be read and written."""
        computing = self.efficiency.tiles.seconds((batch, rows, columns, inner), self.rate, self.bandwidth)
        touched = 2 * batch * (rows * inner + inner * columns + rows * columns)
        return self.efficiency.beside * max(computing, touched / self.bandwidth)

    def memory(self, nbytes):
        return nbytes / self.bandwidth

    def flash(self, operator):
        return operator.flops / 2 / (self.efficiency.flash * self.cluster.device.peak_of(self.dtype))

    def half(self, what, nbytes, group):
        """A ring through all ranks, at the pace of its slowest wire: the ranks of a node share its cards."""
        step, pace = self.efficiency.step, self.efficiency.wire * self.cluster.intra_node.bandwidth
        if group.nodes > 1:
            cards = self.cluster.cards * group.per_node / self.cluster.devices_per_node
            step = self.efficiency.far_step
            pace = min(pace, cards * self.efficiency.far_wire * self.cluster.inter_node.bandwidth)
        return (group.ranks - 1) * (step + nbytes / group.ranks / pace)

    def message(self, nbytes, across):
        """From a stage to the next, as all ranks of the node send at once."""
        e = self.efficiency
        if across:
            return e.far_step + nbytes / (e.far_wire * self.cluster.inter_node_shared.bandwidth)
        return e.step + nbytes / (e.wire * self.cluster.intra_node.bandwidth)


class Clock(Machine):
    contention = gap = 0.0

    def product(self, batch, rows, columns, inner):
        touched = 2 * batch * (rows * inner + inner * columns + rows * columns)
        product = batch, rows, columns, inner
        return kernel_time(self.cluster.device, 2 * prod(product), touched, self.dtype, product)

    def memory(self, nbytes):
        return nbytes / self.cluster.device.memory_bandwidth

    def flash(self, operator):
        return operator.flops / self.cluster.device.peak_of(self.dtype)

    def half(self, what, nbytes, group):
        near = ring_all_gather(nbytes, group.per_node, self.cluster.intra_node)
        return near + ring_reduce_scatter(nbytes / group.per_node, group.nodes, self.cluster.inter_node)

    def message(self, nbytes, across):
        link = self.cluster.inter_node if across else self.cluster.intra_node
        return link.latency + nbytes / link.bandwidth
