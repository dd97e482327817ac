"""What a rank runs, one after another: the planner's operators.

Matmul(batch, rows, columns, inner)      ``batch`` matmuls [rows, inner] x [inner, columns]
Flash(batch, T, E, products)             attention in one kernel
Block(batch, T, S, E, products, causal)  the same of T queries to a block of S keys, without what the mask hides
MemoryOp(bytes)                          a memory-bound operator, of one kernel or of several
CollectiveOp(what, bytes)                a blocking collective of the tensor-parallel group
OverlapOp(sent, product)                 a collective that can overlap with a matmul
ContextOp(what, bytes, ranks, stride)    a blocking collective of the context-parallel group
ExpertOp(what, bytes, ranks, stride)     the same of the expert-parallel group
Beside(sent, operators)                  a collective of that group, and what runs while it is under way
Ring(own, other, bytes, sums, ...)       blocks of that group, one after another, while the next one is under way
"""

from typing import NamedTuple


class Matmul(NamedTuple):
    batch: int
    rows: int
    columns: int
    inner: int
    fp8: bool = False
    wide: bool = False  # in fp32

    @property
    def flops(self):
        return 2 * self.batch * self.rows * self.columns * self.inner


class Flash(NamedTuple):
    """So many matmuls [T, E] x [E, T], or back, of ``batch`` heads, in one kernel that writes no weights down."""

    batch: int
    tokens: int
    head_dim: float
    products: int
    kernel: str | None = None
    pairs: float = 1.0  # of those that a causal mask leaves

    @property
    def flops(self):
        return 2 * self.products * self.batch * self.tokens**2 * self.head_dim * self.pairs


class Block(NamedTuple):
    batch: int
    tokens: int
    keys: float
    head_dim: int
    products: int
    causal: bool
    kernel: str | None = None

    @property
    def flops(self):
        return 2 * self.products * self.batch * self.tokens * self.keys * self.head_dim / (1 + self.causal)


class MemoryOp(NamedTuple):
    nbytes: float
    part: float = 1.0  # of the bandwidth of a copy
    kernels: int = 1


class CollectiveOp(NamedTuple):
    what: str
    nbytes: float


class OverlapOp(NamedTuple):
    sent: CollectiveOp
    product: Matmul


class ContextOp(NamedTuple):
    what: str
    nbytes: float
    ranks: int
    stride: int  # ranks from one to the next


class ExpertOp(ContextOp):
    pass


class Beside(NamedTuple):
    sent: ExpertOp
    operators: list


class Ring(NamedTuple):
    """Operators of the own block, and of each other one; bytes of a block, and of the sums that follow it."""

    own: list
    other: list
    nbytes: float
    sums: float
    ranks: int
    stride: int

    @property
    def messages(self):
        """Of each step, those under way: sums follow one step behind, and come home after the last."""
        for step in range(self.ranks + bool(self.sums)):
            yield [self.nbytes] * (step + 1 < self.ranks) + [self.sums] * (step > 1 and self.sums > 0)


def launched(operator, ranks):
    """Kernels that the CPU launches for it, in a tensor-parallel group of so many ranks: one rank sends nothing."""
    sent = int(ranks > 1)
    of_experts = getattr(operator, "sent", operator)
    shared = int(isinstance(of_experts, ExpertOp) and of_experts.ranks > 1)
    kernels = {MemoryOp: getattr(operator, "kernels", 1), CollectiveOp: sent, OverlapOp: 1 + sent}
    kernels |= {ExpertOp: shared, Beside: shared}
    return kernels.get(type(operator), 1)
