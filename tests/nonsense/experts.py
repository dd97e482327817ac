"""Valid calls of ``tinydist.experts``, on two ranks."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import experts
from tinydist.experts import EvenRouter, Expert, ExpertChoice, MoE, Router, Sizes, split, with_experts
from tinydist.model import GPT, GPTConfig

D, TEXT = 4, torch.zeros(1, 4, dtype=torch.long)


def plain():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=8, context=4, layers=1, heads=2, dim=D))


def trained(model=None, **options):
    """A model with experts, and a backward: so that what is wrong cannot wait."""
    model = with_experts(plain() if model is None else model, **{"experts": 4, **options})
    model.loss(TEXT, TEXT).backward()
    return model


def routed(router=None):
    return (router or Router(D, 4, 2))(torch.linspace(-1, 1, 3 * D).view(3, D))


def through(**options):
    return MoE(**options)(torch.ones(3, D)).detach()


def of_model(function):
    return lambda model, **given: function(trained() if isinstance(model, GPT) else model, **given)


def of_whole(function):
    """Of a model that has all experts on each rank."""

    def call(model, **given):
        whole = isinstance(model, GPT)
        return function(with_experts(model, experts=4, group=experts.alone()) if whole else model, **given)

    return call


def router(kind, **more):
    made = dict(dim=D, experts=4, generator=torch.Generator()) | more
    return call(lambda **given: routed(kind(**given)).counts(), lambda: dict(made))


def call(function, arguments, **options):
    """``arguments``: a dict, or a function that makes one."""
    made = arguments if callable(arguments) else lambda: dict(arguments)
    return Call(function, made, ranks=2, signed=True, **options)


OF_ROUTER = dict(top_k=2, score="sigmoid", normalize=True, scale=2.5, bias=True, groups=2, kept_groups=1)
CALLS = {
    "EvenRouter": router(EvenRouter, **OF_ROUTER),
    "Expert": call(
        lambda dim, **given: Expert(dim, **given)(torch.ones(2, dim)),
        lambda: dict(dim=D, hidden=6, gated=True, std=0.1, generator=torch.Generator()),
    ),
    "ExpertChoice": router(ExpertChoice, capacity_factor=1.5),
    "MoE": call(
        through,
        lambda: dict(
            router=Router(D, 4, 2),
            make=lambda number: Expert(D, 6),
            shared=nn.Linear(D, D),
            group=None,
            across=None,
            deduplicate=True,
            capacity_factor=1.0,
            drop_by="weight",
        ),
    ),
    "Router": router(Router, **OF_ROUTER),
    "Sizes": call(
        lambda **given: Sizes(**given).parameters,
        dict(dim=D, hidden=6, experts=4, top_k=2, shared=1, gated=True),
    ),
    "across_bytes": call(experts.across_bytes, dict(copies=3, dim=D, slots=2, itemsize=4, weight=4)),
    "auxiliary_loss": call(
        of_model(lambda model, **given: experts.auxiliary_loss(model, **given).detach()),
        lambda: dict(model=plain(), balance=0.1, z=0.1, group=None),
    ),
    "balance_loss": call(
        lambda **given: experts.balance_loss(**given).detach(), lambda: dict(routing=routed(), group=None)
    ),
    "capacity": call(experts.capacity, dict(tokens=8, experts=4, top_k=2, factor=1.25, least=1)),
    "clip_grad_norm_": call(of_model(experts.clip_grad_norm_), lambda: dict(model=plain(), max_norm=1.0, group=None)),
    "copies_per_token": call(experts.copies_per_token, dict(experts=8, top_k=2, nodes=2)),
    "dispatch_cost": call(experts.dispatch_cost, lambda: dict(counts=[[1, 2], [3, 4]], dim=D, itemsize=4)),
    "limited": call(experts.limited, lambda: dict(routing=routed(), most=1, by="weight")),
    "losses_of": call(
        lambda model, microbatches: [loss.detach() for loss in experts.losses_of(trained(), microbatches)],
        lambda: dict(model=None, microbatches=[(TEXT, TEXT)]),
        kept=("model",),
    ),
    "max_violation": call(experts.max_violation, lambda: dict(loads=[1, 2, 3])),
    "paired": call(
        lambda model, microbatches: experts.paired(trained(), microbatches),
        lambda: dict(model=None, microbatches=[(TEXT, TEXT), (TEXT, TEXT)]),
        kept=("model",),
    ),
    "shard_experts": call(
        of_whole(lambda model, **given: len(experts.shard_experts(model, **given).blocks[0].mlp.experts)),
        lambda: dict(model=plain(), group=None),
    ),
    "split": call(lambda model: [len(list(part.parameters())) for part in split(model)], lambda: dict(model=plain())),
    "update_biases": call(
        lambda model, **given: experts.update_biases(
            trained(router=lambda *sizes, **options: Router(*sizes, bias=True, **options))
            if isinstance(model, GPT)
            else model,
            **given,
        ),
        lambda: dict(model=plain(), rate=0.1, group=None),
    ),
    "with_experts": call(
        lambda **given: [parameter.grad for parameter in trained(**given).parameters()],
        lambda: dict(
            model=plain(),
            experts=4,
            top_k=2,
            hidden=6,
            shared=1,
            gated=True,
            every=1,
            group=None,
            router=Router,
            seed=0,
        ),
    ),
    "z_loss": call(lambda **given: experts.z_loss(**given).detach(), lambda: dict(routing=routed())),
}
REASONS = {
    "alone": "it takes no argument",
    "AllToAll": "its splits come from counts that ranks have exchanged",
    "Experts": "MoE makes it",
    "Load": "MoE makes it",
    "Parts": "of states, each of which has been made",
    "Routing": "routers make it",
    "dense": "a slow reference, with MoE's arguments",
    "interleaved": "takes generators",
}
