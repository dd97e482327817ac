r"""Block-sparse layouts: which block of queries sees which block of keys, bool [blocks, blocks].

    window 3           longformer         fixed, causal      strided, causal    bigbird
    x x . . . .        x x x x x x        x . . . . .        x . . . . .        x x x x x x
    x x x . . .        x x x . . .        x x . . . .        x x . . . .        x x x . . .
    . x x x . .        x x x x . .        . x x . . .        x x x . . .        x x x x . .
    . . x x x .        x . x x x .        . x x x . .        . x x x . .        x . x x x x
    . . . x x x        x . . x x x        . x . x x .        x . x x x .        x . . x x x
    . . . . x x        x . . . x x        . x . x x x        . x . x x x        x . . x x x

Blocks set, of n a row, and FLOPs in proportion: w n with a window of w, (w + 2 g) n with g global ones. ``fixed`` has
one block of each window of l, 1/l of all: quadratic, with a small factor. ``strided`` by sqrt(n) has n sqrt(n).

Each layer carries information one hop along its layout: ``hops`` counts the layers that a token needs.

``causal`` drops blocks above the diagonal. Those with a random part draw from ``rng``, a ``random.Random``, row by row.
Stack [n, n] of several heads to [H, n, n] where they differ.

Sources: Child et al. 2019, Sparse Transformers, section 4 (strided, fixed); Beltagy et al. 2020, Longformer, section
3.1 (window, dilated, global); Zaheer et al. 2020, BigBird, section 2; DeepSpeed 0.19.6, ops/sparse_attention, to which
``fixed``, ``variable``, ``longformer``, ``bigbird`` and ``window`` are equal below the diagonal.
"""

import math
from random import Random

import torch

from ..rules import each_of, flag, validate, within

blocks, some = within(1, 2**16), within(0, 2**16)


@validate(n=blocks, width=blocks, causal=flag)
def window(n, width=3, causal=False):
    """The ``width // 2`` blocks to each side."""
    i, j = places(n)
    return kept((i - j).abs() <= width // 2, causal)


@validate(n=blocks, width=blocks, step=blocks, causal=flag)
def dilated(n, width=3, step=2, causal=False):
    """A window with gaps: each ``step``-th block, ``width // 2`` of them to each side."""
    i, j = places(n)
    return kept(((i - j).abs() <= width // 2 * step) & ((i - j) % step == 0), causal)


@validate(n=blocks, stride=blocks, causal=flag)
def strided(n, stride, causal=False):
    """The nearest ``stride`` blocks, and each ``stride``-th of all."""
    i, j = places(n)
    return kept(((i - j).abs() < stride) | ((i - j) % stride == 0), causal)


@validate(n=blocks, local=blocks, summary=blocks, pattern=some, causal=flag, horizontal=flag)
def fixed(n, local=4, summary=1, pattern=0, causal=False, horizontal=False):
    """Windows of ``local`` blocks side by side, and ``summary`` blocks of each window, which all see.

    pattern: 0 takes the last ones of a window, 1 those before them, ...; horizontal: they see all, too.
    """
    if local % summary or (pattern + 1) * summary > local:
        raise ValueError(
            f"fixed: summary ({summary}) must divide local ({local}), and pattern ({pattern}) be less than the quotient"
        )
    i, j = places(n)
    first, whole_windows = local - (pattern + 1) * summary, n // local * local
    at = torch.arange(n)
    chosen = (at < whole_windows) & (at % local >= first) & (at % local < first + summary)
    if whole_windows < n:  # the last window is shorter
        start = max(0, min(whole_windows + first, n - summary))
        chosen[start : start + summary] = True
    return kept((i // local == j // local) | seen_by_all(chosen, horizontal), causal)


@validate(
    n=blocks, windows=each_of(blocks), globals=each_of(some, 0), random=some, causal=flag, horizontal=flag, rng=Random
)
def variable(n, windows=(4,), globals=(0,), random=0, causal=False, horizontal=False, rng=None):
    """Windows of these lengths side by side, the last one repeated; global blocks; ``random`` ones in each row."""
    ends = torch.tensor(windows).cumsum(0)
    at = torch.arange(n)
    number = torch.bucketize(at, ends, right=True)
    number = torch.where(at < ends[-1], number, len(windows) + (at - ends[-1]).div(windows[-1], rounding_mode="floor"))
    local = number[:, None] == number
    return kept(local | seen_by_all(listed(n, globals), horizontal) | drawn(n, random, False, rng), causal)


@validate(n=blocks, width=blocks, globals=each_of(some, 0), causal=flag)
def longformer(n, width=3, globals=(0,), causal=False):
    """A window, and global blocks that all see and that see all."""
    return kept(window(n, width) | seen_by_all(listed(n, globals), True), causal)


@validate(n=blocks, width=blocks, globals=some, random=some, causal=flag, rng=Random)
def bigbird(n, width=3, globals=1, random=1, causal=False, rng=None):
    """A window, the first blocks as global ones, and ``random`` blocks in each row."""
    return kept(window(n, width) | seen_by_all(listed(n, range(globals)), True) | drawn(n, random, causal, rng), causal)


@validate(layout=torch.Tensor)
def hops(layout):
    """Layers until what block j knows has come to block i, float [n, n]; inf: never. Of heads [H, n, n]: by any."""
    step = check_layout("hops", layout).any(0)
    known, layers = torch.eye(len(step), dtype=torch.bool), 0
    needed = torch.where(known, 0.0, math.inf)
    while True:
        further = known | (step.float() @ known.float() > 0)
        if torch.equal(further, known):
            return needed
        known, layers = further, layers + 1
        needed = torch.where(known & needed.isinf(), float(layers), needed)


# What layouts are made of.


def places(n):
    at = torch.arange(n)
    return at[:, None], at[None, :]


def kept(layout, causal):
    return layout.tril() if causal else layout


def listed(n, numbers):
    """Those of the blocks ``numbers`` that exist, bool [n]."""
    return torch.isin(torch.arange(n), torch.tensor([*numbers], dtype=torch.long))


def seen_by_all(chosen, horizontal):
    """Columns of these blocks, and rows if they see all, too."""
    return chosen[None, :] | chosen[:, None] if horizontal else chosen[None, :].expand(len(chosen), -1)


def drawn(n, number, causal, rng):
    rng = Random(0) if rng is None else rng
    layout = torch.zeros(n, n, dtype=torch.bool)
    for row in range(n if number else 0):
        among = row + 1 if causal else n
        layout[row, rng.sample(range(among), min(number, among))] = True
    return layout


def check_layout(name, layout):
    """[H, n, m], of one head if it has two dims."""
    if layout.dtype != torch.bool or layout.ndim not in (2, 3):
        raise ValueError(
            f"{name}: layout must be bool [heads, blocks, blocks] or [blocks, blocks], got {layout.dtype} "
            f"{list(layout.shape)}"
        )
    return layout if layout.ndim == 3 else layout[None]
