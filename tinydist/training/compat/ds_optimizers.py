"""The optimizers of a ds_config.json, and validation of their params.

Adam is AdamW unless adam_w_mode is false, and without decay, as DeepSpeed's.
"""

from typing import NamedTuple

import torch

from ...rules import amount, flag, part
from .ds_keys import Key, false, pair, true


class Optimizer(NamedTuple):
    made: type
    params: dict
    tested: bool = False  # with ZeRO, by DeepSpeed


DECAY = {"lr": Key(amount, 1e-3), "weight_decay": Key(amount, 0.0)}
ADAM = {
    **DECAY,
    "betas": Key(pair, (0.9, 0.999)),
    "eps": Key(amount, 1e-8),
    "amsgrad": Key(false, False),
    "bias_correction": Key(true, idle="it is as always"),
    "adam_w_mode": Key(flag, True),
    "torch_adam": Key(flag, False),
}
MOMENTUM = {"momentum": Key(part, 0.0), "dampening": Key(part, 0.0), "nesterov": Key(flag, False)}
OPTIMIZERS = {
    "adam": Optimizer(torch.optim.AdamW, ADAM, tested=True),
    "adamw": Optimizer(torch.optim.AdamW, ADAM, tested=True),
    "adagrad": Optimizer(
        torch.optim.Adagrad, {**DECAY, "lr": Key(amount, 1e-2), "eps": Key(amount, 1e-10)}, tested=True
    ),
    "SGD": Optimizer(torch.optim.SGD, {**DECAY, **MOMENTUM}),
    "RMSprop": Optimizer(
        torch.optim.RMSprop, {**DECAY, "lr": Key(amount, 1e-2), "alpha": Key(part, 0.99), "eps": Key(amount, 1e-8)}
    ),
}
ELSEWHERE = ("lamb", "lion", "muon", "muadam", "muadamw", "musgd", "onebitadam", "onebitlamb", "zerooneadam")


def is_tested(optimizer_class):
    """By DeepSpeed, with ZeRO."""
    return optimizer_class in {torch.optim.Adam, *(each.made for each in OPTIMIZERS.values() if each.tested)}
