"""Load balance: losses that make the router spread tokens, and a bias that does it without a loss.

    f_i    fraction of the assignments that expert i gets         a count: no gradient
    P_i    mean score of expert i, of a sum of 1 over experts     the gradient goes through it

    balance    E sum_i f_i P_i                    1 if even, E at worst, for any k
    z          mean (log sum_i exp logit_i)^2     keeps logits small: their exp in 16 bits errs less
    bias       b_i += rate sign(mean load - load_i)    once a step; changes the choice, no gradient

f of one rank's tokens balances each rank; of all ranks (``group``), the batch, which leaves the router more freedom.
Implementations differ: Mixtral of Hugging Face does not divide f by k, so that even is k there.

    max_violation    (largest load - mean load) / mean load    0 if even; a step waits for the fullest expert

Sources: Fedus et al., Switch Transformers, 2021, equations 4 to 6; Zoph et al., ST-MoE, 2022, equation 5 (z);
Wang et al., Auxiliary-Loss-Free Load Balancing Strategy, 2024 (arXiv 2408.15664), algorithm 1 and section 4.1 (MaxVio).
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function

from ..rules import amount, each_of, validate
from .layer import MoE
from .routing import Routing


@validate(routing=Routing, group=dist.ProcessGroup)
def balance_loss(routing, group=None):
    """Switch's. ``group``: f over the tokens of all its ranks; None: of this one."""
    load = routing.load.to(routing.scores.dtype)  # [E]
    if group is not None:
        dist.all_reduce(load, group=group)
    scores = routing.scores / routing.scores.sum(1, keepdim=True)
    return routing.num_experts * (load / load.sum() * scores.mean(0)).sum()


@validate(routing=Routing)
def z_loss(routing):
    return routing.logits.logsumexp(1).square().mean()


@validate(model=nn.Module, balance=amount, z=amount, group=dist.ProcessGroup)
def auxiliary_loss(model, balance=0.0, z=0.0, group=None):
    """The sum over all layers of their last forward, to be added to the loss before backward."""
    routings = [module.routing for module in layers_of(model) if module.routing is not None]
    if not routings:
        raise ValueError("auxiliary_loss: no MoE layer of the model has run forward")
    return sum(loss_of(each, balance, z, group) for each in routings)


def loss_of(routing, balance=0.0, z=0.0, group=None):
    return float(balance) * balance_loss(routing, group) + float(z) * z_loss(routing)


@validate(model=nn.Module, rate=amount, group=dist.ProcessGroup)
@torch.no_grad()
def update_biases(model, rate=1e-3, group=None):
    """Once a step: move the bias of each router by ``rate``, up for experts with less than the mean load since the last
    update. One all-reduce of all loads over ``group``: all ranks whose routers are alike must take part."""
    routers = [layer.router for layer in layers_of(model) if getattr(layer.router, "bias", None) is not None]
    if not routers:
        raise ValueError("update_biases: no router of the model has a bias: Router(..., bias=True)")
    loads = torch.tensor([n for router in routers for n in router.seen], dtype=torch.float64)
    loads = loads.to(routers[0].bias.device)
    if dist.is_initialized():
        dist.all_reduce(loads, group=group)
    for router, load in zip(routers, loads.split([router.experts for router in routers])):
        router.bias += float(rate) * (load.mean() - load).sign().to(router.bias.dtype)
        router.seen = [0] * router.experts


@validate(loads=each_of(amount))
def max_violation(loads):
    """Of the loads of experts: how far the fullest is above the mean, as a part of it."""
    mean = sum(loads) / len(loads)
    return max(loads) / mean - 1 if mean else 0.0


class WithLoss(Function):
    """x, whose backward is that of a loss, too. So a layer adds its own, wherever the loss of the model is: in a
    pipeline, on another rank. (Megatron-LM has it as ``MoEAuxLossAutoScaler``.)"""

    @staticmethod
    def forward(ctx, x, loss):
        ctx.one = torch.ones_like(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, ctx.one


def layers_of(model):
    return [module for module in model.modules() if isinstance(module, MoE)]
