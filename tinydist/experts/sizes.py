"""Sizes of an MoE layer: parameters, FLOPs, bytes sent by link, bytes held.

    parameters          E (2 or 3) D F + E D                  of experts and the router
    active              k (2 or 3) D F + E D                  of a token; flops are twice that, forward
    sent, a rank        rows to other ranks x D b             to dispatch, to combine, and both again in backward
    held for backward   b (R D + c R F + A D)                 R rows of its experts; c = 2, or 4 if gated: what GELU, or
                                                              SiLU and the product, were given and have given

R is k N if the load is even, and p k N at most, if all ranks choose one rank's experts: dropless memory has no other
bound.
"""

from dataclasses import dataclass, replace

from ..collectives.pairwise import all_to_all_cost
from ..rules import amount, count, each_of, flag, listed, must, validate, whole, within

RULES = dict(dim=count, hidden=count, experts=count, top_k=count, shared=whole, gated=flag)


@dataclass(frozen=True)
class Sizes:
    dim: int
    hidden: int  # of an expert
    experts: int
    top_k: int
    shared: int = 0  # experts
    gated: bool = True

    def __post_init__(self):
        for name, rule in RULES.items():
            must("Sizes", name, rule, getattr(self, name))
        if self.top_k > self.experts:
            raise ValueError(f"Sizes: top_k ({self.top_k}) must be at most experts ({self.experts})")

    @property
    def one(self):
        """Parameters of an expert."""
        return (3 if self.gated else 2) * self.dim * self.hidden

    @property
    def parameters(self):
        return (self.experts + self.shared) * self.one + self.experts * self.dim

    @property
    def active(self):
        """Parameters that a token meets."""
        return (self.top_k + self.shared) * self.one + self.experts * self.dim

    @property
    def flops(self):
        """Of a token, forward."""
        return 2 * self.active

    def split(self, parts):
        """Fine-grained: each expert as ``parts`` smaller ones, of which a token takes as many times more."""
        if self.hidden % must("Sizes.split", "parts", count, parts):
            raise ValueError(f"Sizes.split: hidden ({self.hidden}) must be divisible by parts ({parts})")
        more = {name: getattr(self, name) * parts for name in ("experts", "top_k", "shared")}
        return replace(self, hidden=self.hidden // parts, **more)

    @validate(sent=whole, computed=whole, itemsize=count)
    def held(self, sent, computed, itemsize=4):
        """Bytes that backward needs, of a rank whose tokens have ``sent`` assignments and whose experts get
        ``computed`` rows, without the router's."""
        return itemsize * (computed * (self.dim + (4 if self.gated else 2) * self.hidden) + sent * self.dim)


@validate(counts=each_of(each_of(whole)), dim=count, itemsize=count)
def dispatch_cost(counts, dim, itemsize=4):
    """Of a dispatch, or a combine: ``counts[rank][expert]`` assignments. A ``Cost``: what each rank sends."""
    p = len(counts)
    each = len(counts[0]) // p
    rows = [[sum(row[rank * each : (rank + 1) * each]) for rank in range(p)] for row in counts]
    return all_to_all_cost([[n * dim * itemsize for n in row] for row in rows])


@validate(experts=count, top_k=count, nodes=listed)
def copies_per_token(experts, top_k, nodes):
    """Nodes that a token is sent to, on the mean, if its ``top_k`` are drawn evenly from ``experts`` on ``nodes``."""
    must("copies_per_token", "top_k", within(1, experts), top_k)
    missed, there = 1.0, experts // nodes
    for drawn in range(top_k):
        missed *= max(0, experts - there - drawn) / (experts - drawn)
    return nodes * (1 - missed)


@validate(copies=amount, dim=count, slots=count, itemsize=count, weight=count)
def across_bytes(copies, dim, slots, itemsize=4, weight=4):
    """(dispatch, combine): bytes of ``copies`` rows that cross to other nodes, hierarchically: each with the numbers of
    its experts (4 bytes) and their weights."""
    return copies * (dim * itemsize + slots * (4 + weight)), copies * dim * itemsize
