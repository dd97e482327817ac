"""Attention: how tokens gather from one another, what decoding reads, and how to move fewer bytes for the same result.

    band.py             which keys a query sees: causal, a window, queries that follow a cache
    groups.py           several query heads read the same keys and values, without a copy
    naive.py            attention as it is defined, with a safe softmax
    rotary.py           a position is an angle; YaRN, for longer texts than those of training
    heads.py            MHA, GQA and MQA: one module; a multi-head checkpoint pooled to a grouped one
    kv_cache.py         keys and values of the past, for sequences of different lengths
    latent.py           MLA: the past as one latent a token, from which each head makes keys and values, or need not
    decoder.py          a small Llama that writes, with the cache and without
    online_softmax.py   attention over keys that come piece by piece
    flash.py            flash attention, forward and backward: exact, tile by tile, in O(N) memory
    fused.py            torch's own, in one call
    flash_decoding.py   one query, many keys: split between processors, then merged
    packed.py           sequences end to end in one row, without padding: each sees itself alone
    slow_memory.py      the bytes that move: naive, FlashAttention's order, FlashAttention-2's
    flash_triton.py     flash attention as a Triton kernel; needs Triton, and is imported by its name alone
    kernels/            the same for real GPUs, forward and backward

In reading order. Torch's ``scaled_dot_product_attention`` and ``nn.MultiheadAttention`` are the references.
"""

from .band import Band
from .decoder import Decoder, DecoderConfig, generate, generate_without_cache
from .flash import flash_attention
from .flash_decoding import flash_decoding
from .fused import fused_attention
from .heads import GroupedQueryAttention, mean_pool
from .kv_cache import PUBLISHED, KVCache, bytes_a_token
from .latent import LatentAttention, LatentCache, latent_bytes_a_token
from .naive import attention, safe_softmax
from .packed import packed_attention, packed_flash_attention
from .rotary import Yarn, rotate
from .slow_memory import SlowMemory

__all__ = [
    "PUBLISHED",
    "Band",
    "Decoder",
    "DecoderConfig",
    "GroupedQueryAttention",
    "KVCache",
    "LatentAttention",
    "LatentCache",
    "SlowMemory",
    "Yarn",
    "attention",
    "bytes_a_token",
    "flash_attention",
    "flash_decoding",
    "fused_attention",
    "generate",
    "generate_without_cache",
    "latent_bytes_a_token",
    "mean_pool",
    "packed_attention",
    "packed_flash_attention",
    "rotate",
    "safe_softmax",
]
