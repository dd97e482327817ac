"""Time of each operator on a cluster: as kernels and collectives were measured, or as on the simulated clock.

    Measured(cluster)     hardware.products, attention_kernels and kernels; and what the CPU takes to launch each
    Clock(cluster)        rooflines: what a run on simulated ranks takes on that cluster

Both have collectives by hardware.algorithms, as NCCL chooses them.
"""

from dataclasses import dataclass
from functools import cached_property, singledispatchmethod
from math import prod

from ..hardware import Cluster, collective_time
from ..hardware.attention_kernels import attention_time, torch_kernel
from ..hardware.costs import kernel_time
from ..hardware.kernels import MEMORY, START
from ..hardware.products import RATES, product_rates, product_time
from ..rules import amount, part, positive, validate
from .efficiency import CONTENTION, LAUNCH
from .operators import Block, CollectiveOp, ContextOp, Flash, Matmul, MemoryOp, OverlapOp


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
        return self.kernel(operator.nbytes, operator.part)

    @seconds.register
    def _(self, operator: Flash | Block, group):
        return self.flash(operator)

    @seconds.register
    def _(self, operator: CollectiveOp, group):
        return self.collective(operator.what, operator.nbytes, group)

    @seconds.register
    def _(self, operator: ContextOp, group):
        group = Group.along(operator.ranks, operator.stride, self.cluster)
        return self.collective(operator.what, operator.nbytes, group)

    @seconds.register
    def _(self, operator: OverlapOp, group):
        """Overlapped, the matmul is slower."""
        sent, product = self.seconds(operator.sent, group), self.seconds(operator.product, group)
        return max(sent, product + self.contention * sent)

    def in_turns(self, operator, group):
        """Of what could be meanwhile, if the program waits."""
        return self.seconds(operator.sent, group) + self.seconds(operator.product, group)

    @cached_property
    def timed(self):
        """Seconds of collectives, by what is sent: plans of a search have few that are not alike."""
        return {}

    def collective(self, what, nbytes, group):
        """Of one of several groups side by side."""
        if group.ranks == 1:
            return 0.0
        sent = what, nbytes, group
        if sent not in self.timed:
            self.timed[sent] = self.alone(*sent)
        return self.timed[sent]

    def alone(self, what, nbytes, group):
        """The same, not looked up."""
        sharing = self.sharing(group) if group.nodes > 1 else 1.0
        return collective_time(what.replace("-", "_"), nbytes * sharing, group.ranks, group.per_node, self.cluster)

    def sharing(self, group):
        """How many of the groups side by side send through the same card: that of a rank, or of a ring's first rank."""
        cluster = self.cluster
        near = cluster.devices_per_node / cluster.cards  # devices of a card
        if cluster.ring_through_one_card:
            return min(near, cluster.devices_per_node / group.per_node)
        return max(1.0, near / group.per_node)

    def message(self, nbytes, across):
        """From a stage to the next."""
        link = self.cluster.inter_node if across else self.cluster.intra_node
        return link.latency + nbytes / link.bandwidth


@validate(cluster=Cluster, dtype=str, launch=amount, contention=part)
@validate(slower_products=positive, slower_attention=positive, slower_memory=positive, slower_collectives=positive)
@dataclass(frozen=True)
class Measured(Machine):
    """What if? ``slower_products=1.1``: matmuls take 1.1 times as long as measured; ``launch=0``: from CUDA graphs."""

    launch: float = LAUNCH  # seconds of the CPU for each kernel of an eager program
    contention: float = CONTENTION  # part of its speed that a matmul loses while a collective runs
    slower_products: float = 1.0
    slower_attention: float = 1.0
    slower_memory: float = 1.0
    slower_collectives: float = 1.0

    def __post_init__(self):
        if self.name not in MEMORY:
            known = ", ".join(MEMORY)
            raise ValueError(f"Measured: the efficiency of {self.cluster.device} is not known, only that of {known}")

    @cached_property
    def name(self):
        """Of the device, without the size of its memory: kernels are as fast in all."""
        return self.cluster.device.name.split()[0]

    @cached_property
    def rates(self):
        """Of matmuls; the device may have a power limit."""
        limited = self.cluster.device.name
        return product_rates(limited if limited in RATES else self.name)

    @cached_property
    def limited(self):
        """Part of the rate of other kernels that the power limit leaves."""
        return self.rates.sustained / product_rates(self.name).sustained

    @cached_property
    def bandwidth(self):
        return MEMORY[self.name] * self.cluster.device.memory_bandwidth / self.slower_memory

    def product(self, batch, rows, columns, inner, fp8=False, wide=False):
        if wide:
            return START + by_roofline(self.cluster.device, "float32", 4, batch, rows, columns, inner)
        dtype = "float8" if fp8 else self.dtype
        return self.slower_products * product_time(self.rates, batch, rows, columns, inner, dtype)

    def memory(self, nbytes):
        return nbytes / self.bandwidth

    def kernel(self, nbytes, part):
        return START + self.memory(nbytes) / part

    def collective(self, what, nbytes, group):
        return self.slower_collectives * super().collective(what, nbytes, group)

    def message(self, nbytes, across):
        """As all ranks of the node send at once."""
        cluster = self.cluster
        sharing = cluster.devices_per_node / cluster.cards if across else 1
        return collective_time("send", nbytes * sharing, 2, 1 if across else 2, cluster)

    def flash(self, operator):
        kernel = operator.kernel or torch_kernel(self.name)
        sizes = operator.batch, operator.tokens, int(operator.head_dim)
        how = dict(backward=operator.products > 2, slowed=self.limited / self.slower_attention)
        if isinstance(operator, Block):
            how |= dict(causal=operator.causal, keys=int(operator.keys))
        else:
            how |= dict(keys=max(1, int(operator.tokens * operator.pairs)))
        return attention_time(self.name, kernel, *sizes, **how)


def by_roofline(device, dtype, item, batch, rows, columns, inner):
    """Seconds of matmuls. ``item``: bytes of a number."""
    touched = item * batch * (rows * inner + inner * columns + rows * columns)
    product = batch, rows, columns, inner
    return kernel_time(device, 2 * prod(product), touched, dtype, product)


class Clock(Machine):
    contention = launch = 0.0

    def product(self, batch, rows, columns, inner, fp8=False, wide=False):
        how = ("float32", 4) if wide else (self.dtype, 2)
        return by_roofline(self.cluster.device, *how, batch, rows, columns, inner)

    def memory(self, nbytes):
        return nbytes / self.cluster.device.memory_bandwidth

    def kernel(self, nbytes, part):
        return self.memory(nbytes)

    def flash(self, operator):
        return operator.flops / self.cluster.device.peak_of(self.dtype)
