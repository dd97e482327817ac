"""Valid calls of ``tinydist.recompute``."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import recompute
from tinydist.recompute import Layer, Offloaded, Run


def layers():
    return [nn.Linear(2, 2), nn.Linear(2, 2)]


def run(blocks):
    x = torch.ones(1, 2)
    for block in blocks:
        x = block(x)
    return x


def recomputed(modules, **options):
    recompute.recompute(modules, **options)
    return run(modules)


def offloaded(**given):
    with Offloaded(**given):
        return torch.ones(2, requires_grad=True).square()


CALLS = {
    "recompute": Call(recomputed, lambda: dict(modules=layers(), method="forward", keep=Offloaded()), signed=True),
    "recompute_runs": Call(
        lambda **given: run(recompute.recompute_runs(**given)),
        lambda: dict(blocks=layers(), runs=[Run(1, True), Run(1, False)], keep=Offloaded()),
        signed=True,
    ),
    "runs_of": Call(recompute.runs_of, lambda: dict(k=2, layers=3)),
    "Layer": Call(
        lambda **given: recompute.least_recomputation([Layer(**given)], 9), lambda: dict(input=1, kept=2, seconds=3)
    ),
    "Offloaded": Call(offloaded, lambda: dict(ahead=1)),
    "Run": Call(
        lambda **given: run(recompute.recompute_runs(layers(), [Run(**given)])),
        lambda: dict(layers=2, recomputed=True),
        signed=True,
    ),
    "least_recomputation": Call(
        recompute.least_recomputation, lambda: dict(layers=[Layer(1, 2, 3), Layer(1, 4, 5)], budget=8)
    ),
}
REASONS = {"Partitioned": "takes a group alone"}
