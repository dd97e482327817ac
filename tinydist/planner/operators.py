"""What one rank computes and sends for a block, and for both ends of the model: operators, forward and backward.

``fused``: kernels as Megatron-LM has them. Scale, mask and softmax are one; bias and GELU; bias, dropout and the sum
with the residual. Otherwise each operator of tinydist.model is one, as on the simulated clock.
"""

from .work import Flash, Meanwhile, Memory, Product, Sent

NUMBER, WIDE, MASK = 2, 4, 1  # bytes: of an activation, of one in fp32, of a dropout's mask


class Operators:
    """Of ``model``, on each of the t ranks of a tensor group, for a microbatch of b sequences."""

    def __init__(self, model, t=1, b=1, sequence=None, flash=False, fused=True):
        self.model, self.t, self.sequence, self.flash, self.fused = model, t, sequence, flash, fused
        self.tokens = b * model.tokens
        self.x = self.tokens * model.width * NUMBER  # bytes of what passes between blocks, of all tokens
        self.own = self.x / (t if sequence else 1)  # of the tokens that this rank has between layers
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
        activation = Memory((2 + self.model.gated) * self.inside)
        return [*self.enter(self.up), activation, *self.leave(self.down)]

    def enter(self, matrix):
        return [Memory(2 * self.own), *self.gathered(), self.product(matrix)]

    def gathered(self):
        """All tokens."""
        return [Sent("all-gather", self.x), *self.in_order()] if self.sequence else []

    def leave(self, matrix):
        return [self.product(matrix), *self.in_order(), Sent(self.summed, self.x), *self.residual()]

    def in_order(self):
        """Tokens by rank, as torch's operators lay them out before they are scattered; by sequence, after they come."""
        return [Memory(2 * self.x)] * (self.sequence is not None and not self.fused)

    @property
    def summed(self):
        return "reduce-scatter" if self.sequence else "all-reduce"

    def residual(self):
        x, mask = self.own, self.own / NUMBER * MASK
        if self.fused:
            return [Memory(3 * x + mask * self.drops)]
        return [Memory(2 * x)] * self.model.biases + [Memory(2 * x + mask)] * self.drops + [Memory(3 * x)]

    @property
    def drops(self):
        return self.model.dropout > 0

    def core(self):
        """Attention itself: from queries, keys and values to what the heads give."""
        T, E, rotated = self.model.tokens, self.model.head_dim, self.rotation()
        if self.flash:
            return [*rotated, Flash(self.heads, T, E, 2)]
        scores, mixed = Product(self.heads, T, T, E), Product(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [Memory(2 * weights + weights / NUMBER * MASK)] * self.drops
        return [*rotated, scores, Memory(2 * weights), *dropout, mixed, Memory(2 * self.channels["heads"])]

    def rotation(self):
        return [Memory(2 * self.channels["qkv"])] * (self.model.positions == "rotary")

    def backward(self):
        activation = Memory((3 + 2 * self.model.gated) * self.inside)
        mlp = [*self.leave_backward(self.down), activation, *self.enter_backward(self.up)]
        core = self.core_backward()
        return [*mlp, *self.leave_backward(self.out), *core, *self.enter_backward(self.qkv)]

    def leave_backward(self, matrix):
        x, mask = self.own, self.own / NUMBER * MASK
        dropout = [Memory(2 * x + mask)] * self.drops + [Memory(x)] * self.model.biases
        added = self.added_up(int(self.model.biases))
        return [*dropout, *added, *self.gathered(), self.of_input(matrix), self.of_weight(matrix)]

    def added_up(self, parameters):
        """Gradients of what sees a rank's own tokens alone, one by one."""
        apart = parameters * (self.sequence is not None and not self.fused)
        return [Sent("all-reduce", self.model.width * NUMBER)] * apart

    def enter_backward(self, matrix):
        bias = [Memory(self.tokens * matrix[0] * NUMBER)] * self.model.biases
        of_input, again = [self.of_input(matrix)], self.sequence == "regather"
        if again:
            of_input = [Meanwhile(Sent("all-gather", self.x), *of_input), *self.in_order()]
        bias = [*bias, *self.added_up(2 if self.model.norm == "layer" else 1)]
        of_weight = Meanwhile(Sent(self.summed, self.x), self.of_weight(matrix))
        norm, residual = Memory(3 * self.own), Memory(3 * self.own)
        return [*of_input, *self.in_order(), of_weight, *bias, norm, residual]

    def core_backward(self):
        T, E = self.model.tokens, self.model.head_dim
        together = [Memory(2 * self.channels["qkv"])] * (1 if self.fused else 2)  # gradients of queries, keys, values
        if self.flash:
            return [Flash(self.heads, T, E, 5), *(together if not self.fused else []), *self.rotation()]
        scores, mixed = Product(self.heads, T, T, E), Product(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [Memory(2 * weights + weights / NUMBER * MASK)] * self.drops
        return [
            Memory(2 * self.channels["heads"]), scores, mixed, *dropout, Memory(3 * weights), mixed, mixed,
            *together, *self.rotation(),
        ]  # fmt: skip

    def recomputed(self, recompute):
        """torch's checkpoint ends as soon as all is there that backward needs: before the last product, or dropout."""
        again = {"none": list, "selective": self.core, "full": self.forward}[recompute]()
        if self.fused or recompute == "none" or (self.drops and recompute == "full"):
            return again
        if recompute == "full":
            return again[: -len(self.leave(self.down))]
        return again if self.flash else again[:-2]

    # Products.

    def product(self, matrix):
        columns, inner = matrix
        return Product(1, self.tokens, columns, inner)

    def of_input(self, matrix):
        columns, inner = matrix
        return Product(1, self.tokens, inner, columns)

    def of_weight(self, matrix):
        columns, inner = matrix
        return Product(1, columns, inner, self.tokens)

    # Both ends.

    def embedding(self):
        """Rows are looked up, zeros elsewhere, summed up over the group, positions added, dropped."""
        summed = [Memory(2 * self.x), Sent("all-reduce", self.x)] * (self.t > 1)
        return [Memory(2 * self.x), *summed, Memory(3 * self.x), *[Memory(2.5 * self.x)] * self.drops]

    def embedding_backward(self):
        return [*self.gathered(), *[Memory(2.5 * self.x)] * self.drops, Memory(3 * self.x)]

    @property
    def head(self):
        return -(-self.model.vocabulary // self.t), self.model.width

    def loss(self):
        """To fp32, its maximum, less that, the exponentials, their sum, divided by it (looked up, if not fused).

        Ranks tell each other the maximum of each token, the sum, and the target's.
        """
        logits = self.tokens * self.head[0]
        each = [NUMBER + WIDE, 4, 8, 8, 4, 8 if self.fused else 4]
        told = [Sent("all-reduce", self.tokens * WIDE), Sent("all-reduce", 2 * self.tokens * WIDE)] * (self.t > 1)
        return [*self.enter(self.head), *[Memory(logits * nbytes) for nbytes in each], *told]

    def loss_backward(self):
        logits = self.tokens * self.head[0]
        each = [8, *([] if self.fused else [8, 8, 8]), NUMBER + WIDE]
        return [
            *[Memory(logits * nbytes) for nbytes in each],
            *self.enter_backward(self.head)[:-2],
            Memory(3 * self.own),
        ]
