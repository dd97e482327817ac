"""What a rank has to do, in five kinds.

Product(batch, rows, columns, inner)     ``batch`` products [rows, inner] x [inner, columns]
Flash(batch, T, E, products)             attention in one kernel
Memory(bytes)                            reads and writes, and computes nothing to speak of
Sent(what, bytes)                        a collective of the tensor group, which is waited for
Meanwhile(sent, product)                 one that could be on its way while a product is computed
"""

from typing import NamedTuple


class Product(NamedTuple):
    batch: int
    rows: int
    columns: int
    inner: int

    @property
    def flops(self):
        return 2 * self.batch * self.rows * self.columns * self.inner


class Flash(NamedTuple):
    """So many products [T, E] x [E, T], or back, of ``batch`` heads, in one kernel that writes no weights down."""

    batch: int
    tokens: int
    head_dim: int
    products: int

    @property
    def flops(self):
        return 2 * self.products * self.batch * self.tokens**2 * self.head_dim


class Memory(NamedTuple):
    nbytes: float


class Sent(NamedTuple):
    what: str
    nbytes: float


class Meanwhile(NamedTuple):
    sent: Sent
    product: Product
