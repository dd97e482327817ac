"""KV cache: keys and values of past tokens are kept, so that decoding computes one new token, not the whole sequence.

    prefill   the prompts at once           a b c d         decode    one token a sequence at a time
                                            e f . .         (d, f are the last: they predict what comes next)

    slots     0  1  2  3  4  5
    row 0     a  b  c  d  g  i              lengths 4 -> 5 -> 6
    row 1     e  f  h  j                            2 -> 3 -> 4        the padding after f is written over

Sequences of different lengths share a batch: each row appends after its own last token, and slots beyond it are masked.
Without the cache, n tokens after a prompt of T cost n forward passes of T to T + n tokens each.

    bytes per token = 2 layers kv_heads head_dim (bytes a number)        Llama 2 7B: 512 KiB. 4096 tokens: 2 GiB

A decode step reads the whole cache and the weights once, for a few FLOPs per byte: it is memory-bound.

Sources: Shazeer 2019, Fast Transformer Decoding, section 2.4; Pope et al. 2022, Efficiently Scaling Transformer
Inference, section 2; Kwon et al. 2023, PagedAttention, section 3 (800 KB a token for OPT 13B).
"""

from functools import partial

import torch

from ..rules import count, each_of, validate, whole, within

# layers, heads of keys and values, head dim: what the bytes follow from. Llama 2 and 3: pytorch-labs/gpt-fast@32971d31
# model.py, transformer_configs; Llama 3.1 405B: pytorch/torchtitan@b5bcd76c torchtitan/models/llama3; OPT 13B:
# PagedAttention, section 3 (all read).
PUBLISHED = {
    "Llama 2 7B": (32, 32, 128),
    "Llama 2 13B": (40, 40, 128),
    "Llama 2 70B": (80, 8, 128),
    "Llama 3 8B": (32, 8, 128),
    "Llama 3 70B": (80, 8, 128),
    "Llama 3.1 405B": (126, 8, 128),
    "OPT 13B": (40, 40, 128),
}


@validate(layers=count, kv_heads=count, head_dim=count, dtype=torch.dtype)
def bytes_per_token(layers, kv_heads, head_dim, dtype=torch.float16):
    """Bytes per token in the KV cache: a key and a value for each layer and KV head."""
    return 2 * layers * kv_heads * head_dim * dtype.itemsize


class Slots:
    """Room for ``capacity`` tokens in each of ``batch`` sequences: tensors [batch, G, capacity, d], a row per token.

    lengths:  the tokens in use, of each sequence.
    """

    def __init__(self, **tensors):
        self.names, self.tensors = tuple(tensors), tuple(tensors.values())
        self.lengths = [0] * len(self.tensors[0])

    @property
    def nbytes(self):
        return sum(each.nbytes for each in self.tensors)

    @validate(tokens=within(0, 2**20))
    def positions(self, tokens):
        """Positions of the next ``tokens`` of each sequence: [B, tokens]."""
        device = self.tensors[0].device
        return torch.tensor(self.lengths, device=device)[:, None] + torch.arange(tokens, device=device)

    @validate(counts=each_of(whole))
    def keep(self, *rows, counts=None):
        """Append rows [B, G, T, d]. Only the first ``counts[b]`` rows of sequence b are valid, the others padding;
        None: all.

        Returns views [B, G, S, d] up to the longest sequence. Raises ``ValueError`` if the capacity is exceeded.
        """
        self._check_shapes(rows)
        T = rows[0].shape[2]
        counts = [T] * len(self.lengths) if counts is None else counts
        self._check_room(T, counts)
        S, positions = max(self.lengths) + T, self.positions(T)
        sequences = torch.arange(len(positions), device=positions.device)[:, None]
        for tensor, new in zip(self.tensors, rows):
            tensor[sequences, :, positions] = new.transpose(1, 2)
        self.lengths = [length + count for length, count in zip(self.lengths, counts)]
        return [tensor[:, :, :S] for tensor in self.tensors]

    def with_prefix(self, attend):
        """``attend`` for queries that follow the tokens in use now, and the keys and values that ``keep`` returns."""
        return partial(attend_with_cache, self.lengths, attend)

    def _check_shapes(self, rows):
        B, G, _, d = self.tensors[0].shape
        if any(each.ndim != 4 or each.shape != (B, G, rows[0].shape[2], d) for each in rows):
            got = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(self.names, rows))
            raise ValueError(f"{type(self).__name__}: holds [{B}, {G}, tokens, {d}], got {got}")

    def _check_counts(self, T, counts):
        if len(counts) != len(self.lengths) or max(counts) > T:
            must_be = f"counts must be {len(self.lengths)} integers from 0 to {T}"
            raise ValueError(f"{type(self).__name__}: {must_be}, got {list(counts)}")

    def _check_room(self, T, counts):
        self._check_counts(T, counts)
        name, capacity = type(self).__name__, self.tensors[0].shape[2]
        if max(self.lengths) + T > capacity:
            row = self.lengths.index(max(self.lengths))
            raise ValueError(
                f"{name}: sequence {row} has {self.lengths[row]} tokens; {T} more exceed capacity ({capacity})"
            )


@validate(batch=count, kv_heads=count, capacity=whole, head_dim=count, dtype=torch.dtype)
class KVCache(Slots):
    """Of one layer: keys and values [batch, kv_heads, capacity, head_dim]."""

    def __init__(self, batch, kv_heads, capacity, head_dim, dtype=None, device=None):
        shape = batch, kv_heads, capacity, head_dim
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        super().__init__(keys=self.keys, values=self.values)

    @validate(k=torch.Tensor, v=torch.Tensor, counts=each_of(whole))
    def append(self, k, v, counts=None):
        """``keep`` k and v [B, G, T, d].

        Returns keys and values [B, G, S, d], and a bool [B, 1, T, S]: a token sees itself, and its sequence before it.
        """
        before = torch.tensor(self.lengths, device=k.device)[:, None, None, None]
        keys, values = self.keep(k, v, counts=counts)
        distance = torch.arange(keys.shape[2], device=k.device) - torch.arange(k.shape[2], device=k.device)[:, None]
        return keys, values, distance <= before


def attend_with_cache(lengths, attend, q, k, v, **options):
    """Attention of queries [B, H, T, d] after ``lengths[b]`` cached tokens of sequence b, causal.

    k, v:     as ``keep`` returns them, [B, G, S, d] with S = T + the largest of lengths.
    options:  go to ``attend``, beside ``causal=True`` and, where sequences are not equally long, ``offset``.
    """
    if len(set(lengths)) > 1:
        options["offset"] = lengths
    return attend(q, k, v, causal=True, **options)


def check_call(attention, x, dim, cache, counts, options):
    """Check the arguments of a module that attends with or without a cache."""
    name = type(attention).__name__
    if x.ndim != 3 or x.shape[2] != dim:
        raise ValueError(f"{name}: takes [batch, tokens, {dim}], got {list(x.shape)}")
    if cache is not None and options:
        raise ValueError(f"{name}: {', '.join(options)} cannot be passed together with a cache")
    if cache is None and counts is not None:
        raise ValueError(f"{name}: counts requires a cache")
