"""Save only a method's inputs, and run its forward again in backward.

    full         recompute(model.blocks)                                    a block's input: 2sbh bytes, 1/3 more FLOPs
    selective    recompute([block.attention for block in model.blocks], "mix")
                 recomputes the attention weights, 5as/h of activations      34sbh bytes, 1 to 3 % more
    runs of k    model.blocks = recompute_runs(model.blocks, runs_of(k, len(model.blocks)))
                 one input for k blocks; in backward, the activations of k blocks at once

The RNG state is restored, so dropout masks are the same. The method's communication is repeated. ``keep`` says how
inputs are kept: torch's ``saved_tensors_hooks``, such as ``Partitioned`` and ``Offloaded``; None: as they are.
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Korthikanti et al. 2022, section 5.
"""

from contextlib import nullcontext
from functools import partial

from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from ..rules import count, each_of, validate, within
from .choice import Run


@validate(modules=each_of(nn.Module, 0), method=str, keep=saved_tensors_hooks)
def recompute(modules, method="forward", keep=None):
    """Wrap ``method`` of each module, in place. Raises ``ValueError`` if one has no such method."""
    for module in modules:
        if not callable(getattr(module, method, None)):
            raise ValueError(f"recompute: {type(module).__name__} has no method {method!r}")
        setattr(module, method, partial(recomputed, getattr(module, method), keep))


def recomputed(function, keep, *inputs, **options):
    with keep or nullcontext():
        return checkpoint(function, *inputs, use_reentrant=False, **options)


@validate(blocks=each_of(nn.Module), runs=each_of(Run), keep=saved_tensors_hooks)
def recompute_runs(blocks, runs, keep=None):
    """The same blocks in runs, each a ``Segment``: a ModuleList to put in their place. Parameters are shared."""
    if sum(run.layers for run in runs) != len(blocks):
        raise ValueError(
            f"recompute_runs: runs have {sum(run.layers for run in runs)} layers, but there are {len(blocks)}"
        )
    rest = iter(blocks)
    segments = nn.ModuleList(Segment(next(rest) for _ in range(run.layers)) for run in runs)
    recompute([segment for segment, run in zip(segments, runs) if run.recomputed], keep=keep)
    return segments


@validate(k=count, layers=within(0, 2**20))
def runs_of(k, layers):
    """Runs of ``k``, the last one shorter where k does not divide ``layers``: all recomputed."""
    return [Run(min(k, layers - start), True) for start in range(0, layers, k)]


class Segment(nn.ModuleList):
    """Blocks one after the other; each gets the options."""

    def forward(self, x, **options):
        for block in self:
            x = block(x, **options)
        return x
