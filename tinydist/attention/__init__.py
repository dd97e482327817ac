"""Attention: multi-head variants, masks, KV caches, and IO-aware (flash) kernels that move fewer bytes.

    mask.py             which keys a query sees: causal, a window, queries that follow a cache
    groups.py           grouped-query attention without repeating keys and values
    naive.py            attention as it is defined, with a safe softmax
    rotary.py           rotary position embedding (RoPE); YaRN for context extension
    heads.py            MHA, GQA and MQA: one module
    kv_cache.py         the KV cache, for batches of sequences of different lengths
    window_cache.py     the KV cache of a layer with a sliding window: a ring
    latent.py           multi-head latent attention (MLA): one cached latent per token; weight absorption
    published_scores.py what the variants score beside multi-head attention, as published
    decoder.py          a small Llama-like decoder that generates with or without the cache
    online_softmax.py   partial softmax results over blocks of keys, and how to merge them
    flash.py            flash attention, forward and backward: exact, tile by tile, in O(N) memory; and torch's own
    flash_decoding.py   one query, many keys: split across SMs, then merged (split-KV)
    packed.py           variable-length sequences packed without padding (varlen, cu_seqlens)
    sparse_layouts.py   block-sparse layouts: windows, global blocks, strided, random; hops of information
    sparse.py           attention over the blocks that a layout has
    hbm.py              HBM traffic of naive attention, FlashAttention and FlashAttention-2
    flash_triton.py     flash attention as a Triton kernel; needs Triton, and is imported by its name alone
    sparse_triton.py    block-sparse attention as Triton kernels, imported by their name alone as well
    kernels/            optimized Triton kernels, forward and backward

In reading order. Torch's ``scaled_dot_product_attention`` and ``nn.MultiheadAttention`` are the references.
"""

from .decoder import Decoder, DecoderConfig, generate, generate_without_cache
from .flash import flash_attention, fused_attention
from .flash_decoding import flash_decoding
from .hbm import HBM
from .heads import GroupedQueryAttention
from .kv_cache import PUBLISHED, KVCache, bytes_per_token
from .latent import LatentAttention, LatentCache, latent_bytes_per_token
from .mask import AttentionMask
from .naive import attention, safe_softmax
from .packed import packed_attention, packed_flash_attention
from .rotary import Yarn, rotate
from .sparse import block_sparse_attention
from .window_cache import WINDOWED, WindowKVCache, bytes_per_sequence

__all__ = [
    "HBM",
    "PUBLISHED",
    "WINDOWED",
    "AttentionMask",
    "Decoder",
    "DecoderConfig",
    "GroupedQueryAttention",
    "KVCache",
    "LatentAttention",
    "LatentCache",
    "WindowKVCache",
    "Yarn",
    "attention",
    "block_sparse_attention",
    "bytes_per_sequence",
    "bytes_per_token",
    "flash_attention",
    "flash_decoding",
    "fused_attention",
    "generate",
    "generate_without_cache",
    "latent_bytes_per_token",
    "packed_attention",
    "packed_flash_attention",
    "rotate",
    "safe_softmax",
]
