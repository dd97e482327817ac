"""Experts on the ranks that share them: what each computes and sends, forward and backward.

    router | rows of each token ==> to the ranks of its experts | their products | ==> back, added to the tokens
             ------------ shared experts meanwhile, unless kernels are fused -------------

Of N tokens each goes to k experts: A = k N rows, of which none is dropped. A plan's load is balanced: as many rows come
to a rank, A in all, and each of its E/ep experts has its share of them.

    all-to-all of A D numbers     dispatch, combine; backward again      before it E numbers: how many rows come
    products                      of E/ep experts, A ep/E rows each: the fewer, the slower

Without fusion as in tinydist.experts: a product for each expert, and outputs are weighted in fp32. Fused ones as in
Megatron-Core: a grouped product, timed as a batched one; a kernel permutes rows each way, and they are weighted between
the matrices. With tensor parallelism and cut sequences each rank dispatches its own tokens, and their rows are gathered
where they come; tinydist gathers the tokens before (NVIDIA/Megatron-LM@d98e8a64
megatron/core/transformer/moe/token_dispatcher.py, experts.py, read).
"""

from dataclasses import replace

from .operators import Beside, CollectiveOp, ExpertOp, Matmul, MemoryOp

NUMBER, WIDE, ORDER = 2, 4, 8  # bytes: of an activation, of one in fp32, of an index
SMALL, FUSED_SMALL = 14, 6  # kernels that make a routing of scores, sums, sorts, counts; as many in backward


class ExpertOperators:
    """``block``: Operators."""

    def __init__(self, block):
        model, t = block.model, block.t
        self.block, self.of, self.torchs, self.t = block, model.experts, not block.fused, t
        self.cut = t if block.sequence_parallel and block.fused else 1
        self.tokens, self.assigned = block.tokens // self.cut, block.tokens * self.of.active
        self.x, self.r = block.x / self.cut, self.assigned * model.width * NUMBER  # bytes: of its tokens, of rows
        self.moved = self.sent("all-to-all", self.r / self.cut)
        D, F = model.width, self.of.inner // t
        self.inside = self.assigned * F * NUMBER
        matrices = [((1 + model.gated) * F, D), (D, F)]  # columns, inner
        self.matrices = [*block.apart(matrices[0]), matrices[1]] if self.torchs else matrices

    def sent(self, what, nbytes):
        return ExpertOp(what, nbytes, self.of.ranks, self.block.t)

    def forward(self):
        return [*self.until_combined(), *self.added()]

    def until_combined(self):
        out = [MemoryOp(2 * self.r)] * self.torchs  # of all experts as one tensor
        products = [each for matrix in self.matrices for each in self.product(*matrix)]
        experts = [*products, *self.block.activation(self.inside, self.parts), *self.summed(), *out]
        there, back = self.gathered("all-gather"), self.gathered("reduce-scatter")
        own = [*there, *self.sorted(), *experts, *self.sorted(), *back]
        return [*self.scored(), *self.beside(self.shared()), *own, self.moved]

    def backward(self):
        products = [each for matrix in self.matrices for each in self.product_backward(*matrix)]
        experts = [*products, *self.block.activation_backward(self.inside, self.parts), *self.summed()]
        scaled = [MemoryOp(2 * self.r)] * (self.torchs and self.of.ranks > 1)
        rows = [MemoryOp(3 * self.r)] * (len(self.matrices) - 2) + [MemoryOp(2 * self.r)] if self.torchs else []
        there, back = self.gathered("all-gather"), self.gathered("reduce-scatter")
        own = [*there, *self.sorted(), *scaled, *experts, *rows, *scaled, *self.sorted(), *back]
        return [
            *self.added_backward(), self.moved, *own,
            *self.beside(self.shared_backward()), *self.scored_backward(),
        ]  # fmt: skip

    # Products.

    @property
    def parts(self):
        """Kernels for all experts of a rank."""
        return self.of.own if self.torchs else 1

    def product(self, columns, inner):
        cast = self.block.cast(self.of.own * columns * inner + self.assigned * inner)
        return [*cast, *self.grouped(self.rows, columns, inner)]

    def product_backward(self, columns, inner):
        cast = self.block.cast(self.of.own * columns * inner + self.assigned * (inner + columns))
        return [*cast, *self.grouped(self.rows, inner, columns), *self.grouped(columns, inner, self.rows)]

    @property
    def rows(self):
        """Of an expert."""
        return max(1, self.assigned // self.of.own)

    def grouped(self, *sizes):
        return [Matmul(self.of.own // self.parts, *sizes, self.block.program.fp8)] * self.parts

    def summed(self):
        """Over the tensor group, where sequences are not cut: each expert's rows, or their gradients."""
        return [CollectiveOp("all-reduce", self.r / self.parts)] * (self.parts if self.cut < self.t else 0)

    # What is around them.

    def scored(self):
        """And rows by expert, and how many come from whom."""
        gathered = self.block.gathered() if self.torchs else []
        counts, scores = self.sent("all-to-all", ORDER * self.of.total), self.small()
        wide = [MemoryOp(self.x / NUMBER * (NUMBER + WIDE))] * self.torchs
        rows = MemoryOp(self.x + self.moved.nbytes)
        return [*gathered, *wide, *scores, self.scores(self.tokens, self.of.total, self.width), counts, rows]

    def scored_backward(self):
        E, x, wide = self.of.total, self.x, [MemoryOp(self.x / NUMBER * (NUMBER + WIDE))] * self.torchs
        rows = [MemoryOp(x), MemoryOp(2 * self.r)] if self.torchs else [MemoryOp(x + self.moved.nbytes)]
        scores = [self.scores(E, self.width, self.tokens), self.scores(self.tokens, self.width, E)]
        return [*rows, *self.small(), *scores, *wide, MemoryOp(3 * x)]

    @property
    def width(self):
        return self.block.model.width

    def scores(self, *sizes):
        return Matmul(1, *sizes, wide=self.torchs)

    def small(self):
        if self.torchs:
            scores, routed = MemoryOp(2 * WIDE * self.tokens * self.of.total), MemoryOp(2 * ORDER * self.assigned)
            return [scores] * 2 + [routed] * SMALL
        return [MemoryOp(2 * NUMBER * self.tokens * self.of.total)] * FUSED_SMALL

    def sorted(self):
        """Rows by rank to rows by expert; or back."""
        return [MemoryOp(2 * self.r)] * ((self.of.ranks if self.torchs else self.of.own) > 1)

    def gathered(self, what):
        return [CollectiveOp(what, self.r)] * (self.cut > 1)

    def added(self):
        """Weighted in fp32, to 16 bits; zeros, to which rows are added at 8-byte indices."""
        if self.torchs:
            return [MemoryOp(3 * self.r), MemoryOp(3 * self.r), MemoryOp(self.x), MemoryOp(5 * self.r + 2 * self.x)]
        return [MemoryOp(self.x + self.moved.nbytes)]

    def added_backward(self):
        """Rows of the gradient, to fp32, times weights, times outputs, to 16 bits, summed."""
        if self.torchs:
            gathered = self.block.gathered()
            return [*gathered, MemoryOp(5 * self.r + self.x), *[MemoryOp(each * self.r) for each in (3, 4, 5, 3, 2)]]
        return [MemoryOp(self.x + self.moved.nbytes)]

    # Shared experts: an MLP as wide as all of them.

    def beside(self, shared):
        """While rows are under way."""
        return [Beside(self.moved, shared)] if self.torchs else [self.moved, *shared]

    @property
    def together(self):
        block, inner = self.block, self.of.shared * self.of.inner
        model = replace(block.model, experts=None, inner=inner, biases=False)
        b = block.tokens * block.cp // model.tokens
        return type(block)(model, block.program, self.t, b, block.sequence_parallel, block.cp)

    def shared(self):
        if not self.of.shared:
            return []
        mlp = self.together
        products = [*mlp.product(mlp.up), *mlp.activation(), *mlp.product(mlp.down)]
        return [*mlp.gathered(), *products, CollectiveOp(mlp.summed, mlp.x), MemoryOp(3 * mlp.own)]

    def shared_backward(self):
        if not self.of.shared:
            return []
        mlp = self.together
        products = [*mlp.product_backward(mlp.down), *mlp.activation_backward(), *mlp.product_backward(mlp.up)]
        return [*mlp.gathered(), *products, CollectiveOp(mlp.summed, mlp.x), MemoryOp(3 * mlp.own)]
