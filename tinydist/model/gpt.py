"""A GPT: the decoder of a transformer that predicts the next token.

    tokens [B, T] -> embedding -> blocks (attention + MLP) -> norm -> logits [B, T, V]

B sequences, T tokens each, D channels, H heads, V tokens in the vocabulary. Pre-norm blocks, learned positions
and tied embeddings as in GPT-2 (Radford et al. 2019, section 2.3). It knows nothing of parallelism: that is applied
from outside.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..rules import must, part


@dataclass(frozen=True)
class GPTConfig:
    vocab_size: int = 256  # every byte is a token
    context: int = 64  # longest sequence, in tokens
    layers: int = 2
    heads: int = 4
    dim: int = 64
    dropout: float = 0.0  # of what is embedded, of attention's weights, of what is added to the residual stream

    def __post_init__(self):
        if self.dim % self.heads:
            raise ValueError(f"GPTConfig: dim ({self.dim}) must be divisible by heads ({self.heads})")
        must("GPTConfig", "dropout", part, self.dropout)


class Dropout(nn.Dropout):
    """nn.Dropout; the mask that backward needs has one byte a number, as on GPUs (on CPUs torch keeps one of x's)."""

    def forward(self, x):
        return torch.native_dropout(x, self.p, True)[0] if self.training and self.p else x


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config):
        super().__init__()
        self.head_dim = config.dim // config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x):  # [B, T, D]
        q, k, v = self.qkv(x).unflatten(2, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)  # [B, H, T, D/H]
        mixed = self.mix(q, k, v)  # [B, H, T, D/H]
        return self.out(mixed.transpose(1, 2).flatten(2))  # [B, T, D]

    def mix(self, q, k, v):
        """Attention; with dropout the weights [B, H, T, T] are materialized."""
        if not self.dropout.p:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        unseen = torch.full((q.shape[2], q.shape[2]), -math.inf, dtype=q.dtype, device=q.device).triu(1)
        q, k, v, heads = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), q.shape[:2]
        scores = torch.baddbmm(unseen, q, k.mT, alpha=1 / math.sqrt(self.head_dim))  # scaled, masked in one kernel
        return (self.dropout(scores.softmax(-1)) @ v).unflatten(0, heads)


class MLP(nn.Module):
    """The feed-forward network of a block, applied to each token."""

    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.dim, 4 * config.dim)
        self.down = nn.Linear(4 * config.dim, config.dim)

    def forward(self, x):  # [B, T, D]
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(config.dim), Attention(config)
        self.mlp_norm, self.mlp = nn.LayerNorm(config.dim), MLP(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x):  # [B, T, D]
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """``model(tokens)`` gives logits; ``model.loss(tokens, targets)`` the mean cross-entropy, in nats per token."""

    cross_entropy = staticmethod(F.cross_entropy)

    def __init__(self, config=None):
        super().__init__()
        self.config = config = config or GPTConfig()
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.position = nn.Embedding(config.context, config.dim)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.head.weight = self.embedding.weight
        self.apply(self._initialize)

    def _initialize(self, module):
        """Normal with deviation 0.02; what adds to the residual stream, 1/sqrt(2 layers) of it."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, Block):
            for projection in (module.attention.out, module.mlp.down):
                nn.init.normal_(projection.weight, std=0.02 / (2 * self.config.layers) ** 0.5)

    def forward(self, tokens):  # [B, T]
        T = tokens.shape[1]
        if self.config.context < T:
            raise ValueError(f"GPT: a sequence of {T} tokens exceeds the context length {self.config.context}")
        x = self.dropout(self.embedding(tokens) + self.position.weight[:T])  # [B, T, D]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # [B, T, V]

    def loss(self, tokens, targets):
        return self.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())
