"""KV cache: keys and values of the past are kept, so that a new token costs one row and not all of them.

    prefill   the prompts at once           a b c d         decode    one token a sequence at a time
                                            e f . .         (d, f are the last: they predict what comes next)

    slots     0  1  2  3  4  5
    row 0     a  b  c  d  g  i              lengths 4 -> 5 -> 6
    row 1     e  f  h  j                            2 -> 3 -> 4        the padding after f is written over

Sequences of different lengths share a batch: each row writes behind its own last token, and the mask hides the rest.
Without the cache, n tokens after a prompt of T cost n forward passes of T to T + n tokens each.

    bytes a token = 2 layers kv_heads head_dim (bytes a number)        Llama 2 7B: 512 KiB. 4096 tokens: 2 GiB

A decode step reads all of it once and the weights once, for a few FLOPs a byte: it is bound by memory.

Sources: Shazeer 2019, Fast Transformer Decoding, section 2.4; Pope et al. 2022, Efficiently Scaling Transformer
Inference, section 2; Kwon et al. 2023, PagedAttention, section 3 (800 KB a token for OPT 13B).
"""

import torch

from ..rules import count, each_of, takes, whole, within

# layers, heads of keys and values, head dim: what the bytes follow from, as in the configurations that were published
# with the models; OPT 13B also in PagedAttention, section 3.
PUBLISHED = {
    "Llama 2 7B": (32, 32, 128),
    "Llama 2 13B": (40, 40, 128),
    "Llama 2 70B": (80, 8, 128),
    "Llama 3 8B": (32, 8, 128),
    "Llama 3 70B": (80, 8, 128),
    "Llama 3.1 405B": (126, 8, 128),
    "OPT 13B": (40, 40, 128),
}


@takes(layers=count, kv_heads=count, head_dim=count, dtype=torch.dtype)
def bytes_a_token(layers, kv_heads, head_dim, dtype=torch.float16):
    """What the cache of a model holds for each token: a key and a value for each layer and head."""
    return 2 * layers * kv_heads * head_dim * dtype.itemsize


@takes(batch=count, kv_heads=count, capacity=whole, head_dim=count, dtype=torch.dtype)
class KVCache:
    """Of one layer: room for ``capacity`` tokens in each of ``batch`` sequences. ``lengths`` are those in use."""

    def __init__(self, batch, kv_heads, capacity, head_dim, dtype=None, device=None):
        shape = batch, kv_heads, capacity, head_dim
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self.lengths = [0] * batch

    @property
    def nbytes(self):
        return self.keys.nbytes + self.values.nbytes

    @takes(tokens=within(0, 2**20))
    def positions(self, tokens):
        """Where the next ``tokens`` of each sequence stand: [B, tokens]."""
        starts = torch.tensor(self.lengths, device=self.keys.device)
        return starts[:, None] + torch.arange(tokens, device=self.keys.device)

    @takes(k=torch.Tensor, v=torch.Tensor, counts=each_of(whole))
    def append(self, k, v, counts=None):
        """Keep k and v [B, G, T, d] behind what is there. Of row b only the first ``counts[b]`` are real; None: all.

        Returns keys and values [B, G, S, d], views up to the longest sequence, and who sees whom, bool [B, 1, T, S].
        Raises ``ValueError`` where there is no room.
        """
        self._check_shapes(k, v)
        T = k.shape[2]
        counts = [T] * len(self.lengths) if counts is None else counts
        self._check_room(T, counts)
        S, positions = max(self.lengths) + T, self.positions(T)
        rows = torch.arange(len(positions), device=k.device)[:, None]
        self.keys[rows, :, positions] = k.transpose(1, 2)
        self.values[rows, :, positions] = v.transpose(1, 2)
        self.lengths = [length + count for length, count in zip(self.lengths, counts)]
        visible = torch.arange(S, device=k.device) <= positions[:, None, :, None]
        return self.keys[:, :, :S], self.values[:, :, :S], visible

    def _check_shapes(self, k, v):
        B, G, _, d = self.keys.shape
        if k.shape != v.shape or k.ndim != 4 or k.shape != (B, G, k.shape[2], d):
            raise ValueError(
                f"KVCache: holds [{B}, {G}, tokens, {d}], got keys {list(k.shape)}, values {list(v.shape)}"
            )

    def _check_room(self, T, counts):
        B, _, capacity, _ = self.keys.shape
        if len(counts) != B or max(counts) > T:
            raise ValueError(f"KVCache: counts must be {B} numbers from 0 to {T}, got {list(counts)}")
        if max(self.lengths) + T > capacity:
            row = self.lengths.index(max(self.lengths))
            raise ValueError(
                f"KVCache: sequence {row} has {self.lengths[row]} tokens, and {T} more do not fit {capacity}"
            )
