"""Attention on ranks of context parallelism: what each computes and sends, forward and backward.

    ring       a rank's own keys, then cp-1 times those of another rank, half of which the mask hides; the next ones are
               under way meanwhile. Backward: and the sums of their gradients, one step behind
    gather     the same blocks, after an all-gather; backward another, and a reduce-scatter of the gradients
    ulysses    all-to-alls of queries, keys, values and output, around attention of heads/cp to all tokens

As context_parallel does it, with zig-zag parts. Backward sends gradients of keys and values in fp32; fused programs in
16 bits. Every rank computes as much: 1/cp of a causal sequence.
"""

from .operators import Block, ContextOp, MemoryOp, Ring

NUMBER, WIDE = 2, 4  # bytes


class ContextAttention:
    """``block``: Operators."""

    def __init__(self, block):
        model, self.fused, self.cp, self.kernel = block.model, block.fused, block.cp, block.program.attention
        self.along, self.way = (block.cp, block.t), block.context
        self.heads, self.head_dim = block.heads, model.head_dim
        self.tokens, self.total = model.tokens // block.cp, model.tokens
        self.q = block.channels["heads"]  # bytes, of this rank's tokens; and of its keys and values
        self.kv = block.channels["qkv"] - self.q

    def blocks(self, products):
        """Of the rank's own keys, and of another rank's."""
        size = self.heads, self.tokens
        own = Block(*size, self.tokens, self.head_dim, products, True, self.kernel)
        return own, own._replace(keys=self.tokens / 2, causal=False)

    def sent(self, what, nbytes):
        return ContextOp(what, nbytes, *self.along)

    def forward(self):
        if self.way == "ulysses":
            return self.by_heads(2)
        own, other = self.blocks(2)
        merged = [MemoryOp(0.75 * self.q / NUMBER * (NUMBER + 3 * WIDE))]  # of three in four rows, on average
        kept = [MemoryOp(2 * self.kv)]
        if self.way == "gather":
            each = [other, *merged] * (self.cp - 1)
            return [*kept, self.sent("all-gather", self.cp * self.kv), own, *each]
        return [*kept, Ring([own], [other, *merged], self.kv, 0, *self.along)]

    def backward(self):
        if self.way == "ulysses":
            return self.by_heads(5)
        own, other = self.blocks(5)
        wide = NUMBER if self.fused else WIDE
        sums = self.kv / NUMBER * wide
        added = [MemoryOp(0.75 * self.q / NUMBER * (NUMBER + 2 * WIDE)), MemoryOp(3 * sums)]
        if self.way == "gather":
            each = [other, *added] * (self.cp - 1)
            back = self.sent("reduce-scatter", self.cp * sums)
            return [self.sent("all-gather", self.cp * self.kv), own, *each, MemoryOp(2 * self.cp * sums), back]
        return [Ring([own, *added], [other, *added], self.kv, sums, *self.along)]

    def by_heads(self, products):
        """Where there are fewer heads of keys than ranks, each rank gets the one that its queries read."""
        kv = max(self.kv, 2 * self.cp * self.tokens * self.head_dim * NUMBER)
        size = self.heads // self.cp, self.total, self.total, self.head_dim
        turned = [MemoryOp(4 * self.q + 4 * kv)]
        there = [*turned, self.sent("all-to-all", self.q + kv)]
        back = [self.sent("all-to-all", self.q), *turned]
        return [*there, Block(*size, products, True, self.kernel), *back]
