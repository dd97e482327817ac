"""A cache for sequences of different lengths, some steps of decoding, and what should come of them.

Before the first step row b holds ``lengths[b]`` tokens, its keys turned to their positions. Slots that are not in use
hold large numbers, so that reading one shows.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from ....attention import rotate
from .attend import LOW, with_score

SPARE = 2  # slots that stay free after the last step


@dataclass
class Cache:
    keys: torch.Tensor  # [B, G, slots, d]
    values: torch.Tensor
    lengths: torch.Tensor  # [B]

    @property
    def nbytes(self):
        return self.keys.nbytes + self.values.nbytes + self.lengths.nbytes

    def copy(self):
        return Cache(self.keys.clone(), self.values.clone(), self.lengths.clone())


@dataclass(frozen=True)
class Plan:
    heads: int
    kv_heads: int
    d: int
    lengths: tuple  # of each row, before the first step
    slots: int
    steps: int = 3
    low: bool = False  # the first query of an empty row has a score of LOW with its key

    @cached_property
    def tokens(self):
        """q [B, H, n, d], k and v [B, G, n, d] of all tokens, not turned; those of the steps are the last."""
        generator, n = torch.Generator().manual_seed(sum(self.lengths)), max(self.lengths) + self.steps
        q, k, v = (
            torch.randn(len(self.lengths), heads, n, self.d, generator=generator)
            for heads in (self.heads, self.kv_heads, self.kv_heads)
        )
        if self.low:
            row = self.lengths.index(0)
            q[row, :, 0] = with_score(LOW, k[row, :, 0], self.heads)
        return q, k, v

    @cached_property
    def turned(self):
        """q and k of all tokens, each where it stands."""
        q, k, _ = self.tokens
        return [rotate(each, torch.arange(each.shape[2])) for each in (q, k)]

    def past(self):
        """A cache before the first step."""
        generator = torch.Generator().manual_seed(0)
        shape = len(self.lengths), self.kv_heads, self.slots, self.d
        keys, values = (10 * torch.randn(shape, generator=generator) for _ in range(2))
        for row, length in enumerate(self.lengths):
            keys[row, :, :length] = self.turned[1][row, :, :length]
            values[row, :, :length] = self.tokens[2][row, :, :length]
        return Cache(keys, values, torch.tensor(self.lengths))

    def step(self, number):
        """q [B, H, 1, d], k and v [B, G, 1, d] of each row's next token."""
        at = [length + number for length in self.lengths]
        return [torch.stack([each[row, :, i : i + 1] for row, i in enumerate(at)]) for each in self.tokens]

    def after(self, steps):
        """The cache as it should be."""
        cache = self.past()
        for row, length in enumerate(self.lengths):
            new = slice(length, length + steps)
            cache.keys[row, :, new] = self.turned[1][row, :, new]
            cache.values[row, :, new] = self.tokens[2][row, :, new]
        cache.lengths += steps
        return cache

    def without_cache(self, number):
        """What step ``number`` should return: each row as if it were alone, from all of its tokens. [B, H, 1, d]"""
        results = []
        for row, length in enumerate(self.lengths):
            q, k, v = (
                each[row : row + 1, :, : length + number + 1].double() for each in (*self.turned, self.tokens[2])
            )
            results.append(F.scaled_dot_product_attention(q[:, :, -1:], k, v, enable_gqa=True))
        return torch.cat(results)


def generating(answer):
    """A program: step after step, each with the cache as the last one left it."""

    def generate(cache, steps):
        keys, values = cache.keys, cache.values
        return [answer(*step, cache) for step in steps], keys, values

    return generate
