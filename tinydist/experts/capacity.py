"""Capacity: an expert takes at most C assignments of a rank's tokens; those beyond it are dropped.

    C = ceil(factor k N / E)                    N tokens of the rank, k experts for each, E experts

Buffers then have a size that is known before, E C rows, however the router chooses; the price are tokens that an expert
does not see: for them the layer adds nothing, and the residual connection carries them on. At factor 1 nothing is left
over only if the load is exactly even; E/k drops nothing, and computes E/k times too much if buffers are padded.

    by position     the first C in the sequence stay (Switch): what comes late is dropped
    by weight       those with the largest weights stay

The library pads nothing: C bounds what a rank may get, rows that do not exist are neither sent nor computed.
Sources: Lepikhin et al., GShard, 2020, section 2.2; Fedus et al., Switch Transformers, 2021, section 2.2.
"""

import math

import torch

from ..rules import count, one_of, positive, validate, whole
from .routing import Routing, places

ORDERS = ("position", "weight")


@validate(tokens=whole, experts=count, top_k=count, factor=positive, least=whole)
def capacity(tokens, experts, top_k, factor=1.25, least=0):
    """How many assignments an expert takes. ``least``: never fewer (DeepSpeed: 4)."""
    return max(math.ceil(float(factor) * top_k * tokens / experts), least)


@validate(routing=Routing, most=whole, by=one_of(ORDERS))
def limited(routing, most, by="position"):
    """The routing with at most ``most`` assignments for each expert."""
    most = min(most, len(routing.tokens))
    if by == "position":
        return routing.kept(places(routing.experts, routing.num_experts) < most)
    best = routing.weights.detach().argsort(descending=True, stable=True)
    place = places(routing.experts[best], routing.num_experts)
    return routing.kept(torch.empty_like(place).scatter(0, best, place) < most)
