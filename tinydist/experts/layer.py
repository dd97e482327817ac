"""An MoE layer: a router, experts on the ranks of a group, and optionally a shared expert that all tokens go through.

    x --router--> routing --capacity?--> dispatch ===> experts ===> combine --+--> out
     `---------------- shared expert, while the dispatch is under way --------'

    parameters    E experts                flops of a token    k of them, and the router's

Fine-grained: m E experts of 1/m of the width, of which a token takes m k, are as many parameters and flops, and there
are many more sets of experts to choose. Shared experts see every token, so that the others need not learn what all
need. Each rank of the group has E/p experts, and a copy of the router and of shared experts.
Sources: Shazeer et al., Outrageously Large Neural Networks, 2017; Dai et al., DeepSeekMoE, 2024, sections 3.1 and 3.2.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..rules import flag, function, one_of, positive, validate
from ..torch_internals import graph_task
from .all_to_all import part_of_experts, place
from .capacity import ORDERS, capacity, limited
from .dispatch import dispatched
from .expert import Experts
from .hierarchical import relayed
from .interleave import finished
from .router import Scores
from .routing import Load


@validate(router=Scores, make=function, shared=nn.Module, group=dist.ProcessGroup, across=dist.ProcessGroup)
@validate(deduplicate=flag, capacity_factor=positive, drop_by=one_of(ORDERS))
class MoE(nn.Module):
    """x [..., D] to the same.

    make:             a function of an expert's number; makes the module [R, D] -> [R, D]. Called for this rank's own.
    shared:           a module that all tokens go through, too.
    group:            the ranks that share the experts; None: all.
    across:           with it, ``group`` has the ranks of a node, and ``across`` those with this local rank in all nodes
                      (hierarchical.py); with ``deduplicate`` a token is sent to a node once.
    capacity_factor:  None: no assignment is dropped. Else capacity.py; ``drop_by`` position or weight.

    After a forward, ``routing`` and ``load`` say what it did. It raises ``RuntimeError`` if an assignment was lost.
    """

    def __init__(
        self, router, make, *, shared=None, group=None, across=None, deduplicate=True, capacity_factor=None,
        drop_by="position",
    ):  # fmt: skip
        super().__init__()
        self.router, self.shared, self.deduplicate = router, shared, deduplicate
        self.capacity_factor, self.drop_by = capacity_factor, drop_by
        self.share(group, across, make)
        self.routing = self.load = None

    def share(self, group=None, across=None, make=None):
        """Among these ranks: this one's experts are made, or kept of all."""
        self.group, self.across = group, across
        (local, inside), (node, nodes) = place(group), (0, 1) if across is None else place(across)
        self.rank, ranks = node * inside + local, nodes * inside
        each = part_of_experts(self.router.experts, ranks)
        make = make or (lambda number: self.experts[str(number)])
        own = range(self.rank * each, (self.rank + 1) * each)
        self.experts = Experts({number: make(number) for number in own}, ranks)

    def forward(self, x):
        return finished(self.phases(x))

    def phases(self, x):
        """The forward as a generator that yields each transfer when it is under way (interleave.py)."""
        rows = x.flatten(0, -2)  # [N, D]
        routing = self.route(rows)
        # What backward recomputes has a graph that nobody goes through: kept, it would keep the activations, too
        self.routing = routing if graph_task() < 0 else routing.detached()
        moving = self.moved(rows, routing)
        dispatch = next(moving)
        shared = None if self.shared is None else self.shared(x)
        yield dispatch
        out, combined = yield from moving
        self.load = self.counted(routing, combined)
        out = out.view_as(x)
        return out if shared is None else out + shared

    def route(self, rows):
        routing = self.router(rows)
        if self.capacity_factor is not None:
            most = capacity(routing.assigned, routing.num_experts, 1, self.capacity_factor)
            routing = limited(routing, most, self.drop_by)
        return routing

    def moved(self, rows, routing):
        if self.across is None:
            return dispatched(rows, routing, self.experts, self.group)
        return relayed(rows, routing, self.experts, self.across, self.group, self.deduplicate)

    def counted(self, routing, combined):
        by_expert = routing.counts() if not routing.dropped else routing.load.tolist()
        if hasattr(self.router, "seen") and self.training:
            self.router.seen = [a + b for a, b in zip(self.router.seen, by_expert)]
        load = Load(routing.assigned, combined, routing.dropped, tuple(by_expert), self.experts.counts)
        return load.check(f"MoE (rank {self.rank} of its group)")

    def extra_repr(self):
        return f"{self.router.experts} experts, of which {len(self.experts)} here"


def dense(moe, x):
    """What one rank with all experts must equal, slowly: each expert on all tokens, times the weight or zero."""
    rows = x.flatten(0, -2)
    routing = moe.route(rows)
    out = torch.zeros_like(rows)
    for number, expert in moe.experts.items():
        chosen = routing.experts == int(number)
        weight = routing.weights.new_zeros(len(rows)).index_add(0, routing.tokens[chosen], routing.weights[chosen])
        out = out + (expert(rows) * weight[:, None]).to(rows.dtype)  # [N, D]
    return out.view_as(x) + (moe.shared(x) if moe.shared is not None else 0)
