"""Hooks into torch.distributed.pipelining: passes of its stages, kinds of actions of its schedules."""

import sys
from contextlib import contextmanager
from functools import wraps

PASSES = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}


def pipeline_kinds():
    """Of the actions that its schedules have."""
    from torch.distributed.pipelining.schedules import _ComputationType  # takes its time

    return {kind.value for kind in _ComputationType}


@contextmanager
def pipeline_passes_told(in_pass):
    """While this lasts, a stage runs each pass in ``in_pass(stage, letter, microbatch)``. Nothing is loaded for it: a
    program that has stages has loaded them."""
    module = sys.modules.get("torch.distributed.pipelining.stage")
    base = getattr(module, "_PipelineStageBase", None)
    before = {name: getattr(base, name) for name in PASSES if hasattr(base, name)}

    def told(name, run):
        @wraps(run)
        def run_told(stage, microbatch, *args, **kwargs):
            with in_pass(stage, letter(name, args, kwargs), microbatch):
                return run(stage, microbatch, *args, **kwargs)

        return run_told

    for name, run in before.items():
        setattr(base, name, told(name, run))
    try:
        yield
    finally:
        for name, run in before.items():
            setattr(base, name, run)


def letter(name, args, kwargs):
    """A backward that is not full is that of the inputs alone."""
    full = kwargs.get("full_backward", args[1] if len(args) > 1 else True)
    return PASSES[name] if full or name != "backward_one_chunk" else "I"
