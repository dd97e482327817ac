"""A transformer's sizes, and the parameter and FLOP counts that follow from them. No tensors.

    tokens [B, T] -> embedding -> L blocks (attention + MLP) -> norm -> logits [B, T, V]

With width D, H heads of dim E, G KV heads, MLP width F, parameters of a block are

    attention     D (H + 2 G) E + H E D            biases (H + 2 G) E + D
    MLP           2 D F, gated 3 D F               biases F + D
                  or as many for each expert, without biases, and E D of the router
    norms         D each, with a shift 2 D

and forward FLOPs per token are 2 for each parameter of a matmul, and 4 T H E for attention scores and output: all T x T
are counted, as FlopCounterMode does and the papers do, though a causal kernel leaves out half of them; of a layer with
a sliding window of w tokens T x w. Backward computes twice as many. For a GPT: 72 B T L D^2 (1 + T/6D + V/12LD) a step
(Korthikanti et al. 2022, appendix A).
"""

from dataclasses import dataclass, replace
from functools import cached_property

from ..rules import count, count_or_none, each_of, flag, one_of, part, validate, whole

POSITIONS, NORMS = ("learned", "rotary", "alibi"), ("layer", "rms")


@validate(total=count, active=count, inner=count, shared=whole, dense_layers=whole, balanced=flag, ranks=count)
@dataclass(frozen=True)
class Experts:
    """Of ``total`` MLPs of width ``inner`` each token uses ``active``, and all ``shared`` ones."""

    total: int
    active: int
    inner: int
    shared: int = 0
    dense_layers: int = 0  # the first ones have a plain MLP
    balanced: bool = False  # the router has a bias for each expert
    ranks: int = 1  # that share them, by a plan (shares.py)

    @property
    def own(self):
        """Of a rank."""
        return self.total // self.ranks


@validate(queries=count, keys=count, rotary=count, plain=count, values=count)
@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, 2024): dims of the latents of queries, and of keys and values; and of a
    head's query: those that are rotated, those that are not; and of its value."""

    queries: int
    keys: int
    rotary: int
    plain: int
    values: int


@validate(
    name=str, layers=count, width=count, heads=count, vocabulary=count, tokens=count, kv_heads=count, head_dim=count
)
@validate(
    inner=count, gated=flag, biases=flag, tied=flag, positions=one_of(POSITIONS), norm=one_of(NORMS), dropout=part
)
@validate(normed_embedding=flag, experts=Experts, latent=Latent, windows=each_of(count_or_none), source=str)
@dataclass(frozen=True)
class Model:
    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    tokens: int  # of a sequence
    kv_heads: int | None = None  # None: as many as heads
    head_dim: int | None = None  # None: width / heads
    inner: int | None = None  # of the MLP; None: 4 width
    gated: bool = False
    biases: bool = True
    tied: bool = True
    positions: str = "learned"
    norm: str = "layer"
    dropout: float = 0.0
    normed_embedding: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    windows: tuple = (None,)  # of layer i the sliding window is windows[i % len(windows)], in tokens; None: it sees all
    source: str = ""

    def __post_init__(self):
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(f"Model {self.name!r}: width ({self.width}) must be divisible by heads ({self.heads})")
        given = {"kv_heads": self.heads, "head_dim": self.width // self.heads, "inner": 4 * self.width}
        for name, natural in given.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, natural)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"Model {self.name!r}: heads ({self.heads}) must be divisible by kv_heads ({self.kv_heads})"
            )

    def __str__(self):
        return self.name

    # Parameters.

    @property
    def attention_matrices(self) -> int:
        D, H, E = self.width, self.heads, self.head_dim
        if self.latent is None:
            return D * (H + 2 * self.kv_heads) * E + H * E * D
        q, k, rotary, plain, values = vars(self.latent).values()
        down = D * (q + k + rotary)
        return down + q * H * (plain + rotary) + k * H * (plain + values) + H * values * D

    def mlp_matrices(self, inner=None) -> int:
        return (3 if self.gated else 2) * self.width * (inner or self.inner)

    @property
    def norm_size(self) -> int:
        return self.width * (2 if self.norm == "layer" else 1)

    @property
    def small(self) -> int:
        """Of a block: norms, and biases but the MLP's."""
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim + self.width
        latents = self.latent.queries + self.latent.keys if self.latent else 0
        return biases * self.biases + 2 * self.norm_size + latents

    @property
    def mlp_biases(self) -> int:
        return (self.inner + self.width) * self.biases

    @property
    def dense_layer(self) -> int:
        return self.attention_matrices + self.small + self.mlp_matrices() + self.mlp_biases

    @property
    def dense_layers(self) -> int:
        return self.experts.dense_layers if self.experts else self.layers

    @cached_property
    def dense(self) -> "Model":
        """The same without experts: what its dense layers are."""
        return replace(self, experts=None)

    def _layers(self, experts, shared=True):
        """Of all blocks, with so many experts in each that has some."""
        if self.experts is None:
            return self.layers * self.dense_layer
        mixture = self.experts
        router = mixture.total * (self.width + mixture.balanced)
        mlps = (experts + mixture.shared) * self.mlp_matrices(mixture.inner) + router
        mixed = self.attention_matrices + self.small + mlps
        return self.dense_layers * self.dense_layer + (self.layers - self.dense_layers) * mixed

    @property
    def ends(self) -> int:
        """Embeddings, the last norm and the head."""
        tables = self.vocabulary * (1 if self.tied else 2) + self.tokens * (self.positions == "learned")
        return tables * self.width + self.norm_size * (2 if self.normed_embedding else 1)

    @cached_property
    def parameters(self) -> int:
        return self._layers(self.experts and self.experts.total) + self.ends

    @cached_property
    def active(self) -> int:
        """Active parameters per token (mixture of experts)."""
        return self._layers(self.experts and self.experts.active) + self.ends

    # FLOPs.

    @cached_property
    def attention_flops(self) -> int:
        """Of a token forward, in a block: scores, and what they weigh."""
        width = self.head_dim
        if self.latent:
            width = (self.latent.plain + self.latent.rotary + self.latent.values) / 2
        return int(4 * sum(self._windows) / self.layers * self.heads * width)

    @property
    def _windows(self):
        """By layer: how many tokens it sees, at most."""
        of_layers = (self.windows[layer % len(self.windows)] for layer in range(self.layers))
        return [min(each or self.tokens, self.tokens) for each in of_layers]

    @property
    def windowed(self):
        return any(each is not None for each in self.windows)

    @cached_property
    def pairs(self) -> float:
        """Of the pairs that a causal mask leaves, those within the windows: the mean of all layers."""
        return sum(each / self.tokens * (2 - each / self.tokens) for each in self._windows) / self.layers

    @cached_property
    def layer_flops(self) -> float:
        """Per token, forward: matmuls of a block, and its attention; the mean of all blocks."""
        dense = self.dense_layers / self.layers
        products = self._layers(self.experts and self.experts.active) / self.layers - self.small
        products -= dense * self.mlp_biases
        if self.experts and self.experts.balanced:
            products -= self.experts.total * (1 - dense)
        return 2 * products + self.attention_flops

    @property
    def head_flops(self) -> int:
        """Of a token forward."""
        return 2 * self.width * self.vocabulary

    def flops(self, sequences, recompute="none") -> float:
        """Of a step: forward and twice that backward; and what is recomputed."""
        per_op = 2 * self.width * (self.heads * self.head_dim + self.inner)  # the second and fourth matmul of a block
        again = {"none": 0, "selective": self.attention_flops, "per_op": per_op, "full": self.layer_flops}[recompute]
        a_token = self.layers * (3 * self.layer_flops + again) + 3 * self.head_flops
        return sequences * self.tokens * a_token
