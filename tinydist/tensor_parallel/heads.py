"""Heads: each rank has some of attention's heads, and they never meet but in the sum behind them.

    4 ranks      queries   0 1 | 2 3 | 4 5 | 6 7             H = 8 heads: 2 each
                 keys       0  |  0  |  1  |  1              G = 2: fewer than ranks, so each is on two of them

A rank needs the keys and values that its queries read: G/t heads, or one, of which there are t/G copies. Queries read
the copies of several ranks, so the gradient of a copy is a summand: they are added up among those that have it, and the
copies stay the same. Source: Shoeybi et al., Megatron-LM, 2019, section 3; Ainslie et al., GQA, 2023, section 2.2.
"""

from .cuts import Cut


def cut_heads(layout, linear, head_dim, blocks=1, copied=False):
    """The cut of what gives heads of ``head_dim`` channels. ``copied``: there may be fewer of them than ranks."""
    t, size = layout.ranks, linear.out_features
    heads = size // blocks // head_dim
    if heads % t == 0:
        return Cut.among(layout, 0, size, blocks)
    if copied and t % heads == 0:
        return Cut(0, size, layout.rank * heads // t, heads, t // heads, blocks)
    what, rule = ("key heads", "neither divides the other") if copied else ("heads", "ranks have as many each")
    raise ValueError(f"shard: {heads} {what} on {t} ranks: {rule}")
