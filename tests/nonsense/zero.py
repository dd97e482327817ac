"""Valid calls of ``tinydist.zero``, on two ranks."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist.zero import PerParameterSharding, ZeRO1, ZeRO2, ZeRO3, estimators


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def trained(stage):
    """Made, and a step: so that what is wrong cannot wait."""

    def call(module, max_norm=1.0, **options):
        zero = stage(module, **options)
        module(torch.ones(2, 2)).sum().backward()
        zero.clip_grad_norm_(max_norm)
        zero.step()
        zero.zero_grad()
        return [parameter.detach() for parameter in module.parameters()]

    return call


def stage(function, **more):
    def arguments():
        return dict(
            module=model(),
            optimizer_class=torch.optim.SGD,
            param_groups=None,
            group=None,
            bucket_bytes=2**20,
            max_norm=1.0,
            replicas=None,
            reduce_dtype=torch.float32,
            sharding=PerParameterSharding,
            initialize=None,
            apart=None,
            lr=0.1,
        ) | {name: value() for name, value in more.items()}

    return Call(trained(function), arguments, ranks=2, signed=True, kept=("lr",), fits=("initialize", "apart"))


def estimate(function, **arguments):
    return Call(function, lambda: dict(arguments))


CALLS = {
    "ZeRO1": stage(ZeRO1),
    "ZeRO2": stage(ZeRO2),
    "ZeRO3": stage(
        ZeRO3, units=lambda: lambda module: False, reshard_after_forward=lambda: True, prefetch=lambda: True
    ),
    "estimators.model_states": estimate(estimators.model_states, parameters=1000, stage=2, ranks=4),
}
REASONS = {
    **dict.fromkeys(["CPUOffload", "NVMeOffload"], "devices, which are given links alone"),
    **dict.fromkeys(["ZeROOffload", "ZeROInfinity"], "stages 2 and 3, with one option more"),
    **dict.fromkeys(["FlatSharding", "PerParameterSharding"], "shardings, which stages make"),
    "OffloadError": "an error",
    **dict.fromkeys(
        [f"checkpoint.{name}" for name in ("Saving", "gathered", "load", "load_weights", "save", "sharded")],
        "of a stage that is made",
    ),
}
