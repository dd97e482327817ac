"""Prompts of different lengths and the tokens after them, a piece at a time, and what should come of each piece.

piece      counts           tokens of a piece, and what is padding
0          4, 1, 2          a b c d    e . . .    f g . .
1          1, 1, 1          h          i          j
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from .attend import attend
from .cache import SPARE, Cache, Plan, rotate


@dataclass(frozen=True)
class Prompts:
    heads: int
    kv_heads: int
    d: int
    counts: tuple  # of each piece: how many tokens of each row are real

    @cached_property
    def plan(self):
        """As if each token were a step of its own, from an empty cache."""
        rows, most = len(self.counts[0]), sum(map(max, self.counts))
        return Plan(self.heads, self.kv_heads, self.d, (0,) * rows, 2 * most + SPARE, most)

    @cached_property
    def starts(self):
        """Of each piece: how many tokens of each row are before it."""
        starts = [(0,) * len(self.counts[0])]
        for counts in self.counts:
            starts.append(tuple(map(sum, zip(starts[-1], counts))))
        return starts

    @cached_property
    def pieces(self):
        """q [B, H, T, d], k and v [B, G, T, d], counts [B] of each. Padding is large, so that reading it shows."""
        generator, found = torch.Generator().manual_seed(1), []
        for starts, counts in zip(self.starts, self.counts):
            piece = []
            for each in self.plan.tokens:
                padded = 5 * torch.randn(len(counts), each.shape[1], max(counts), self.d, generator=generator)
                for row, (start, count) in enumerate(zip(starts, counts)):
                    padded[row, :, :count] = each[row, :, start : start + count]
                piece.append(padded)
            found.append((*piece, torch.tensor(counts)))
        return found

    @cached_property
    def without_cache(self):
        """What each row's real tokens should gather, [H, count, d]: piece -> row."""
        q, k = self.plan.turned
        whole = F.scaled_dot_product_attention(
            *(each.double() for each in (q, k, self.plan.tokens[2])), is_causal=True, enable_gqa=True
        )
        return [
            [whole[row, :, start : start + count] for row, (start, count) in enumerate(zip(starts, counts))]
            for starts, counts in zip(self.starts, self.counts)
        ]

    def gathered(self, number, visible, turn=0):
        """Of piece ``number``, with a cache that is right: [B, H, T, d]. ``visible(positions, T, S)``: a mask;
        ``turn``: the queries to positions so much too large, or to the "longest" row's."""
        cache = self.plan.past()
        for each, (starts, (q, k, v, _)) in enumerate(zip(self.starts, self.pieces[: number + 1])):
            T = q.shape[2]
            positions = torch.tensor(starts)[:, None] + torch.arange(T)
            rows = torch.arange(len(q))[:, None]
            cache.keys[rows, :, positions] = rotate(k, positions).transpose(1, 2)
            cache.values[rows, :, positions] = v.transpose(1, 2)
        S = int(positions.max()) + 1
        at = positions.max(0).values if turn == "longest" else positions + turn
        keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
        return attend(rotate(q, at), keys, values, visible=visible(positions, T, S))


def in_pieces(answer):
    """A program: piece after piece, each with the cache as the last one left it. ``lengths``: as each left them."""

    def attend_all(cache, pieces):
        keys, values, outs, lengths = cache.keys, cache.values, [], []
        for piece in pieces:
            outs.append(answer(*piece[:3], cache, piece[3]))
            now = cache.lengths
            lengths.append(now.clone() if isinstance(now, torch.Tensor) else now)
        return outs, lengths, keys, values

    return attend_all


def empty(prompts):
    """A cache and the pieces, made anew."""
    past: Cache = prompts.plan.past()
    return past, [tuple(each.clone() for each in piece) for piece in prompts.pieces]
