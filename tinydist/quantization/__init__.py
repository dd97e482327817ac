"""A model in four bits: weights in blocks, as llama.cpp keeps them; decoding from blocks; rounding that makes up for
itself.

    blocks.py         six formats, and tensors in them            Q8_0, Q5_0, Q4_1, Q4_0, Q6_K, Q4_K
    blocks_of_32.py       a scale for 32 weights
    blocks_of_256.py      scales of scales; the search for them
    gguf_file.py      a file of such tensors: written, and read with distrust
    llama_file.py         a decoder as llama.cpp loads it
    linear.py         a linear layer whose weights stay in blocks; a model of them
    matvec.py         the same as a kernel that never writes a weight in fp32 (with llvmlite)
    cache.py          a KV cache in blocks
    grid.py           rounding to nearest, in groups
    inputs.py         what a layer's inputs are like
    gptq.py           later weights make up for the error of earlier ones
    awq.py            weights that meet large inputs get finer steps

Decoding reads every weight once a token, so tokens/s = bandwidth / bytes, at most:

    8.03e9 weights at 50 GB/s     fp32 1.6    bf16 3.1    Q8_0 5.9    Q4_0 11 tokens/s
"""

from .awq import awq
from .blocks import FORMATS, Blocks, Format, quantize
from .cache import BlockKVCache
from .gguf_file import load_gguf, save_gguf
from .gptq import gptq
from .grid import bits_per_weight, round_to_nearest
from .inputs import Inputs, inputs_of, output_error
from .linear import BlockLinear, in_blocks, matmul
from .llama_file import save_llama

__all__ = [
    "FORMATS",
    "BlockKVCache",
    "BlockLinear",
    "Blocks",
    "Format",
    "Inputs",
    "awq",
    "bits_per_weight",
    "gptq",
    "in_blocks",
    "inputs_of",
    "load_gguf",
    "matmul",
    "output_error",
    "quantize",
    "round_to_nearest",
    "save_gguf",
    "save_llama",
]
