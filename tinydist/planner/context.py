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
        model, self.cp, self.kernel = block.model, block.cp, block.program.attention
        self.torchs = not block.fused
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
        own, other = self.blocks(2)
        kept = MemoryOp(2 * self.kv + 6 * self.q * self.torchs)  # K and V together; output to fp32, and back
        merged = [MemoryOp(0.75 * self.q / NUMBER * (NUMBER + 3 * WIDE))]  # of three in four rows, on average
        if self.way == "ulysses":
            return self.by_heads(own, [kept])
        if self.way == "gather":
            each = [other, *merged] * (self.cp - 1)
            return [kept, *self.gathered(), own, *each]
        return [kept, Ring([own], [other, *merged], self.kv, 0, *self.along)]

    def backward(self):
        own, other = self.blocks(5)
        sums = self.kv / NUMBER * (WIDE if self.torchs else NUMBER)
        first = [MemoryOp(5 * self.q + 2.5 * sums)]
        added = [MemoryOp(0.75 * 5 * self.q + 5 * sums)]
        ends = [MemoryOp(5 * self.q + 1.5 * sums)] * self.torchs
        if self.way == "ulysses":
            return self.by_heads(own, first + ends)
        if self.way == "gather":
            each = [other, *added] * (self.cp - 1)
            back = self.sent("reduce-scatter", self.cp * sums)
            return [*self.gathered(), own, *first, *each, MemoryOp(self.cp * sums), back, *ends]
        return [Ring([own, *first], [other, *added], self.kv, sums, *self.along), *ends]

    def gathered(self):
        return [MemoryOp(2 * self.kv), self.sent("all-gather", self.cp * self.kv)]

    def by_heads(self, block, beside):
        """Each tensor is laid out, exchanged, laid out. Where ranks share a head of keys, each gets a copy."""
        kv = max(self.kv, 2 * self.cp * self.tokens * self.head_dim * NUMBER)
        whole = block._replace(batch=self.heads // self.cp, tokens=self.total, keys=self.total)
        there = [MemoryOp(6 * self.q + 6 * kv), self.sent("all-to-all", self.q + kv)]
        back = [self.sent("all-to-all", self.q), MemoryOp(6 * self.q)]
        return [*there, *beside, whole, *back]
