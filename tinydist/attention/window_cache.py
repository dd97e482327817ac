"""KV cache of a layer with a sliding window: a ring, in which the oldest token makes room for the newest.

    window 4        slots   0  1  2  3          token n is written to slot n % 4
    after token 3           0  1  2  3          token 4 sees tokens 1 to 4: the last 4, itself included
    after token 4           4  1  2  3
    after token 5           4  5  2  3          the order of the slots does not matter: rotated keys carry positions

A decode step reads the ring as it lies, without a copy. Several tokens at once (a prompt, or a piece of one) are
another matter: the first of them still see tokens that the last ones push out. For them the past is laid out in order,
before the new rows, and each query sees the nearest ``window`` keys.

    bytes of a sequence of T tokens = 2 kv_heads head_dim (bytes a number) (sum over layers of min(T, window))

Gemma 3 27B at 131,072 tokens: 10 of 62 layers keep all tokens, 52 keep 1,024: 10.4 GiB, and not 62.

Sources: Beltagy et al. 2020, Longformer, section 3.1; Jiang et al. 2023, Mistral 7B, section 2 (the ring, "rolling
buffer cache"); google/gemma_pytorch@de621eb3 gemma/config.py and openai/gpt-oss@0568dfc9 gpt_oss/torch/model.py (read):
their windows count the query's own token. Transformers 5.23 keeps one token less, the past that a next query sees.
"""

from functools import partial

import torch

from ..rules import count, count_or_none, each_of, validate, whole
from .kv_cache import KVCache, attend_with_cache
from .mask import AttentionMask

# Of each layer the window, or None: it keeps all; KV heads, head dim.
WINDOWED = {
    "Gemma 3 27B": ([None if layer % 6 == 5 else 1024 for layer in range(62)], 16, 128),
    "gpt-oss 120B": ([128 if layer % 2 == 0 else None for layer in range(36)], 8, 64),
}


@validate(tokens=whole, windows=each_of(count_or_none), kv_heads=count, head_dim=count, dtype=torch.dtype)
def bytes_per_sequence(tokens, windows, kv_heads, head_dim, dtype=torch.float16):
    """Bytes of the KV cache of a sequence of ``tokens``, where layer i keeps the last ``windows[i]``, or all (None)."""
    kept = sum(tokens if window is None else min(tokens, window) for window in windows)
    return 2 * kept * kv_heads * head_dim * dtype.itemsize


@validate(batch=count, kv_heads=count, window=count, head_dim=count, dtype=torch.dtype)
class WindowKVCache(KVCache):
    """Of one layer: keys and values [batch, kv_heads, window, head_dim] of the last ``window`` tokens.

    lengths:  the tokens of each sequence so far, forgotten ones too: the next one's position.
    """

    def __init__(self, batch, kv_heads, window, head_dim, dtype=None, device=None):
        super().__init__(batch, kv_heads, window, head_dim, dtype, device)
        self.window = window

    @validate(counts=each_of(whole))
    def keep(self, *rows, counts=None):
        """As ``KVCache.keep``, without end. One token: views of the ring, in no order. More: the past that they see,
        and they, in order, [B, G, S, d]."""
        self._check_shapes(rows)
        T = rows[0].shape[2]
        counts = [T] * len(self.lengths) if counts is None else counts
        self._check_counts(T, counts)
        past, positions = self._past(), self.positions(T)
        found = None if T == 1 else [self._in_order(ring, new, past) for ring, new in zip(self.tensors, rows)]
        last = torch.tensor(counts, device=positions.device)[:, None]
        each = torch.arange(T, device=positions.device)
        sequences, tokens = ((each < last) & (each >= last - self.window)).nonzero(as_tuple=True)
        slots = positions[sequences, tokens] % self.window
        for ring, new in zip(self.tensors, rows):
            ring[sequences, :, slots] = new[sequences, :, tokens]
        self.lengths = [length + count for length, count in zip(self.lengths, counts)]
        return found or [ring[:, :, : max(past) + 1] for ring in self.tensors]

    def with_prefix(self, attend):
        """``attend`` for queries that follow the tokens in use now, and the keys and values that ``keep`` returns."""
        return partial(attend_with_cache, self._past(), attend, window=self.window)

    @validate(k=torch.Tensor, v=torch.Tensor, counts=each_of(whole))
    def append(self, k, v, counts=None):
        """``keep`` k and v; also a bool [B, 1, T, S]: what each token sees of them."""
        past = self._past()
        keys, values = self.keep(k, v, counts=counts)
        T, S = k.shape[2], keys.shape[2]
        mask = AttentionMask(T, S, True, self.window, past)
        visible = mask.visible(slice(0, T), slice(0, S), k.device)
        everything = torch.ones(T, S, dtype=torch.bool, device=k.device)
        return keys, values, (everything if visible is None else visible).expand(len(past), 1, T, S)

    def _past(self):
        """Of each sequence, the tokens that its next one sees besides itself."""
        return [min(length, self.window - 1) for length in self.lengths]

    def _in_order(self, ring, new, past):
        """[B, G, max(past) + T, d]: each sequence's past from its oldest token on, then its new rows."""
        B, G, T, d = new.shape
        laid = new.new_zeros(B, G, max(past) + T, d)
        for row, (length, kept) in enumerate(zip(self.lengths, past)):
            slots = torch.arange(length - kept, length, device=ring.device) % self.window
            laid[row, :, :kept] = ring[row, :, slots]
            laid[row, :, kept : kept + T] = new[row]
        return laid
