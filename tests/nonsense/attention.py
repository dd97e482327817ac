"""Valid calls of ``tinydist.attention``."""

from random import Random

import torch
from nonsense.calls import Call

from tinydist import attention
from tinydist.attention import (
    HBM,
    AttentionMask,
    Decoder,
    DecoderConfig,
    GroupedQueryAttention,
    KVCache,
    LatentAttention,
    LatentCache,
    WindowKVCache,
    Yarn,
    sparse_layouts,
)

B, H, G, T, S, D = 1, 4, 2, 3, 5, 4


def tensors():
    torch.manual_seed(0)
    return dict(q=torch.randn(B, H, T, D), k=torch.randn(B, G, S, D), v=torch.randn(B, G, S, D))


def small():
    torch.manual_seed(0)
    return Decoder(DecoderConfig(vocab_size=16, layers=1, heads=2, kv_heads=1, dim=8))


def written(function):
    return Call(
        function,
        lambda: dict(model=small(), prompts=[torch.tensor([1, 2]), torch.tensor([3])], count=3),
    )


def heads():
    torch.manual_seed(0)
    return GroupedQueryAttention(8, 4, 2)


def latent():
    torch.manual_seed(0)
    return LatentAttention(8, 2, latent=4, rotary_dim=2, head_dim=4)


def packed(function, **options):
    bounds = dict(cu_seqlens=[0, 2, 3], cu_seqlens_k=[0, 1, 5])
    return signed(function, lambda: dict(tensors(), **bounds, causal=True, window=3, scale=0.5, **options))


def held(capacity, tile):
    memory = HBM(capacity)
    memory.hold(tile=tile)
    return memory.peak


def kept():
    return KVCache(2, 1, 4, 2)


def signed(function, arguments, **options):
    return Call(function, arguments, signed=True, **options)


def loaded(tensor):
    memory = HBM()
    memory.load(tensor)
    return memory.moved


def stored(place, tensor):
    memory = HBM()
    memory.store(place, tensor)
    return memory.moved


CALLS = {
    "AttentionMask": signed(
        lambda **given: AttentionMask(**given).visible(slice(0, 3), slice(0, 5)),
        lambda: dict(queries=3, keys=5, causal=True, window=2, offset=[2]),
    ),
    "Decoder": signed(lambda config: Decoder(config)(torch.tensor([[1]])), lambda: dict(config=small().config)),
    "Decoder.forward": signed(
        lambda **given: small()(**given),
        lambda: dict(tokens=torch.tensor([[1, 2]]), caches=small().caches(1, 4), counts=[2]),
    ),
    "Decoder.caches": Call(small().caches, lambda: dict(batch=2, capacity=4)),
    "DecoderConfig": signed(
        lambda **given: Decoder(DecoderConfig(**given))(torch.tensor([[1]])),
        lambda: dict(
            vocab_size=16, layers=1, heads=2, kv_heads=1, dim=8, rotary=100.0, latent=4, rotary_dim=2, windows=[None]
        ),
    ),
    "GroupedQueryAttention": signed(
        lambda **given: GroupedQueryAttention(**given)(torch.ones(1, 3, 8)),
        lambda: dict(dim=8, heads=4, kv_heads=2, bias=True, rotary=100.0, window=2, attend=attention.attention),
    ),
    "GroupedQueryAttention.forward": signed(
        lambda **given: heads()(**given),
        lambda: dict(x=torch.ones(1, 3, 8), cache=KVCache(1, 2, 4, 2), counts=[3]),
    ),
    "KVCache": Call(
        KVCache, lambda: dict(batch=2, kv_heads=1, capacity=4, head_dim=2, dtype=torch.float16, device="cpu")
    ),
    "KVCache.append": signed(
        lambda **given: kept().append(**given),
        lambda: dict(k=torch.ones(2, 1, 3, 2), v=torch.ones(2, 1, 3, 2), counts=[3, 1]),
    ),
    "WindowKVCache": Call(
        WindowKVCache, lambda: dict(batch=2, kv_heads=1, window=4, head_dim=2, dtype=torch.float16, device="cpu")
    ),
    "WindowKVCache.append": signed(
        lambda **given: WindowKVCache(2, 1, 4, 2).append(**given),
        lambda: dict(k=torch.ones(2, 1, 3, 2), v=torch.ones(2, 1, 3, 2), counts=[3, 1]),
    ),
    "KVCache.positions": Call(kept().positions, lambda: dict(tokens=2)),
    "LatentAttention": signed(
        lambda **given: LatentAttention(**given)(torch.ones(1, 3, 8)),
        lambda: dict(
            dim=8,
            heads=2,
            latent=4,
            rotary_dim=2,
            head_dim=4,
            value_dim=3,
            query_latent=5,
            rotary=100.0,
            eps=1e-6,
            attend=attention.attention,
        ),
    ),
    "LatentAttention.forward": signed(
        lambda **given: latent()(**given),
        lambda: dict(x=torch.ones(1, 3, 8), cache=LatentCache(1, 4, 4, 2), counts=[3], absorbed=True),
    ),
    "LatentCache": Call(
        LatentCache, lambda: dict(batch=2, capacity=4, latent=4, rotary_dim=2, dtype=torch.float16, device="cpu")
    ),
    "LatentCache.keep": signed(
        lambda **given: LatentCache(1, 4, 4, 2).keep(torch.ones(1, 1, 3, 6), **given), lambda: dict(counts=[2])
    ),
    "HBM": Call(held, lambda: dict(capacity=8, tile=torch.ones(2))),
    "HBM.load": Call(loaded, lambda: dict(tensor=torch.ones(2))),
    "HBM.store": Call(stored, lambda: dict(place=torch.ones(2), tensor=torch.ones(2))),
    "Yarn": Call(
        lambda **given: Yarn(**given).slowed(torch.ones(4)).tolist(),
        lambda: dict(factor=4.0, context=64, base=100.0, fast=8.0, slow=2.0),
    ),
    "Yarn.slowed": Call(lambda **given: Yarn(4).slowed(**given), lambda: dict(frequencies=torch.ones(4))),
    "attention": signed(
        attention.attention,
        lambda: dict(tensors(), causal=True, window=3, offset=[1], mask=torch.ones(T, S, dtype=torch.bool), scale=0.5),
    ),
    "flash_attention": signed(
        attention.flash_attention, lambda: dict(tensors(), causal=True, window=3, offset=[1], scale=0.5, tile=(2, 2))
    ),
    "flash_decoding": signed(
        attention.flash_decoding, lambda: dict(tensors(), causal=True, window=3, offset=[1], scale=0.5, splits=2)
    ),
    "fused_attention": signed(
        attention.fused_attention, lambda: dict(tensors(), causal=True, window=3, offset=[1], scale=0.5)
    ),
    "packed_attention": packed(attention.packed_attention),
    "packed_flash_attention": packed(attention.packed_flash_attention, tile=(2, 2)),
    "latent_bytes_per_token": Call(
        attention.latent_bytes_per_token, lambda: dict(layers=2, latent=4, rotary_dim=2, dtype=torch.float16)
    ),
    "bytes_per_token": Call(
        attention.bytes_per_token, lambda: dict(layers=2, kv_heads=2, head_dim=4, dtype=torch.float16)
    ),
    "bytes_per_sequence": Call(
        attention.bytes_per_sequence,
        lambda: dict(tokens=8, windows=[4, None], kv_heads=2, head_dim=4, dtype=torch.float16),
    ),
    "generate": written(attention.generate),
    "generate_without_cache": written(attention.generate_without_cache),
    "rotate": signed(attention.rotate, lambda: dict(x=torch.ones(1, 2, 3, 4), positions=torch.arange(3), base=100.0)),
    "safe_softmax": signed(attention.safe_softmax, lambda: dict(scores=torch.ones(2, 3))),
}


def drawn():
    return dict(random=1, rng=Random(0))


CALLS |= {
    "block_sparse_attention": signed(
        attention.block_sparse_attention,
        lambda: dict(tensors(), layout=torch.ones(2, 3, dtype=torch.bool), block=2, causal=True, scale=0.5),
    ),
    "sparse_layouts.window": Call(sparse_layouts.window, lambda: dict(n=5, width=3, causal=True)),
    "sparse_layouts.dilated": Call(sparse_layouts.dilated, lambda: dict(n=5, width=3, step=2, causal=True)),
    "sparse_layouts.strided": Call(sparse_layouts.strided, lambda: dict(n=5, stride=3, causal=True)),
    "sparse_layouts.fixed": Call(
        sparse_layouts.fixed, lambda: dict(n=5, local=4, summary=1, pattern=1, causal=True, horizontal=True)
    ),
    "sparse_layouts.variable": Call(
        sparse_layouts.variable,
        lambda: dict(drawn(), n=5, windows=[2, 1], globals=[0], causal=True, horizontal=True),
    ),
    "sparse_layouts.longformer": Call(sparse_layouts.longformer, lambda: dict(n=5, width=3, globals=[0], causal=True)),
    "sparse_layouts.bigbird": Call(sparse_layouts.bigbird, lambda: dict(drawn(), n=5, width=3, globals=1, causal=True)),
    "sparse_layouts.hops": Call(
        lambda layout: sparse_layouts.hops(layout).nan_to_num(posinf=0), lambda: dict(layout=sparse_layouts.window(4))
    ),
}
REASONS = {"PUBLISHED": "data", "WINDOWED": "data"}
