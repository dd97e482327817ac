r"""Activation recomputation (checkpointing): forget what forward computed, and compute it again in backward.

    forward     layer 1 -> layer 2 -> layer 3 -> layer 4       all keep their input; [ ] runs that forget the rest
                [                ]    [                ]
    backward                          layer 3, 4 again, and their backward, then layer 1, 2 again, and theirs

checkpointing.py    one module, or a run of several: inputs are kept, RNG states too
partition.py        each tensor-parallel rank keeps 1/t of an input (ZeRO-R's P_a)
offload.py          the host keeps the inputs; copies overlap with compute
choice.py           what to forget, so that the step fits a budget of bytes with the least seconds computed again

Bytes held by n layers, each with an input of i and activations of a (input included), and forward passes computed:

    keep all            n a                     n
    all, layer by layer n i + a                 2 n          least bytes with runs of a / i: about 2 sqrt(n a i)
    runs of k           (n / k) i + k a         2 n
    P_a over t ranks    n i / t + a             2 n          and an all-gather of i for each layer
    offload             2 i + a                 2 n          and 2 i over PCIe for each layer

Sources: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, section 4; Korthikanti et al. 2022, section 5;
Rajbhandari et al. 2020, ZeRO, section 6.1.
"""

from .checkpointing import recompute, recompute_runs, runs_of
from .choice import Layer, Run, least_recomputation
from .offload import Offloaded
from .partition import Partitioned

__all__ = [
    "Layer",
    "Offloaded",
    "Partitioned",
    "Run",
    "least_recomputation",
    "recompute",
    "recompute_runs",
    "runs_of",
]
