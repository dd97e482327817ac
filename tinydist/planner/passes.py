"""Operators and communication of one rank for a block, forward and backward.

Fused kernels are as Megatron-LM has them, or a compiler. Scale, mask and softmax are one; bias and GELU; bias, dropout
and the sum with the residual. Otherwise each operator of tinydist.model is one, as on the simulated clock.
"""

from ..hardware.attention_kernels import fused_softmax_available
from ..hardware.kernels import NORM
from .context import ContextAttention
from .experts import ExpertOperators
from .latent import LatentOperators
from .operators import CollectiveOp, Flash, Matmul, MemoryOp, OverlapOp
from .products import NUMBER, Products

MASK = 1  # byte of a dropout's mask

# Kernels that eager programs launch for what is one in fused or compiled ones, and the bytes that they read and write
# for each number, forward and backward: counted of torch 2.13's operators, in bfloat16 (nn.RMSNorm, which computes in
# fp32; a SwiGLU's silu and product; a rotation by complex numbers, as in torchtitan's Llama).
RMS_NORM, RMS_NORM_BACKWARD = (8, 40), (14, 108)
GATE, GATE_BACKWARD = (2, 10), (3, 18)
ROTARY, ROTARY_BACKWARD = (3, 20), (3, 24)
# Megatron-LM where its fused softmax does not run: to fp32, scaled, masked, softmax, to 16 bits (core/fusions/
# fused_softmax.py, forward_torch_softmax).
SOFTMAX, SOFTMAX_BACKWARD = (5, 37), (5, 41)
# Its layer norm's backward: parts of the gradients of weight and bias, their sums, the gradient of the input
# (Megatron-DeepSpeed@c2402048, December 2022, megatron/fused_kernels/layer_norm_cuda_kernel.cu, read).
NORM_BACKWARD = 3


def pointwise(nbytes, kernels, each):
    """Of a tensor with this many bytes: so many kernels, which together move ``each`` bytes a number."""
    return [MemoryOp(nbytes / NUMBER * each / kernels)] * kernels


class Operators(Products):
    """Of ``model`` in ``program``, on each of the t ranks of a tensor group, and cp of a context group, for b sequences
    in a microbatch."""

    def __init__(self, model, program, t=1, b=1, sequence_parallel=None, cp=1, context="ring"):
        self.model, self.program, self.t, self.sequence_parallel = model, program, t, sequence_parallel
        self.cp, self.context = cp, context
        self.fused = program.fused or program.compiled
        self.tokens = b * model.tokens // cp
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
        if self.model.latent:
            return LatentOperators(self).forward()
        return [*self.enter(self.qkv), *self.core(), *self.leave(self.out)]

    def mlp_forward(self):
        if self.model.experts:
            return [*self.norm(), *ExpertOperators(self).forward(), *self.residual(False)]
        return [*self.enter(self.up), *self.activation(), *self.leave(self.down)]

    def enter(self, matrix, linear=True):
        return [*self.norm(), *self.gathered(), *self.product(matrix, linear)]

    def norm(self):
        if self.model.norm == "rms" and not self.fused:
            return pointwise(self.own, *RMS_NORM)
        return [MemoryOp(2 * self.own, NORM["forward"])]

    def activation(self, inside=None, parts=1):
        """Between the matrices of an MLP, or of so many, which have so many bytes there."""
        each = (self.inside if inside is None else inside) / parts
        if self.model.gated and not self.fused:
            return pointwise(each, *GATE) * parts
        return [MemoryOp((2 + self.model.gated) * each)] * parts

    def gathered(self):
        """All tokens."""
        return [CollectiveOp("all-gather", self.x), *self.in_order()] if self.sequence_parallel else []

    def leave(self, matrix):
        return [*self.product(matrix), *self.in_order(), CollectiveOp(self.summed, self.x), *self.residual()]

    def in_order(self):
        """Tokens by rank, as torch's operators lay them out before they are scattered; by sequence, after they come."""
        return [MemoryOp(2 * self.x)] * (self.sequence_parallel is not None and not self.program.fused)

    @property
    def summed(self):
        return "reduce-scatter" if self.sequence_parallel else "all-reduce"

    def residual(self, biased=True):
        x, mask = self.own, self.own / NUMBER * MASK
        if self.fused:
            return [MemoryOp(3 * x + mask * self.drops)]
        return (
            [MemoryOp(2 * x)] * (self.model.biases and biased)
            + [MemoryOp(2 * x + mask)] * self.drops
            + [MemoryOp(3 * x)]
        )

    @property
    def drops(self):
        return self.model.dropout > 0

    def core(self):
        """Attention itself: from queries, keys and values to what the heads give."""
        T, E, rotated = self.model.tokens, self.model.head_dim, self.rotation()
        if self.model.latent:
            return LatentOperators(self).core()
        if self.cp > 1:
            return [*rotated, *ContextAttention(self).forward()]
        if self.program.flash:
            return [*rotated, Flash(self.heads, T, E, 2, self.program.attention, self.model.pairs)]
        scores, mixed = Matmul(self.heads, T, T, E), Matmul(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [MemoryOp(2 * weights + weights / NUMBER * MASK)] * self.drops
        softmax = self.softmax(weights, SOFTMAX, 2)
        return [*rotated, scores, *softmax, *dropout, mixed, MemoryOp(2 * self.channels["heads"])]

    def softmax(self, weights, kernels, tensors):
        """In one kernel, if there is one for so many heads."""
        if self.program.fused and not fused_softmax_available(self.heads, 1, self.model.tokens):
            return pointwise(weights, *kernels)
        return [MemoryOp(tensors * weights)]

    def rotation(self):
        return self.rotated(ROTARY)

    def rotated(self, kernels):
        if self.model.positions != "rotary":
            return []
        qkv = self.channels["qkv"]
        return [MemoryOp(2 * qkv)] if self.fused else pointwise(qkv, *kernels)

    def backward(self):
        return [*self.mlp_backward(), *self.attention_backward()]

    def attention_backward(self):
        if self.model.latent:
            return LatentOperators(self).backward()
        return [*self.leave_backward(self.out), *self.core_backward(), *self.enter_backward(self.qkv)]

    def mlp_backward(self):
        if self.model.experts:
            dropout = [MemoryOp(2 * self.own + self.own / NUMBER * MASK)] * self.drops
            return [*dropout, *ExpertOperators(self).backward(), *self.norm_backward(), MemoryOp(3 * self.own)]
        return [*self.leave_backward(self.down), *self.activation_backward(), *self.enter_backward(self.up)]

    def activation_backward(self, inside=None, parts=1):
        each = (self.inside if inside is None else inside) / parts
        if self.model.gated and not self.fused:
            return pointwise(each, *GATE_BACKWARD) * parts
        return [MemoryOp((3 + 2 * self.model.gated) * each)] * parts

    def leave_backward(self, matrix):
        x, mask = self.own, self.own / NUMBER * MASK
        dropout = [MemoryOp(2 * x + mask)] * self.drops + [MemoryOp(x)] * self.model.biases
        added = self.added_up(int(self.model.biases))
        cast = self.cast_backward(matrix)
        return [*dropout, *added, *self.gathered(), *cast, self.of_input(matrix), self.of_weight(matrix)]

    def added_up(self, parameters):
        """Gradients of what sees a rank's own tokens alone, one by one."""
        apart = parameters * (self.sequence_parallel is not None and not self.program.fused)
        return [CollectiveOp("all-reduce", self.model.width * NUMBER)] * apart

    def enter_backward(self, matrix, linear=True):
        bias = [MemoryOp(self.tokens * matrix[0] * NUMBER)] * self.model.biases
        of_input, again = [self.of_input(matrix, linear)], self.sequence_parallel == "regather"
        cast = self.cast_backward(matrix, linear)
        if again:
            of_input = [OverlapOp(CollectiveOp("all-gather", self.x), *of_input), *self.in_order()]
        bias = [*bias, *self.added_up(2 if self.model.norm == "layer" else 1)]
        of_weight = OverlapOp(CollectiveOp(self.summed, self.x), self.of_weight(matrix, linear))
        return [*cast, *of_input, *self.in_order(), of_weight, *bias, *self.norm_backward(), MemoryOp(3 * self.own)]

    def norm_backward(self):
        if self.model.norm == "rms" and not self.fused:
            return pointwise(self.own, *RMS_NORM_BACKWARD)
        kernels = NORM_BACKWARD if self.program.fused else 1
        return [MemoryOp(3 * self.own, NORM["backward"], kernels)]

    def core_backward(self):
        T, E = self.model.tokens, self.model.head_dim
        together = [MemoryOp(2 * self.channels["qkv"])] * (1 if self.fused else 2)  # gradients of queries, keys, values
        rotated = self.rotated(ROTARY_BACKWARD)
        if self.cp > 1:
            return [*ContextAttention(self).backward(), *together, *rotated]
        if self.program.flash:
            kernel = Flash(self.heads, T, E, 5, self.program.attention, self.model.pairs)
            return [kernel, *(together if not self.fused else []), *rotated]
        scores, mixed = Matmul(self.heads, T, T, E), Matmul(self.heads, T, E, T)
        weights = self.heads * T * T * NUMBER
        dropout = [MemoryOp(2 * weights + weights / NUMBER * MASK)] * self.drops
        # Megatron-LM's scores are scaled by baddbmm: backward scales the gradients of queries and of keys
        copy = [MemoryOp(2 * self.channels["heads"])]
        first, scaled = ([], 2 * copy) if self.program.fused else (copy, [])
        return [
            *first, scores, mixed, *dropout, *self.softmax(weights, SOFTMAX_BACKWARD, 3), mixed, mixed,
            *scaled, *together, *rotated,
        ]  # fmt: skip

    def recomputed(self, recompute):
        """An early stop, when all is there that backward needs, is before the last matmul, or dropout."""
        ways = {"none": list, "selective": self.core, "per_op": self.by_operator, "full": self.forward}
        again = ways[recompute]()
        whole = self.program.fused or not self.program.early_stop
        if whole or recompute in ("none", "per_op") or (self.drops and recompute == "full"):
            return again
        if recompute == "full":
            end = ExpertOperators(self).added() + self.residual(False) if self.model.experts else self.leave(self.down)
            return again[: -len(end)]
        return again if self.program.flash else again[:-2]

    def by_operator(self):
        """Outputs of attention, of reduce-scatters and of every second matmul are saved (torchtitan@b5bcd76c
        distributed/activation_checkpoint.py, SelectiveAC, read): all else is computed, and sent, again."""
        rest = [
            each for each in self.forward() if not isinstance(each, Matmul | Flash) and "reduce-scatter" not in each
        ]
        matrices = [self.qkv, self.out, *self.apart(self.up), self.down]
        return rest + [each for matrix in matrices[1::2] for each in self.product(matrix)]

    def apart(self, matrix):
        """A gate's matrix, and the one whose output it scales: two matmuls, where they are not fused."""
        return [(matrix[0] // 2, matrix[1])] * 2 if self.model.gated else [matrix]
