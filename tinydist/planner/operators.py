"""Operators and communication of one rank for a block, the embedding and the head, forward and backward.

    Matmul(batch, rows, columns, inner)      ``batch`` matmuls [rows, inner] x [inner, columns]
    Flash(batch, T, E, products)             attention in one kernel
    MemoryOp(bytes)                          a memory-bound operator
    CollectiveOp(what, bytes)                a blocking collective of the tensor-parallel group
    OverlapOp(sent, product)                 a collective that can overlap with a matmul

Fused kernels are as Megatron-LM has them. Scale, mask and softmax are one; bias and GELU; bias, dropout and the sum
with the residual. Otherwise each operator of tinydist.model is one, as on the simulated clock.
"""

from typing import NamedTuple

NUMBER, WIDE, MASK = 2, 4, 1  # bytes: of an activation, of one in fp32, of a dropout's mask


class Matmul(NamedTuple):
    batch: int
    rows: int
    columns: int
    inner: int

    @property
    def flops(self):
        return 2 * self.batch * self.rows * self.columns * self.inner


class Flash(NamedTuple):
    """So many matmuls [T, E] x [E, T], or back, of ``batch`` heads, in one kernel that writes no weights down."""

    batch: int
    tokens: int
    head_dim: int
    products: int

    @property
    def flops(self):
        return 2 * self.products * self.batch * self.tokens**2 * self.head_dim


class MemoryOp(NamedTuple):
    nbytes: float


class CollectiveOp(NamedTuple):
    what: str
    nbytes: float


class OverlapOp(NamedTuple):
    sent: CollectiveOp
    product: Matmul


class Operators:
    """Of ``model``, on each of the t ranks of a tensor group, for a microbatch of b sequences."""

    def __init__(self, model, t=1, b=1, sequence_parallel=None):
        self.model, self.t, self.sequence_parallel = model, t, sequence_parallel
        self.tokens = b * model.tokens
        self.x = self.tokens * model.width * NUMBER  # bytes of what passes between blocks, of all tokens
        self.own = self.x / (t if sequence_parallel else 1)  # of the tokens that this rank has between layers
        self.heads = b * model.heads // t
        keys = max(1, model.kv_heads // t)
        D, F, E = model.width, model.inner // t, model.head_dim
        qkv, mixed, inside = (model.heads // t + 2 * keys) * E, model.heads // t * E, (1 + model.gated) * F
        self.qkv, self.out, self.up, self.down = (qkv, D), (D, mixed), (inside, D), (D, F)  # columns, inner
        self.channels = {"heads": self.tokens * mixed * NUMBER, "qkv": self.tokens * qkv * NUMBER}
        self.inside = self.tokens * F * NUMBER

    # A block.

    def forward(self):
        return [*self.attention_forward(), *self.mlp_forward()]

    def attention_forward(self):
        return [*self.enter(self.qkv), *self.core(), *self.leave(self.out)]

    def mlp_forward(self):
        activation = MemoryOp((2 + self.model.gated) * self.inside)
        return [*self.enter(self.up), activation, *self.leave(self.down)]

    def enter(self, matrix):
        return [MemoryOp(2 * self.own), *self.gathered(), self.product(matrix)]

    def gathered(self):
        """All tokens."""
        return [CollectiveOp("all-gather", self.x), *self.in_order()] if self.sequence_parallel else []

    def leave(self, matrix):
        return [self.product(matrix), *self.in_order(), CollectiveOp(self.summed, self.x), *self.residual()]

    def in_order(self):
        """Tokens by rank, as torch's operators lay them out before they are scattered; by sequence, after they come."""
        return [MemoryOp(2 * self.x)] * (self.sequence_parallel is not None and not self.model.fused)

    @property
    def summed(self):
        return "reduce-scatter" if self.sequence_parallel else "all-reduce"

    def residual(self):
        x, mask = self.own, self.own / NUMBER * MASK
        if self.model.fused:
            return [MemoryOp(3 * x + mask * self.drops)]
        return [MemoryOp(2 * x)] * self.model.biases + [MemoryOp(2 * x + mask)] * self.drops + [MemoryOp(3 * x)]

    @property
    def drops(self):
        return self.model.dropout > 0

    def core(self):
        """Attention itself: from queries, keys and values to what the heads give."""
        T, E, rotated = self.model.tokens, self.model.head_dim, self.rotation()
        if self.model.flash:
            return [*rotated, Flash(self.heads, T, E, 2)]
        scores, mixed = Matmul(self.heads, T, T, E), Matmul(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [MemoryOp(2 * weights + weights / NUMBER * MASK)] * self.drops
        return [*rotated, scores, MemoryOp(2 * weights), *dropout, mixed, MemoryOp(2 * self.channels["heads"])]

    def rotation(self):
        return [MemoryOp(2 * self.channels["qkv"])] * (self.model.positions == "rotary")

    def backward(self):
        activation = MemoryOp((3 + 2 * self.model.gated) * self.inside)
        mlp = [*self.leave_backward(self.down), activation, *self.enter_backward(self.up)]
        core = self.core_backward()
        return [*mlp, *self.leave_backward(self.out), *core, *self.enter_backward(self.qkv)]

    def leave_backward(self, matrix):
        x, mask = self.own, self.own / NUMBER * MASK
        dropout = [MemoryOp(2 * x + mask)] * self.drops + [MemoryOp(x)] * self.model.biases
        added = self.added_up(int(self.model.biases))
        return [*dropout, *added, *self.gathered(), self.of_input(matrix), self.of_weight(matrix)]

    def added_up(self, parameters):
        """Gradients of what sees a rank's own tokens alone, one by one."""
        apart = parameters * (self.sequence_parallel is not None and not self.model.fused)
        return [CollectiveOp("all-reduce", self.model.width * NUMBER)] * apart

    def enter_backward(self, matrix):
        bias = [MemoryOp(self.tokens * matrix[0] * NUMBER)] * self.model.biases
        of_input, again = [self.of_input(matrix)], self.sequence_parallel == "regather"
        if again:
            of_input = [OverlapOp(CollectiveOp("all-gather", self.x), *of_input), *self.in_order()]
        bias = [*bias, *self.added_up(2 if self.model.norm == "layer" else 1)]
        of_weight = OverlapOp(CollectiveOp(self.summed, self.x), self.of_weight(matrix))
        norm, residual = MemoryOp(3 * self.own), MemoryOp(3 * self.own)
        return [*of_input, *self.in_order(), of_weight, *bias, norm, residual]

    def core_backward(self):
        T, E = self.model.tokens, self.model.head_dim
        together = [MemoryOp(2 * self.channels["qkv"])] * (
            1 if self.model.fused else 2
        )  # gradients of queries, keys, values
        if self.model.flash:
            return [Flash(self.heads, T, E, 5), *(together if not self.model.fused else []), *self.rotation()]
        scores, mixed = Matmul(self.heads, T, T, E), Matmul(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [MemoryOp(2 * weights + weights / NUMBER * MASK)] * self.drops
        return [
            MemoryOp(2 * self.channels["heads"]), scores, mixed, *dropout, MemoryOp(3 * weights), mixed, mixed,
            *together, *self.rotation(),
        ]  # fmt: skip

    def recomputed(self, recompute):
        """torch's checkpoint ends as soon as all is there that backward needs: before the last matmul, or dropout."""
        again = {"none": list, "selective": self.core, "full": self.forward}[recompute]()
        if self.model.fused or recompute == "none" or (self.drops and recompute == "full"):
            return again
        if recompute == "full":
            return again[: -len(self.leave(self.down))]
        return again if self.model.flash else again[:-2]

    # Products.

    def product(self, matrix):
        columns, inner = matrix
        return Matmul(1, self.tokens, columns, inner)

    def of_input(self, matrix):
        columns, inner = matrix
        return Matmul(1, self.tokens, inner, columns)

    def of_weight(self, matrix):
        columns, inner = matrix
        return Matmul(1, columns, inner, self.tokens)

    # Both ends.

    def embedding(self):
        """Rows are looked up, zeros elsewhere, summed up over the group, positions added, dropped."""
        summed = [MemoryOp(2 * self.x), CollectiveOp("all-reduce", self.x)] * (self.t > 1)
        return [MemoryOp(2 * self.x), *summed, MemoryOp(3 * self.x), *[MemoryOp(2.5 * self.x)] * self.drops]

    def embedding_backward(self):
        return [*self.gathered(), *[MemoryOp(2.5 * self.x)] * self.drops, MemoryOp(3 * self.x)]

    @property
    def head(self):
        return -(-self.model.vocabulary // self.t), self.model.width

    def loss(self):
        """To fp32, its maximum, less that, the exponentials, their sum, divided by it (looked up, if not fused).

        Ranks tell each other the maximum of each token, the sum, and the target's.
        """
        logits = self.tokens * self.head[0]
        each = [NUMBER + WIDE, 4, 8, 8, 4, 8 if self.model.fused else 4]
        told = [CollectiveOp("all-reduce", self.tokens * WIDE), CollectiveOp("all-reduce", 2 * self.tokens * WIDE)] * (
            self.t > 1
        )
        return [*self.enter(self.head), *[MemoryOp(logits * nbytes) for nbytes in each], *told]

    def loss_backward(self):
        logits = self.tokens * self.head[0]
        each = [8, *([] if self.model.fused else [8, 8, 8]), NUMBER + WIDE]
        return [
            *[MemoryOp(logits * nbytes) for nbytes in each],
            *self.enter_backward(self.head)[:-2],
            MemoryOp(3 * self.own),
        ]
