"""How each kind of layer is sharded: modified in place, or replaced by the returned module.

Attention is sharded by heads; their outputs meet only in the sum of the output projection.

    4 ranks      queries   0 1 | 2 3 | 4 5 | 6 7             H = 8 heads: 2 each
                 keys       0  |  0  |  1  |  1              G = 2: fewer than ranks, so each is on two of them

A rank needs the keys and values that its queries read: G/t heads, or one, of which there are t/G copies. Queries read
the copies of several ranks, so the gradient of a copy is a summand: they are added up among those that have it, and the
copies stay the same. Source: Shoeybi et al., Megatron-LM, 2019, section 3; Ainslie et al., GQA, 2023, section 2.2.
"""

from dataclasses import dataclass

from .cuts import Cut
from .dropout import RNGTracker, ShardedDropout
from .embedding import VocabParallelEmbedding
from .layouts import ActivationLayout
from .linear import ColumnParallelLinear, RowParallelLinear


@dataclass
class ShardContext:
    """The options of ``shard``."""

    layout: ActivationLayout
    tracker: RNGTracker
    gather_logits: bool


def vocabulary(embedding, context):
    return VocabParallelEmbedding(embedding, context.layout.group)


def begin(module, context):
    """The input is replicated; from here on, with sequence parallelism, a rank has its own part of the sequence."""
    if context.layout.cuts_tokens:
        module.register_forward_pre_hook(lambda module, inputs: (context.layout.own(inputs[0]), *inputs[1:]))


def norm(module, context, enters=False):
    """With sequence parallelism, on a rank's own tokens. ``enters``: its output enters all following layers at once."""
    if context.layout.cuts_tokens:
        for parameter in module.parameters():
            context.layout.add_up_gradient(parameter)
    if enters:
        module.register_forward_hook(lambda module, inputs, output: context.layout.enter(output))


def dropout(module, context, begins=False):
    """Of activations between layers. ``begins``: see ``begin``."""
    module = ShardedDropout(module, context.tracker) if context.layout.cuts_tokens else module
    if begins:
        begin(module, context)
    return module


def mlp(module, context, up, down, blocks=1):
    """Column-parallel, then row-parallel. ``up``: if several, the norm before them has entered their input.

    ``blocks``: 2 for one layer whose rows are those of a gate, and then those of its value (``gate_up_proj``).
    """
    for name in up:
        linear = getattr(module, name)
        cut = Cut.among(context.layout, 0, linear.out_features, blocks)
        setattr(module, name, ColumnParallelLinear(linear, context.layout, entered=len(up) > 1, cut=cut))
    setattr(module, down, RowParallelLinear(getattr(module, down), context.layout))


def attention(module, context, out, fused=None, queries=None, keys=(), dropout=None):
    """Column-parallel by whole heads, then row-parallel. Queries, keys and values in one layer, or in one each."""
    if fused:
        cut = cut_heads(context.layout, getattr(module, fused), module.head_dim, blocks=3)
        setattr(module, fused, ColumnParallelLinear(getattr(module, fused), context.layout, cut=cut))
    else:
        for name in (queries, *keys):
            cut = cut_heads(context.layout, getattr(module, name), module.head_dim, copied=name in keys)
            setattr(module, name, ColumnParallelLinear(getattr(module, name), context.layout, cut=cut, entered=True))
        cut = getattr(module, keys[0]).weight.cut
        fewer = {"heads": context.layout.ranks, "kv_heads": cut.parts, "num_key_value_groups": cut.copies}
        for name in fewer.keys() & vars(module).keys():  # its attributes for their number
            setattr(module, name, getattr(module, name) // fewer[name])
    setattr(module, out, RowParallelLinear(getattr(module, out), context.layout))
    if dropout:
        setattr(module, dropout, ShardedDropout(getattr(module, dropout), context.tracker))


def logits(linear, context):
    """Each rank computes those of its part of the vocabulary."""
    return ColumnParallelLinear(linear, context.layout, gather_output=context.gather_logits)


def cut_heads(layout, linear, head_dim, blocks=1, copied=False):
    """The cut of a projection to heads of ``head_dim``. ``copied``: there may be fewer of them than ranks."""
    t, size = layout.ranks, linear.out_features
    heads = size // blocks // head_dim
    if heads % t == 0:
        return Cut.among(layout, 0, size, blocks)
    if copied and t % heads == 0:
        return Cut(0, size, layout.rank * heads // t, heads, t // heads, blocks)
    rule = (
        f"num_kv_heads ({heads}) must divide, or be divisible by,"
        if copied
        else f"num_heads ({heads}) must be divisible by"
    )
    raise ValueError(f"shard: {rule} the tensor-parallel degree ({t})")
