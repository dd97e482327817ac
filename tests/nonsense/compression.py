"""Valid calls of ``tinydist.compression``, on two ranks."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import compression
from tinydist.compression import LocalSteps, PowerSGD, TopK, error_buffers
from tinydist.compression.local_steps import nesterov
from tinydist.data_parallel import DDP


def parameters():
    torch.manual_seed(0)
    made = list(nn.Linear(8, 8).parameters())
    for parameter in made:
        parameter.grad = torch.ones_like(parameter)
    return made


def moved(optimizer, steps=2):
    """So that what is wrong cannot wait."""
    for _ in range(steps):
        optimizer.step()
    return [p for options in getattr(optimizer, "inner", optimizer).param_groups for p in options["params"]]


def with_hook(hook):
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 8), hook=hook)
    model(torch.ones(2, 8)).sum().backward()
    return [p.grad for p in model.parameters()]


def reduced(tensor, **given):
    compression.compressed_all_reduce(tensor, **given)
    return tensor


def call(function, arguments, **options):
    return Call(function, arguments, ranks=2, signed=True, **options)


def optimizer(made, **more):
    return call(
        lambda **given: moved(made(**given)),
        lambda: dict(params=parameters(), lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, **more),
    )


CALLS = {
    "compressed_all_reduce": call(
        reduced,
        lambda: dict(
            tensor=torch.arange(16.0),
            **dict(zip(("worker_error", "server_error"), error_buffers(16))),
            group=None,
        ),
    ),
    "error_buffers": call(error_buffers, lambda: dict(numel=20, group=None, device=None), kept=("device",)),
    "Lamb": optimizer(compression.Lamb),
    "OneBitAdam": optimizer(compression.OneBitAdam, freeze_step=1, group=None),
    "OneBitLamb": optimizer(compression.OneBitLamb, freeze_step=1, group=None),
    "ZeroOneAdam": optimizer(
        compression.ZeroOneAdam,
        var_freeze_step=1,
        var_update_scaler=1,
        local_step_scaler=1,
        local_step_clipper=2,
        group=None,
    ),
    "PowerSGD": call(
        lambda **given: with_hook(PowerSGD(**given)),
        lambda: dict(rank=1, start=0, min_compression_rate=2, seed=0),
    ),
    "TopK": call(lambda **given: with_hook(TopK(**given)), lambda: dict(density=0.5)),
    "LocalSteps": call(
        lambda **given: moved(LocalSteps(**given)),
        lambda: dict(inner=torch.optim.SGD(parameters(), lr=0.1), every=2, outer=nesterov, group=None),
    ),
}
REASONS = {}
