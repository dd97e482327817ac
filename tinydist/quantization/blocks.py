"""Weights in blocks: a few bits for each weight, and a scale for all of a block. Six common formats of ggml.

                block   bytes   bits a weight    a weight is
    Q8_0           32      34          8.5       d q                 q of 8 bits, -127 to 127
    Q5_0           32      22          5.5       d (q - 16)
    Q4_1           32      20          5         d q + m
    Q4_0           32      18          4.5       d (q - 8)
    Q6_K          256     210          6.5625    d s (q - 32)        s of 8 bits for each 16 weights
    Q4_K          256     144          4.5       d s q - e m         s and m of 6 bits for each 32

d, m and e are in fp16. Blocks lie along the last dim, which their size must divide; a row is as many blocks, one behind
the other, so a matrix in blocks is a matrix of bytes. Source: ggml-org/llama.cpp, ggml/src/ggml-common.h (the layouts),
and the package gguf, gguf/quants.py (read; our tests hold bytes and values against it, bit for bit).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..rules import floats, one_of, validate
from . import blocks_of_32, blocks_of_256


@dataclass(frozen=True)
class Format:
    """``encode``: [N, weights] in fp32 to [N, nbytes] of uint8; ``decode``: back. ``code``: its number in GGUF."""

    name: str
    weights: int
    nbytes: int
    code: int
    encode: Callable
    decode: Callable

    @property
    def bits(self):
        """Of a weight."""
        return 8 * self.nbytes / self.weights

    def __str__(self):
        return self.name


FORMATS = {
    each.name: each
    for each in (
        Format("Q4_0", 32, 18, 2, blocks_of_32.encode_q4_0, blocks_of_32.decode_q4_0),
        Format("Q4_1", 32, 20, 3, blocks_of_32.encode_q4_1, blocks_of_32.decode_q4_1),
        Format("Q5_0", 32, 22, 6, blocks_of_32.encode_q5_0, blocks_of_32.decode_q5_0),
        Format("Q8_0", 32, 34, 8, blocks_of_32.encode_q8_0, blocks_of_32.decode_q8_0),
        Format("Q4_K", 256, 144, 12, blocks_of_256.encode_q4_k, blocks_of_256.decode_q4_k),
        Format("Q6_K", 256, 210, 14, blocks_of_256.encode_q6_k, blocks_of_256.decode_q6_k),
    )
}


@validate(data=torch.Tensor, format=Format)
@dataclass(frozen=True)
class Blocks:
    """A tensor in blocks. ``data``: [..., bytes of a row] of uint8."""

    data: torch.Tensor
    format: Format

    def __post_init__(self):
        if self.data.dtype != torch.uint8 or self.data.ndim == 0 or self.data.shape[-1] % self.format.nbytes:
            must_be = f"data must be uint8 and its last dim a multiple of {self.format.nbytes}, the bytes of a block"
            raise ValueError(f"Blocks: {self.format}: {must_be}, got {list(self.data.shape)} of {self.data.dtype}")

    @property
    def shape(self):
        """Of the weights."""
        *rows, nbytes = self.data.shape
        return torch.Size([*rows, nbytes // self.format.nbytes * self.format.weights])

    @property
    def nbytes(self):
        return self.data.nbytes

    @property
    def dtype(self):
        """Of the weights that it stands for."""
        return torch.float32

    @property
    def device(self):
        return self.data.device

    def dequantize(self):
        """The weights that it stands for, in fp32."""
        blocks = self.data.reshape(-1, self.format.nbytes)
        return self.format.decode(blocks).view(self.shape)


@validate(x=floats, format=one_of(FORMATS))
@torch.no_grad()
def quantize(x, format="Q4_0"):
    """``x`` [..., K] in blocks. Raises ``ValueError`` where a block does not divide K, or a number does not fit."""
    format = FORMATS[format]
    if x.ndim == 0 or x.shape[-1] % format.weights:
        must_be = f"the last dim must be a multiple of {format.weights}, the weights of a block"
        raise ValueError(f"quantize: {format}: {must_be}, got {list(x.shape)}")
    blocks_of_32.check_range("quantize", x)
    *rows, weights = x.shape
    shape = *rows, weights // format.weights * format.nbytes
    if not x.numel():
        return Blocks(x.new_empty(shape, dtype=torch.uint8), format)
    return Blocks(format.encode(x.float().reshape(-1, format.weights)).view(shape), format)
