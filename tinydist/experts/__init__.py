"""Mixture of experts: more parameters for the same FLOPs per token; expert parallelism: an all-to-all in every layer.

routing.py        assignments of tokens to experts, and the count of what became of them
router.py         who chooses: the best k by softmax or sigmoid, with a bias, in groups; or each expert
capacity.py       an expert takes no more than so many; what is dropped
expert.py         the experts of a rank, and their grouped product (dropless)
all_to_all.py     an all-to-all in two halves, in forward and backward
dispatch.py       tokens to the ranks of their experts and back
hierarchical.py   the same over nodes: a token is sent to a node once
layer.py          the layer; shared experts while the dispatch is under way; what it must equal
interleave.py     two microbatches in turn: one computes while the other travels
paired.py         the backward of one beside the forward of the next
balance.py        losses that balance the load, and a bias that does it without
insert.py         a GPT whose MLPs become MoE layers
shard.py          a model with all experts: each rank keeps its own
parts.py          gradients of experts and of the rest: over which ranks; checkpoints that move experts
sizes.py          parameters, flops, bytes
"""

from .all_to_all import AllToAll
from .balance import auxiliary_loss, balance_loss, max_violation, update_biases, z_loss
from .capacity import capacity, limited
from .expert import Expert, Experts
from .insert import with_experts
from .interleave import interleaved, losses_of
from .layer import MoE, dense
from .paired import paired
from .parts import Parts, clip_grad_norm_, split
from .router import EvenRouter, ExpertChoice, Router
from .routing import Load, Routing
from .shard import alone, shard_experts
from .sizes import Sizes, across_bytes, copies_per_token, dispatch_cost

__all__ = [
    "AllToAll",
    "EvenRouter",
    "Expert",
    "ExpertChoice",
    "Experts",
    "Load",
    "MoE",
    "Parts",
    "Router",
    "Routing",
    "Sizes",
    "across_bytes",
    "alone",
    "auxiliary_loss",
    "balance_loss",
    "capacity",
    "clip_grad_norm_",
    "copies_per_token",
    "dense",
    "dispatch_cost",
    "interleaved",
    "limited",
    "losses_of",
    "max_violation",
    "paired",
    "shard_experts",
    "split",
    "update_biases",
    "with_experts",
    "z_loss",
]
