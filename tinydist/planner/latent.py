"""Multi-head latent attention: keys and values of all heads from one small vector, as Megatron-Core computes it.

    x [D] --> latent of queries [q] --norm--> queries [H, plain + rotary]
          `-> latent of keys    [k] --norm--> keys [H, plain], values [H, values]
          `-> [rotary], rotated, of all heads: each key ends with it

A head's scores have plain + rotary numbers and its output ``values``: attention is timed as one of heads with the mean
of both. (DeepSeek-V2, 2024, section 2.1; NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/
multi_latent_attention.py, read)
"""

from .operators import Flash, MemoryOp

NUMBER = 2  # bytes of an activation


def numbers(model, t):
    """Of a token, on a rank of the tensor group: both latents with what is rotated; queries, or keys; values."""
    of, heads = model.latent, model.heads // t
    return of.queries + of.keys + of.rotary, heads * (of.plain + of.rotary), heads * of.values


def matrices(model, t):
    """(columns, inner): those that all ranks have, and those of this rank's heads, and the output's."""
    of, D, heads = model.latent, model.width, model.heads // t
    down = [(of.queries, D), (of.keys + of.rotary, D)]
    up = [(heads * (of.plain + of.rotary), of.queries), (heads * (of.plain + of.values), of.keys)]
    return down, up, (D, heads * of.values)


class LatentOperators:
    """``block``: Operators. Attention from its norm to its output's matrix."""

    def __init__(self, block):
        model = block.model
        self.block, self.model = block, model
        self.down, self.up, self.out = matrices(model, block.t)
        latents, self.q, self.v = (block.tokens * each * NUMBER for each in numbers(model, block.t))
        self.normed = [MemoryOp(2 * latents)]
        self.assembled = [MemoryOp(2 * self.q), MemoryOp(2 * self.q + 2 * self.v)]  # rotated; keys with their ends

    def flash(self, products):
        block, of = self.block, self.model.latent
        mean = (of.plain + of.rotary + of.values) / 2
        return Flash(block.heads, self.model.tokens, mean, products, block.program.attention)

    def core(self):
        return [*self.assembled, self.flash(2)]

    def forward(self):
        block = self.block
        first, second = ([each for one in some for each in block.product(one)] for some in (self.down, self.up))
        return [*block.norm(), *block.gathered(), *first, *self.normed, *second, *self.core(), *block.leave(self.out)]

    def backward(self):
        block = self.block
        products = [each for matrix in (*self.up, *self.down) for each in block.product_backward(matrix)]
        own = [*block.gathered(), *products, *self.normed, *block.norm_backward(), MemoryOp(3 * block.own)]
        return [*block.leave_backward(self.out), self.flash(5), *self.assembled, *own]
