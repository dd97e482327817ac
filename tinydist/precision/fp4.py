"""FP4: numbers of 4 bits in blocks that share a scale (MXFP4, NVFP4); and a linear layer that trains in NVFP4.

    e2m1      0  0.5  1  1.5  2  3  4  6, and their negatives

              numbers per scale    scale                                           bits per number
    MXFP4     32                   2^e (e8m0)                                      4 + 8/32 = 4.25
    NVFP4     16                   e4m3, times one fp32 number for the tensor      4 + 8/16 = 4.5

    NVFP4     tensor = amax of all / (6 * 448)        so that the largest scale of a block is 448
              scale  = e4m3(amax of the block / 6 / tensor)
              value  = e2m1(x / (scale * tensor))

A linear layer has three matmuls, each of two operands that are quantized along its reduction dim:

    forward    y  = x w^T      x: 1 x 16, nearest             w: 16 x 16, nearest
    backward   dx = dy w       dy: 1 x 16, stochastic         w: the same 16 x 16 blocks, transposed
               dw = dy^T x     H dy: 1 x 16, stochastic       H x: 1 x 16, nearest

    stochastic   gradients: rounded to nearest, whatever is below 1/24 of its block's largest number is always lost
    16 x 16      weights: the same quantized weight forward and backward
    H            a random Hadamard transform of 16 numbers, which spreads an outlier over its block. Both operands
                 are transformed, and H^T H = 1, so the product stays what it is

Each is one of the ``Recipe``'s options, so that it can be left out. Embedding, head, norms, attention and the last
blocks stay in 16 bits in the published recipe; here the caller chooses the layers.

Emulated, on any device: products of e2m1 values and their scales are exact in fp32, and accumulated in fp32. Values
are held in e4m3, a byte each, where Blackwell packs two into a byte.

Sources: NVIDIA 2025, Pretraining Large Language Models with NVFP4, arXiv 2509.25149 (the recipe); TransformerEngine@
000b637e, common/recipe/__init__.py, NVFP4BlockScaling (read: which operand gets which); OCP Microscaling Formats (MX)
Specification v1.0, 2023 (MXFP4).
"""

from typing import NamedTuple

import torch

from ..rules import flag, floats, one_of, validate
from .fp8 import Scaled
from .mxfp8 import power_of_two
from .rounding import MODES, round_to

NVFP4_BLOCK, MXFP4_BLOCK = 16, 32
LARGEST, LARGEST_SCALE = 6.0, 448.0  # of e2m1, of e4m3
SMALLEST = 2.0**-126  # a scale below is no normal fp32 number


@validate(x=floats, mode=one_of(MODES), square=flag, generator=torch.Generator)
@torch.no_grad()
def nvfp4(x, mode="nearest", square=False, generator=None):
    """``x`` in NVFP4: ``Scaled``, with a scale for each 16 numbers along the last dim.

    ``square``: blocks of 16 x 16 of the last two dims. Raises ``ValueError`` where these are not divisible by 16.
    """
    check_blocks("nvfp4", x, NVFP4_BLOCK, 2 if square else 1)
    blocks = x.float().unflatten(-1, (-1, NVFP4_BLOCK))
    amax = blocks.abs().amax(-1)  # [..., rows, blocks]
    if square:
        amax = amax.unflatten(-2, (-1, NVFP4_BLOCK)).amax(-2).repeat_interleave(NVFP4_BLOCK, -2)
    tensor = (amax.max() / (LARGEST * LARGEST_SCALE)).clamp(min=SMALLEST)
    scale = (amax / LARGEST / tensor).to(torch.float8_e4m3fn).float() * tensor
    return in_blocks(blocks, scale, mode, generator)


@validate(x=floats, mode=one_of(MODES), scales=one_of(("up", "down")), generator=torch.Generator)
@torch.no_grad()
def mxfp4(x, mode="nearest", scales="up", generator=None):
    """``x`` in MXFP4: ``Scaled``, with a power of two for each 32 numbers along the last dim.

    ``scales``: how they are rounded, as in mxfp8.py. Raises ``ValueError`` where that dim is not divisible by 32.
    """
    check_blocks("mxfp4", x, MXFP4_BLOCK, 1)
    blocks = x.float().unflatten(-1, (-1, MXFP4_BLOCK))
    return in_blocks(blocks, power_of_two(blocks.abs().amax(-1), LARGEST, scales), mode, generator)


def check_blocks(operation, x, block, dims):
    if x.ndim < dims or any(size % block for size in x.shape[x.ndim - dims :]):
        which = "the last dim" if dims == 1 else "the last two dims"
        raise ValueError(f"{operation}: {which} must be a multiple of {block}, got {list(x.shape)}")


def in_blocks(blocks, scale, mode, generator):
    """A scale of 0 has a block of zeros, or of numbers too small for any scale: they become 0."""
    divisor = torch.where(scale == 0, torch.inf, scale).unsqueeze(-1)
    values = round_to((blocks / divisor).clamp(-LARGEST, LARGEST), "fp4 e2m1", mode, generator)
    return Scaled(values.flatten(-2).to(torch.float8_e4m3fn), scale)


@validate(x=floats, signs=torch.Tensor)
def hadamard(x, signs):
    """The Hadamard transform of each 16 numbers along the last dim, after they are multiplied by ``signs``."""
    check_blocks("hadamard", x, NVFP4_BLOCK, 1)
    blocks = x.float().unflatten(-1, (-1, NVFP4_BLOCK)) * signs
    return (blocks @ hadamard_matrix()).flatten(-2)


def hadamard_matrix():
    """[16, 16], symmetric, of 1/4 and -1/4: its square is the identity."""
    matrix = torch.ones(1, 1)
    while len(matrix) < NVFP4_BLOCK:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / NVFP4_BLOCK**0.5


class Recipe(NamedTuple):
    """Of training in NVFP4: what the paper adds to rounding to nearest in blocks of 16. Each can be left out."""

    gradients: str = "stochastic"  # or "nearest"
    hadamard: bool = True
    square: bool = True
    generator: torch.Generator | None = None

    def signs(self):
        """Random, of the Hadamard transform: 1 or -1."""
        return torch.randint(0, 2, (NVFP4_BLOCK,), generator=self.generator).float() * 2 - 1


@validate(x=floats, weight=floats, recipe=Recipe)
def linear(x, weight, recipe=None):
    """x w^T, forward and backward in NVFP4. [..., in] and [out, in] to [..., out]; all dims multiples of 16."""
    rows = x.flatten(0, -2) if x.ndim > 1 else x.unsqueeze(0)
    y = FP4Linear.apply(rows, weight, recipe or Recipe())
    return y.view(*x.shape[:-1], *y.shape[-1:])


class FP4Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, recipe):
        ctx.save_for_backward(x, weight)
        ctx.recipe = recipe
        return matmul(nvfp4(x), nvfp4(weight, square=recipe.square)).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x, weight), recipe = ctx.saved_tensors, ctx.recipe
        rounding = {"mode": recipe.gradients, "generator": recipe.generator}
        dx = matmul(nvfp4(dy, **rounding), nvfp4(weight.T, square=recipe.square))
        columns = [dy.T, x.T]  # their rows are what dw is summed over
        if recipe.hadamard:
            signs = recipe.signs()
            columns = [hadamard(each, signs) for each in columns]
        dw = matmul(nvfp4(columns[0], **rounding), nvfp4(columns[1]))
        return dx.to(x.dtype), dw.to(weight.dtype), None


def matmul(a, b):
    """a b^T of ``Scaled`` matrices [m, k] and [n, k]: [m, n], in fp32."""
    return a.dequantize() @ b.dequantize().T
