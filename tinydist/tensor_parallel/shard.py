"""Shards a plain model for tensor parallelism: a table maps module names to kinds of layers.

    "blocks.*.mlp": partial(mlp, up=["up"], down="down")          names are those of modules; * is any one name

The model's own ``forward`` stays: its layers are just narrower. All ranks of the group pass the same tokens, compute
the same loss, and hold 1/t of each sharded parameter. kinds.py has the kinds of layers.
"""

import re
from functools import partial

import torch.distributed as dist
from torch import nn

from ..annotate import label
from ..collectives.agreement import broadcast_all, check_same_parameters
from ..rules import flag, function, named, one_of, validate
from .cuts import cut_of
from .dropout import RNGTracker
from .kinds import ShardContext, attention, begin, dropout, logits, mlp, norm, vocabulary
from .layouts import WAYS, Replicated, SequenceParallel
from .loss import cross_entropy

GPT = {  # tinydist.model
    "embedding": vocabulary,
    "dropout": partial(dropout, begins=True),
    "blocks.*.attention_norm": norm,
    "blocks.*.attention": partial(attention, fused="qkv", dropout="dropout", out="out"),
    "blocks.*.mlp_norm": norm,
    "blocks.*.mlp": partial(mlp, up=["up"], down="down"),
    "blocks.*.dropout": dropout,
    "norm": norm,
    "head": logits,
}
DECODER = {  # tinydist.attention
    "embedding": vocabulary,
    "blocks.0": begin,
    "blocks.*.attention_norm": partial(norm, enters=True),
    "blocks.*.attention": partial(attention, queries="query", keys=["key", "value"], out="out"),
    "blocks.*.mlp_norm": partial(norm, enters=True),
    "blocks.*": partial(mlp, up=["gate", "up"], down="down"),
    "norm": norm,
    "head": logits,
}
LLAMA = {  # transformers.LlamaForCausalLM, and those that are built like it
    "model.embed_tokens": vocabulary,
    "model.layers.0": begin,
    "model.layers.*.input_layernorm": partial(norm, enters=True),
    "model.layers.*.self_attn": partial(attention, queries="q_proj", keys=["k_proj", "v_proj"], out="o_proj"),
    "model.layers.*.post_attention_layernorm": partial(norm, enters=True),
    "model.layers.*.mlp": partial(mlp, up=["gate_proj", "up_proj"], down="down_proj"),
    "model.norm": norm,
    "lm_head": logits,
}
TABLES = {"GPT": GPT, "DECODER": DECODER, "LLAMA": LLAMA}


@validate(model=nn.Module, group=dist.ProcessGroup, gather_logits=flag, table=named(function))
@validate(sequence_parallel=one_of(WAYS), async_grad_reduce=flag)
def shard(model, group=None, *, sequence_parallel=None, async_grad_reduce=True, gather_logits=False, table=None):
    """Shard ``model`` in place over ``group``. All ranks pass the same model; rank 0's weights are broadcast.

    sequence_parallel:  in training. ``"save"`` the gathered input for backward, ``"regather"`` it in backward, or
                        ``"overlap"`` a ring all-gather with the matmul (ring.py). Where several layers share the input,
                        as a gate and its value do, it is saved.
    async_grad_reduce:  backward's collectives overlap with computing the weights' gradients.
    gather_logits:      the model returns all logits, for decoding. Else those of its part of the vocabulary, which a
                        GPT's ``loss`` handles; for other models use ``cross_entropy``.
    table:              module name, with * for any one name -> a function (module, context) that shards it (kinds.py).

    Raises ``ValueError`` if heads are not divisible, or no table fits.
    """
    table = table or min(TABLES.values(), key=lambda table: len(missing(model, table)))
    if lacks := missing(model, table):
        raise ValueError(f"shard: the model has no {', '.join(lacks)}. Pass a table that maps its modules to kinds")
    check_same_parameters("shard", model, group)
    broadcast_all([*model.parameters(), *model.buffers()], group=group)
    tied = together(model)
    layout = (
        SequenceParallel(group, async_grad_reduce, way=sequence_parallel)
        if sequence_parallel
        else Replicated(group, async_grad_reduce)
    )
    context = ShardContext(layout, RNGTracker(group), gather_logits)
    for pattern, kind in table.items():
        for name in matching(model, pattern):
            changed = kind(model.get_submodule(name), context)
            if changed is not None:
                model.set_submodule(name, changed)
    for first, *others in tied:
        for name in others:
            owner, _, own = name.rpartition(".")
            setattr(model.get_submodule(owner), own, model.get_parameter(first))
    if hasattr(model, "cross_entropy") and not gather_logits:
        model.cross_entropy = partial(cross_entropy, vocab_size=model.config.vocab_size, group=group)
    for name, parameter in model.named_parameters():
        cut = cut_of(parameter)
        if cut:
            label(parameter, name, shard=dist.get_rank(), dim=cut.dim)
    return model


def matching(model, pattern):
    wanted = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
    return [name for name, _ in model.named_modules() if wanted.fullmatch(name)]


def missing(model, table):
    return [pattern for pattern in looked_for(table) if not matching(model, pattern)]


def looked_for(table):
    """Names of modules: of each row, and those inside of it that its kind takes by name."""
    for pattern, kind in table.items():
        yield pattern
        for asked in getattr(kind, "keywords", {}).values():
            names = [asked] if isinstance(asked, str) else asked if isinstance(asked, list) else []
            yield from (f"{pattern}.{name}" for name in names)


def together(model):
    """Names of each tied weight."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return [each for each in names.values() if len(each) > 1]
