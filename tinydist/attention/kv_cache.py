"""KV cache: keys and values of the past are kept, so that a new token costs one row and not all of them.

    prefill   the prompts at once           a b c d         decode    one token a sequence at a time
                                            e f . .         (d, f are the last: they predict what comes next)

    slots     0  1  2  3  4  5
    row 0     a  b  c  d  g  i              lengths 4 -> 5 -> 6
    row 1     e  f  h  j                            2 -> 3 -> 4        the padding after f is written over

Sequences of different lengths share a batch: each row writes behind its own last token, and nobody sees what is behind.
Without the cache, n tokens after a prompt of T cost n forward passes of T to T + n tokens each.

    bytes a token = 2 layers kv_heads head_dim (bytes a number)        Llama 2 7B: 512 KiB. 4096 tokens: 2 GiB

A decode step reads all of it once and the weights once, for a few FLOPs a byte: it is bound by memory.

Sources: Shazeer 2019, Fast Transformer Decoding, section 2.4; Pope et al. 2022, Efficiently Scaling Transformer
Inference, section 2; Kwon et al. 2023, PagedAttention, section 3 (800 KB a token for OPT 13B).
"""

from functools import partial

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


class Slots:
    """Room for ``capacity`` tokens in each of ``batch`` sequences: tensors [batch, G, capacity, d], a row for a token.

    lengths:  the tokens in use, of each sequence.
    """

    def __init__(self, **tensors):
        self.names, self.tensors = tuple(tensors), tuple(tensors.values())
        self.lengths = [0] * len(self.tensors[0])

    @property
    def nbytes(self):
        return sum(each.nbytes for each in self.tensors)

    @takes(tokens=within(0, 2**20))
    def positions(self, tokens):
        """Where the next ``tokens`` of each sequence stand: [B, tokens]."""
        device = self.tensors[0].device
        return torch.tensor(self.lengths, device=device)[:, None] + torch.arange(tokens, device=device)

    @takes(counts=each_of(whole))
    def keep(self, *rows, counts=None):
        """Write rows [B, G, T, d] behind what is there. Of sequence b only the first ``counts[b]`` are real; None: all.

        Returns views [B, G, S, d] up to the longest sequence. Raises ``ValueError`` where there is no room.
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

    def behind(self, attend):
        """``attend`` for queries that follow what is in use now, and keys and values that ``keep`` returns after."""
        return partial(attend_behind, self.lengths, attend)

    def _check_shapes(self, rows):
        B, G, _, d = self.tensors[0].shape
        if any(each.ndim != 4 or each.shape != (B, G, rows[0].shape[2], d) for each in rows):
            got = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(self.names, rows))
            raise ValueError(f"{type(self).__name__}: holds [{B}, {G}, tokens, {d}], got {got}")

    def _check_room(self, T, counts):
        name, (B, _, capacity, _) = type(self).__name__, self.tensors[0].shape
        if len(counts) != B or max(counts) > T:
            raise ValueError(f"{name}: counts must be {B} numbers from 0 to {T}, got {list(counts)}")
        if max(self.lengths) + T > capacity:
            row = self.lengths.index(max(self.lengths))
            raise ValueError(
                f"{name}: sequence {row} has {self.lengths[row]} tokens, and {T} more do not fit {capacity}"
            )


@takes(batch=count, kv_heads=count, capacity=whole, head_dim=count, dtype=torch.dtype)
class KVCache(Slots):
    """Of one layer: keys and values [batch, kv_heads, capacity, head_dim]."""

    def __init__(self, batch, kv_heads, capacity, head_dim, dtype=None, device=None):
        shape = batch, kv_heads, capacity, head_dim
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        super().__init__(keys=self.keys, values=self.values)

    @takes(k=torch.Tensor, v=torch.Tensor, counts=each_of(whole))
    def append(self, k, v, counts=None):
        """``keep`` k and v [B, G, T, d], and say who sees whom.

        Returns keys and values [B, G, S, d], and a bool [B, 1, T, S]: a token sees itself, and its sequence before it.
        """
        past = torch.tensor(self.lengths, device=k.device)[:, None, None, None]
        keys, values = self.keep(k, v, counts=counts)
        distance = torch.arange(keys.shape[2], device=k.device) - torch.arange(k.shape[2], device=k.device)[:, None]
        return keys, values, distance <= past


def attend_behind(past, attend, q, k, v, **options):
    """Queries [B, H, T, d] that follow ``past[b]`` tokens of sequence b: each sees itself and all before it.

    k, v:     as ``keep`` returns them, [B, G, S, d] with S = T + the largest of past.
    options:  go to ``attend``, beside ``causal=True`` and, where sequences are not equally long, ``past``.
    """
    if len(set(past)) > 1:
        options["past"] = past
    return attend(q, k, v, causal=True, **options)


def check_call(attention, x, dim, cache, counts, options):
    """What a module takes that attends with a cache or without."""
    name = type(attention).__name__
    if x.ndim != 3 or x.shape[2] != dim:
        raise ValueError(f"{name}: takes [batch, tokens, {dim}], got {list(x.shape)}")
    if cache is not None and options:
        raise ValueError(f"{name}: {', '.join(options)} cannot be passed together with a cache")
    if cache is None and counts is not None:
        raise ValueError(f"{name}: counts requires a cache")
