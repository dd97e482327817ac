"""Seconds for what operators.py lists, on a cluster: as programs get it, or as the simulated clock has it.

Measured(cluster)     products by tiles and waves, memory and wires at the parts that were measured (efficiency.py)
Clock(cluster)        rooflines and rings, by hardware.costs: what a run on simulated ranks takes on that cluster
"""

from dataclasses import dataclass
from functools import cached_property, singledispatchmethod
from math import ceil

from ..hardware import Cluster
from ..hardware.costs import ring_all_gather, ring_reduce_scatter
from ..rules import takes
from . import efficiency
from .operators import Flash, Meanwhile, Memory, Product, Sent


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


@takes(cluster=Cluster, dtype=str)
@dataclass(frozen=True)
class Machine:
    cluster: Cluster
    dtype: str = "bfloat16"

    @singledispatchmethod
    def seconds(self, operator, group):
        """Of one operator on a rank of the tensor group."""

    @seconds.register
    def _(self, operator: Product, group):
        return self.product(*operator)

    @seconds.register
    def _(self, operator: Memory, group):
        return self.memory(operator.nbytes)

    @seconds.register
    def _(self, operator: Flash, group):
        return self.flash(operator)

    @seconds.register
    def _(self, operator: Sent, group):
        return self.collective(operator.what, operator.nbytes, group)

    @seconds.register
    def _(self, operator: Meanwhile, group):
        sent, product = self.seconds(operator.sent, group), self.seconds(operator.product, group)
        return product + max(0.0, sent - self.hidden * product)

    def collective(self, what, nbytes, group):
        if what == "all-reduce":
            return self.collective("reduce-scatter", nbytes, group) + self.collective("all-gather", nbytes, group)
        return self.half(what, nbytes, group) if group.ranks > 1 else 0.0


class Measured(Machine):
    hidden = efficiency.HIDDEN

    @property
    def name(self):
        return self.cluster.device.name.split()[0]

    @cached_property
    def bandwidth(self):
        return efficiency.MEMORY * self.cluster.device.memory_bandwidth

    @cached_property
    def rate(self):
        """FLOP/s of all multiprocessors within their tiles: that with which the best product takes what was measured."""
        best, (M, N, K), _ = efficiency.BEST[self.name]
        waves = self.waves(1, M, N)
        return waves * self.wave_flops(K) / (2 * M * N * K / best - waves * self.wave_bytes / self.bandwidth)

    def waves(self, batch, rows, columns):
        tiles = min(ceil(rows / m) * ceil(columns / n) for m, n in (efficiency.TILE, efficiency.TILE[::-1]))
        return ceil(batch * tiles / efficiency.BEST[self.name][2])

    def wave_flops(self, inner):
        m, n = efficiency.TILE
        return 2 * m * n * inner * efficiency.BEST[self.name][2]

    @cached_property
    def wave_bytes(self):
        m, n = efficiency.TILE
        return 2 * m * n * efficiency.BEST[self.name][2]

    def product(self, batch, rows, columns, inner):
        """By tiles; or as long as its operands take to be read and written."""
        waves = self.waves(batch, rows, columns)
        tiles = waves * (self.wave_flops(inner) / self.rate + self.wave_bytes / self.bandwidth)
        touched = 2 * batch * (rows * inner + inner * columns + rows * columns)
        return max(tiles, touched / self.bandwidth)

    def memory(self, nbytes):
        return nbytes / self.bandwidth

    def flash(self, operator):
        return operator.flops / 2 / (efficiency.FLASH[self.name] * self.cluster.device.peak_of(self.dtype))

    def half(self, what, nbytes, group):
        """A ring through all ranks, whose pace is that of its slowest wire: those of one node share its cards."""
        (step, part), (far_step, far_part) = efficiency.INSIDE[self.name], efficiency.BETWEEN
        pace = part * self.cluster.inside.bandwidth
        if group.nodes > 1:
            cards = self.cluster.cards * group.per_node / self.cluster.devices_per_node
            step, pace = far_step, min(pace, cards * far_part * self.cluster.between.bandwidth)
        return (group.ranks - 1) * (step + nbytes / group.ranks / pace)

    def message(self, nbytes, across):
        """From a stage to the next: with the other ranks of its node at once."""
        (step, part), (far_step, far_part) = efficiency.INSIDE[self.name], efficiency.BETWEEN
        if across:
            return far_step + nbytes / (far_part * self.cluster.between_all.bandwidth)
        return step + nbytes / (part * self.cluster.inside.bandwidth)


class Clock(Machine):
    hidden = 1.0

    def product(self, batch, rows, columns, inner):
        touched = 2 * batch * (rows * inner + inner * columns + rows * columns)
        flops = 2 * batch * rows * columns * inner
        return max(flops / self.cluster.device.peak_of(self.dtype), self.memory(touched))

    def memory(self, nbytes):
        return nbytes / self.cluster.device.memory_bandwidth

    def flash(self, operator):
        return operator.flops / self.cluster.device.peak_of(self.dtype)

    def half(self, what, nbytes, group):
        near = ring_all_gather(nbytes, group.per_node, self.cluster.inside)
        return near + ring_reduce_scatter(nbytes / group.per_node, group.nodes, self.cluster.between)

    def message(self, nbytes, across):
        link = self.cluster.between if across else self.cluster.inside
        return link.latency + nbytes / link.bandwidth
