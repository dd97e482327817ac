"""What a plan gives each rank of a model: layers, tokens, and parameters, of the dense part and of experts."""

from dataclasses import replace
from functools import lru_cache

from ..plan import evenly
from .buckets import block_of


@lru_cache(4096)
def on_ranks(model, ep):
    """As one of ``ep`` ranks that share the experts has it."""
    return replace(model, experts=replace(model.experts, ranks=ep)) if model.experts else model


def tokens_of(plan, model):
    """Of a microbatch, on a rank of a context group."""
    return plan.microbatch * model.tokens // plan.cp


def layers_of(plan, model):
    """Of each pipeline rank: all its stages."""
    return dealt_out(model.layers, plan.pp, plan.chunks)


@lru_cache(4096)
def dealt_out(layers, pp, chunks):
    stages = evenly(layers, pp * chunks)
    return tuple(sum(stages[rank::pp]) for rank in range(pp))


def shares_of(model, plan):
    """Of the dense part, and of experts: parameters on each rank of a pipeline; ranks that shard them."""
    dense = parameters(model, plan), plan.shards
    if not model.experts:
        return [dense]
    numbers = [count * block_of(model, plan.tp, True) for count in layers_of(plan, model)]
    numbers[0] -= model.dense_layers * block_of(model, plan.tp, True)
    return [dense, (numbers, plan.expert_shards)]


def parameters(model, plan):
    """On each rank of a pipeline, without experts."""
    layer, table = block_of(model, plan.tp, False), model.vocabulary * model.width / plan.tp
    ranks = [count * layer for count in layers_of(plan, model)]
    if model.experts:
        ranks[0] += model.dense_layers * (block_of(model.dense, plan.tp) - layer)
    ranks[0] += table + model.tokens * model.width * (model.positions == "learned")
    if plan.pp > 1 or not model.tied:
        ranks[-1] += table
    ranks[-1] += model.norm_size
    return ranks
