"""A plain model becomes tensor parallel from outside: a table says which of its layers is of which kind.

    "blocks.*.mlp": partial(mlp, up=["up"], down="down")          names are those of modules; * is any one name

The model's own ``forward`` stays: it does not know that its layers have become narrower. All ranks of the group pass
the same tokens, compute the same loss, and hold 1/t of all that is cut. kinds.py says what each kind becomes.
"""

import re
from functools import partial

import torch.distributed as dist
from torch import nn

from ..annotate import label
from ..collectives.agreement import broadcast_all, check_same_parameters
from ..rules import flag, function, named, one_of, takes
from .cuts import cut_of
from .dropout import Tracker
from .kinds import To, attention, begin, dropout, logits, mlp, norm, vocabulary
from .layouts import WAYS, Tokens, Whole
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


@takes(model=nn.Module, group=dist.ProcessGroup, gather_logits=flag, table=named(function))
@takes(sequence=one_of(WAYS), overlap=flag)
def shard(model, group=None, *, sequence=None, overlap=True, gather_logits=False, table=None):
    """``model``, in place: each rank of ``group`` keeps its part of it. All ranks bring the same, and get rank 0's.

    sequence:       sequence parallelism, in training. ``"save"`` the gathered input for backward, ``"regather"`` it in
                    backward, or ``"overlap"`` a ring all-gather with the matmul (ring.py). Where several layers share
                    the input, as a gate and its value do, it is saved.
    overlap:        what backward sends is on its way while gradients of weights are computed.
    gather_logits:  the model gives all logits, for decoding. Else each rank's are of its part of the vocabulary, and a
                    GPT's ``loss`` knows; for other models there is ``cross_entropy``.
    table:          name of a module, with * for any one name -> what becomes of it.

    Raises ``ValueError`` where heads do not divide, or no table fits.
    """
    table = table or min(TABLES.values(), key=lambda table: len(missing(model, table)))
    if lacks := missing(model, table):
        raise ValueError(
            f"shard: the model has no {', '.join(lacks)}. Pass a table that says which of its modules is of which kind"
        )
    check_same_parameters("shard", model, group)
    broadcast_all([*model.parameters(), *model.buffers()], group=group)
    tied = together(model)
    layout = Tokens(group, overlap, way=sequence) if sequence else Whole(group, overlap)
    to = To(layout, Tracker(group), gather_logits)
    for pattern, kind in table.items():
        for name in matching(model, pattern):
            changed = kind(model.get_submodule(name), to)
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
    """Modules: of each row, and those inside of it that its kind asks for by name."""
    for pattern, kind in table.items():
        yield pattern
        for asked in getattr(kind, "keywords", {}).values():
            names = [asked] if isinstance(asked, str) else asked if isinstance(asked, list) else []
            yield from (f"{pattern}.{name}" for name in names)


def together(model):
    """Names of each parameter that has several: tied weights."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return [each for each in names.values() if len(each) > 1]
