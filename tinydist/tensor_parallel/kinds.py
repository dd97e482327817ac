"""What becomes of each kind of layer, in a few lines: it is changed, or another that is returned takes its place.

Each rank has some of attention's heads, and they never meet but in the sum behind them.

    4 ranks      queries   0 1 | 2 3 | 4 5 | 6 7             H = 8 heads: 2 each
                 keys       0  |  0  |  1  |  1              G = 2: fewer than ranks, so each is on two of them

A rank needs the keys and values that its queries read: G/t heads, or one, of which there are t/G copies. Queries read
the copies of several ranks, so the gradient of a copy is a summand: they are added up among those that have it, and the
copies stay the same. Source: Shoeybi et al., Megatron-LM, 2019, section 3; Ainslie et al., GQA, 2023, section 2.2.
"""

from dataclasses import dataclass

from .cuts import Cut
from .dropout import OwnDropout, Tracker
from .embedding import VocabularyParallelEmbedding
from .layouts import Layout
from .linear import ColumnParallelLinear, RowParallelLinear


@dataclass
class To:
    """How ``shard`` was asked to."""

    layout: Layout
    tracker: Tracker
    gather_logits: bool


def vocabulary(embedding, to):
    return VocabularyParallelEmbedding(embedding, to.layout.group)


def begin(module, to):
    """What enters here is whole; from here on a rank has its own tokens, if they are cut."""
    if to.layout.cuts_tokens:
        module.register_forward_pre_hook(lambda module, inputs: (to.layout.own(inputs[0]), *inputs[1:]))


def norm(module, to, enters=False):
    """It sees a rank's own tokens, if they are cut. ``enters``: for all layers behind it at once."""
    if to.layout.cuts_tokens:
        for parameter in module.parameters():
            to.layout.add_up_gradient(parameter)
    if enters:
        module.register_forward_hook(lambda module, inputs, output: to.layout.enter(output))


def dropout(module, to, begins=False):
    """Of what is between layers. ``begins``: see ``begin``."""
    module = OwnDropout(module, to.tracker) if to.layout.cuts_tokens else module
    if begins:
        begin(module, to)
    return module


def mlp(module, to, up, down):
    """By columns, then by rows. ``up``: of several, all take what the norm before them has entered."""
    for name in up:
        setattr(module, name, ColumnParallelLinear(getattr(module, name), to.layout, entered=len(up) > 1))
    setattr(module, down, RowParallelLinear(getattr(module, down), to.layout))


def attention(module, to, out, fused=None, queries=None, keys=(), dropout=None):
    """By columns, a head as a whole, then by rows. Queries, keys and values come of one layer, or of one each."""
    if fused:
        cut = cut_heads(to.layout, getattr(module, fused), module.head_dim, blocks=3)
        setattr(module, fused, ColumnParallelLinear(getattr(module, fused), to.layout, cut=cut))
    else:
        for name in (queries, *keys):
            cut = cut_heads(to.layout, getattr(module, name), module.head_dim, copied=name in keys)
            setattr(module, name, ColumnParallelLinear(getattr(module, name), to.layout, cut=cut, entered=True))
        cut = getattr(module, keys[0]).weight.cut
        fewer = {"heads": to.layout.ranks, "kv_heads": cut.parts, "num_key_value_groups": cut.copies}
        for name in fewer.keys() & vars(module).keys():  # what it knows of their number
            setattr(module, name, getattr(module, name) // fewer[name])
    setattr(module, out, RowParallelLinear(getattr(module, out), to.layout))
    if dropout:
        setattr(module, dropout, OwnDropout(getattr(module, dropout), to.tracker))


def logits(linear, to):
    """Each rank's are those of its part of the vocabulary."""
    return ColumnParallelLinear(linear, to.layout, gather_output=to.gather_logits)


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
