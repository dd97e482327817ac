"""A KV cache in blocks: keys and values of 8 or 4 bits, a scale for each 32 channels of a head.

    bytes a token = 2 layers kv_heads head_dim bits / 8        Llama 2 7B: 512 KiB in fp16, 272 in Q8_0, 144 in Q4_0

Each new row is quantized once, and read as fp32: here all rows at every step; a kernel reads blocks, as in matvec.py.
llama.cpp has the same as --cache-type-k and --cache-type-v.
"""

import torch

from ..attention.kv_cache import KVCache, Slots
from ..rules import count, one_of, validate, whole
from .blocks import FORMATS, Blocks, quantize


@validate(batch=count, kv_heads=count, capacity=whole, head_dim=count, format=one_of(FORMATS))
class BlockKVCache(KVCache):
    """Of one layer: keys and values [batch, kv_heads, capacity, bytes of head_dim numbers]."""

    def __init__(self, batch, kv_heads, capacity, head_dim, format="Q8_0"):
        self.format = FORMATS[format]
        if head_dim % self.format.weights:
            of = self.format.weights
            raise ValueError(f"BlockKVCache: {format} has blocks of {of}, which must divide head_dim, got {head_dim}")
        nbytes = head_dim // self.format.weights * self.format.nbytes
        shape = batch, kv_heads, capacity, nbytes
        self.keys, self.values = (torch.zeros(shape, dtype=torch.uint8) for _ in range(2))
        Slots.__init__(self, keys=self.keys, values=self.values)

    def keep(self, *rows, counts=None):
        blocks = [quantize(each, self.format.name).data for each in rows]
        kept = super().keep(*blocks, counts=counts)
        return [Blocks(each, self.format).dequantize().to(row.dtype) for each, row in zip(kept, rows)]
