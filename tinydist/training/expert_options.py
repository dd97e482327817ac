"""Options of models with experts, by Megatron-LM's names: of ``train``, and of programs in its shape (compat/).

(NVIDIA/Megatron-LM@d98e8a64: megatron/core/transformer/transformer_config.py, megatron/training/arguments.py, read. The
auxiliary loss is its ``global_aux_loss``, of one microbatch; there biases move by 0.001 if they are enabled.)
"""

from functools import partial
from typing import NamedTuple

from ..experts import Router, alone, with_experts
from ..launching.options import optional
from ..model import GPT
from ..rules import amount, count
from .experts import LoadBalance


class Option(NamedTuple):
    kind: type
    default: float | None
    rule: object
    help: str


OPTIONS = {
    "num_experts": Option(int, None, optional(count), "number of experts in each layer, which replace the MLP"),
    "moe_router_topk": Option(int, 2, count, "experts per token"),
    "moe_aux_loss_coeff": Option(float, 0.0, amount, "coefficient of the load-balancing loss"),
    "moe_z_loss_coeff": Option(float, 0.0, amount, "coefficient of the router's z-loss"),
    "moe_router_bias_update_rate": Option(
        float, 0.0, amount, "step of the biases that balance the load; the router's scores are then sigmoids"
    ),
}


def add_options(parser, default=" (default: %(default)s)"):
    for name, option in OPTIONS.items():
        words = option.help + default * (option.default is not None)
        metavar = "N" if option.kind is int else "X"
        parser.add_argument(typed(name), type=option.kind, default=option.default, metavar=metavar, help=words)


def typed(name):
    return f"--{name.replace('_', '-')}"


def rules(chosen):
    """(holds, words)"""
    given = [name for name, option in OPTIONS.items() if getattr(chosen, name) != option.default]
    yield chosen.num_experts or not given, f"{typed(given[0]) if given else ''} requires --num-experts"
    experts, k = chosen.num_experts, chosen.moe_router_topk
    yield not experts or k <= experts, f"--moe-router-topk ({k}) must be at most --num-experts ({experts})"


def gpt_of(config, chosen, seed):
    """With all its experts, if there are any."""
    model = GPT(config)
    if chosen.num_experts:
        biased = {"score": "sigmoid", "bias": True} if chosen.moe_router_bias_update_rate else {}
        router = partial(Router, **biased)
        with_experts(model, chosen.num_experts, chosen.moe_router_topk, group=alone(), router=router, seed=seed)
    return model


def load_balance_of(chosen):
    rates = chosen.moe_aux_loss_coeff, chosen.moe_z_loss_coeff, chosen.moe_router_bias_update_rate
    return LoadBalance(*rates) if any(rates) else None
