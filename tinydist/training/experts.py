"""Models with experts (experts/) in the engine: which ranks have them, how tensor parallelism cuts them, and balance.

    data ranks, dp x cp    0    1    2    3    4    5    6    7        dp=8, ep=2
    dense parts            D    D    D    D    D    D    D    D        sharded over, or copied to, all of them
    experts                0-3  4-7  0-3  4-7  0-3  4-7  0-3  4-7      over those with the same: 0 2 4 6 and 1 3 5 7

Ranks of an expert group are neighbors, as the all-to-all is in every layer. ZeRO has both parts in one module: a bucket
is of the one or the other, and sharded over its ranks, so a unit of stage 3 gathers its dense part and its experts.

    bytes of states    (dense/shards + experts/(ep expert_shards)) / (pp tp)

An expert is cut by tensor parallelism as an MLP is: an all-reduce for each, of its rows. With sequence parallelism a
layer gathers the tokens of its tensor ranks first, which all route the same, and each goes on with its own.

An auxiliary loss is that of its layer, not of the model: it enters backward where the layer is, on any stage of a
pipeline. Its f, the part of each expert, is of a microbatch of all data ranks: as on one rank with as many of them.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from ..collectives.autograd import Conjugates
from ..experts import Expert, MoE, update_biases
from ..experts.balance import WithLoss, layers_of, loss_of
from ..experts.shard import check_has_all
from ..rules import amount, validate
from ..tensor_parallel.kinds import mlp
from ..tensor_parallel.layouts import Replicated
from ..tensor_parallel.shard import GPT
from .mesh import data_ranks


def check_experts(model, plan, load_balance=None):
    """Raises ``ValueError`` for a plan that the experts do not suit."""
    check_has_all(model)
    routers = [layer.router for layer in layers_of(model)]
    for experts in {router.experts for router in routers} or {0}:
        for words in plan.unshared(experts):
            raise ValueError(f"parallelize: {words}")
    if load_balance and not routers:
        raise ValueError("parallelize: load_balance is for a model with experts")
    if load_balance and load_balance.bias_rate and not any(map(has_bias, routers)):
        raise ValueError("parallelize: bias_rate moves biases, and no router has one: Router(..., bias=True)")


def has_bias(router):
    return getattr(router, "bias", None) is not None


# Tensor parallelism.


def table_of(model):
    """For ``shard``; None, if there are no experts."""
    if not layers_of(model):
        return None
    table = {name: kind for name, kind in GPT.items() if name != "blocks.*.mlp"}
    for number, block in enumerate(model.blocks):
        name, layer = f"blocks.{number}.mlp", block.mlp
        if not isinstance(layer, MoE):
            table[name] = GPT["blocks.*.mlp"]
            continue
        table |= {name: on_all_tokens, f"{name}.experts.*": expert}
        table |= {f"{name}.shared": expert} if isinstance(layer.shared, Expert) else {}
    return table


def on_all_tokens(layer, context):
    """With sequence parallelism, the layer has the tokens of all tensor ranks: they need one routing."""
    if layout := context.layout.cuts_tokens and context.layout:
        layer.register_forward_pre_hook(lambda layer, inputs: (all_tokens(inputs[0], layout), *inputs[1:]))
        layer.register_forward_hook(lambda layer, inputs, out: layout.own(out))


def all_tokens(x, layout):
    """The reverse of ``layout.own``: what follows is the same on all ranks, and so is its gradient."""
    return Conjugates.apply(x, lambda x: layout.gather(x)(), lambda dx: layout.parts(dx)[layout.rank].contiguous())


def expert(module, context):
    """Its rows are the same on all tensor ranks."""
    context = replace(context, layout=Replicated(context.layout.group, context.layout.async_grad_reduce))
    if module.gate is None:
        return mlp(module, context, ["up"], "down")
    module.register_forward_pre_hook(lambda module, inputs: (context.layout.enter(inputs[0]),))
    return mlp(module, context, ["gate", "up"], "down")


# Balance.


@validate(balance=amount, z=amount, bias_rate=amount)
@dataclass(frozen=True)
class LoadBalance:
    """What balances the load in training. The loss of a ``Step`` is without it.

    balance, z:  coefficients of the auxiliary losses (experts/balance.py), of each layer.
    bias_rate:   by how much biases of routers move after a step.
    """

    balance: float = 0.0
    z: float = 0.0
    bias_rate: float = 0.0

    def start(self, engine):
        stages = nn.ModuleList(engine.stages.values())
        group = dist.new_group(data_ranks(engine.mesh).tolist(), use_local_synchronization=True)
        if self.balance or self.z:
            for layer in layers_of(stages):
                layer.router.register_forward_hook(partial(self._add, engine, group))
        if self.bias_rate and any(has_bias(layer.router) for layer in layers_of(stages)):
            engine.after_step.append(partial(update_biases, stages, self.bias_rate, group))

    def _add(self, engine, group, router, inputs, routing):
        """The layer's own losses, in the scale in which that of the model comes back."""
        if torch.is_grad_enabled():
            loss = loss_of(routing, self.balance, self.z, group) * engine.scale / engine.plan.microbatches
            return replace(routing, weights=WithLoss.apply(routing.weights, loss))
