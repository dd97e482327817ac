"""What becomes of each kind of layer, in a few lines: it is changed, or another that is returned takes its place."""

from dataclasses import dataclass

from .dropout import OwnDropout, Tracker
from .embedding import VocabularyParallelEmbedding
from .heads import column_parallel_heads
from .layouts import Layout
from .linear import ColumnParallelLinear, RowParallelLinear


@dataclass
class To:
    """How ``shard`` was asked to."""

    layout: Layout
    tracker: Tracker
    again: bool  # are tokens gathered again in backward?
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
        linear = ColumnParallelLinear(getattr(module, name), to.layout, again=to.again, entered=len(up) > 1)
        setattr(module, name, linear)
    setattr(module, down, RowParallelLinear(getattr(module, down), to.layout))


def attention(module, to, out, fused=None, queries=None, keys=(), dropout=None):
    """By columns, a head as a whole, then by rows. Queries, keys and values come of one layer, or of one each."""
    if fused:
        linear = getattr(module, fused)
        setattr(module, fused, column_parallel_heads(linear, to.layout, module.head_dim, blocks=3, again=to.again))
    else:
        for name in (queries, *keys):
            options = {"entered": True, "copied": name in keys}  # of keys there may be fewer than ranks
            setattr(module, name, column_parallel_heads(getattr(module, name), to.layout, module.head_dim, **options))
        cut = getattr(module, keys[0]).weight.cut
        fewer = {"heads": to.layout.ranks, "kv_heads": cut.parts, "num_key_value_groups": cut.copies}
        for name in fewer.keys() & vars(module).keys():  # what it knows of their number
            setattr(module, name, getattr(module, name) // fewer[name])
    setattr(module, out, RowParallelLinear(getattr(module, out), to.layout))
    if dropout:
        setattr(module, dropout, OwnDropout(getattr(module, dropout), to.tracker))


def logits(linear, to):
    """Each rank's are those of its part of the vocabulary."""
    return ColumnParallelLinear(linear, to.layout, again=to.again, gather_output=to.gather_logits)
