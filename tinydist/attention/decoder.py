"""A small decoder-only transformer (Llama) with grouped-query or latent attention, with or without a KV cache.

    tokens [B, T] -> embedding -> blocks (attention + MLP) -> norm -> logits [B, T, V]

Positions are rotary, as in Llama, so sequences of different lengths can share a batch. ``generate`` is greedy: it takes
the most likely token. ``generate_without_cache`` is the slow reference that ``generate`` must match.

    n tokens after a prompt of T:    with a cache n + T rows pass the model, without n T + n^2 / 2

Source: Touvron et al. 2023, Llama 2, section 2.2.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .. import rules
from ..rules import count_or_none, each_of, function, listed, must, validate, whole
from .heads import GroupedQueryAttention
from .kv_cache import Slots
from .latent import LatentAttention
from .rotary import angles


@validate(
    vocab_size=rules.count, layers=rules.within(1, 1000), heads=rules.count, kv_heads=rules.count, dim=rules.count
)
@validate(rotary=angles, latent=rules.count, rotary_dim=rules.count, windows=each_of(count_or_none))
@dataclass(frozen=True)
class DecoderConfig:
    vocab_size: int = 256
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    dim: int = 64
    rotary: float = 10_000.0  # base of the angles, or a Yarn
    latent: int | None = None  # latent dim: then all heads share it, and kv_heads is ignored
    rotary_dim: int = 8  # with a latent, the dims beside it that carry the position
    windows: tuple = (None,)  # of layer i the sliding window is windows[i % len(windows)]; None: it keeps all tokens


class DecoderBlock(nn.Module):
    def __init__(self, config, window=None):
        super().__init__()
        D = config.dim
        self.attention = attention_of(config, window)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(D), nn.RMSNorm(D)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((D, 4 * D), (D, 4 * D), (4 * D, D)))

    def forward(self, x, **options):  # [B, T, D]
        x = x + self.attention(self.attention_norm(x), **options)
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def attention_of(config, window=None):
    """The module that a configuration asks for: grouped, or latent (which has no window here)."""
    if config.latent is None:
        return GroupedQueryAttention(config.dim, config.heads, config.kv_heads, rotary=config.rotary, window=window)
    if window is not None:
        raise ValueError(f"DecoderConfig: windows go with keys and values, got latent={config.latent} and {window=}")
    sizes = dict(latent=config.latent, rotary_dim=config.rotary_dim, head_dim=config.dim // config.heads)
    return LatentAttention(config.dim, config.heads, **sizes, rotary=config.rotary)


@validate(config=DecoderConfig)
class Decoder(nn.Module):
    """``model(tokens)`` gives logits for each next token; with a cache, tokens follow what is in it.
    ``model.loss(tokens, targets)``: the mean cross-entropy, in nats per token.
    """

    cross_entropy = staticmethod(F.cross_entropy)

    def __init__(self, config=None):
        super().__init__()
        self.config = config = config or DecoderConfig()
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(
            DecoderBlock(config, config.windows[layer % len(config.windows)]) for layer in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)

    @validate(tokens=torch.Tensor, caches=each_of(Slots), counts=each_of(whole))
    def forward(self, tokens, caches=None, counts=None):  # [B, T]
        if caches is not None and len(caches) != len(self.blocks):
            raise ValueError(f"Decoder: {len(self.blocks)} blocks need one cache each, got {len(caches)}")
        x = self.embedding(tokens)  # [B, T, D]
        for i, block in enumerate(self.blocks):
            options = {"causal": True} if caches is None else {"cache": caches[i], "counts": counts}
            x = block(x, **options)
        return self.head(self.norm(x))  # [B, T, V]

    def loss(self, tokens, targets):
        return self.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def caches(self, batch, capacity):
        """An empty ``KVCache``, or ``LatentCache``, for each block."""
        return [block.attention.new_cache(batch, capacity) for block in self.blocks]


@validate(model=function, prompts=each_of(torch.Tensor, 0))
@torch.no_grad()
def generate(model, prompts, count):
    """``count`` new tokens after each of ``prompts``, tensors [T] of any lengths: [B, count]. Prefill, then decode."""
    _check(prompts, count)
    counts = [len(prompt) for prompt in prompts]
    caches = model.caches(len(prompts), max(counts) + count - 1)
    logits = model(nn.utils.rnn.pad_sequence(prompts, batch_first=True), caches, counts)  # prefill
    last = torch.tensor(counts, device=logits.device) - 1
    new = [logits[torch.arange(len(prompts), device=logits.device), last].argmax(-1)]
    while len(new) < count:  # decode
        new.append(model(new[-1][:, None], caches)[:, -1].argmax(-1))
    return torch.stack(new, dim=1)


@validate(model=function, prompts=each_of(torch.Tensor, 0))
@torch.no_grad()
def generate_without_cache(model, prompts, count):
    """The same from the model as it is: each prompt alone, and all of it again for each token."""
    _check(prompts, count)
    written = []
    for tokens in prompts:
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens[None])[0, -1:].argmax(-1)])
        written.append(tokens[-count:])
    return torch.stack(written)


def _check(prompts, count):
    if not rules.count(count):
        raise ValueError(f"generate: count must be an integer >= 1, got {count!r}")
    must("generate", "count", listed, count)
    shapes = [list(prompt.shape) for prompt in prompts]
    if not shapes or any(len(shape) != 1 or shape == [0] for shape in shapes):
        raise ValueError(f"generate: prompts must have shape [T] with at least one token, got the shapes {shapes}")
