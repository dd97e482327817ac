"""Modules tell the names of the rank that they are called, and stages of pipelines, which pass they run."""

from contextlib import contextmanager

from ..annotate import region
from ..torch_internals import module_calls_told, pipeline_passes_told
from .names import of_thread

OF_SCHEDULES = ("Forward ", "Backward ", "PP:")  # the regions that torch's make around passes


@contextmanager
def calls_told():
    """While this lasts, the names of a rank know which module is called."""

    def told(call):
        def call_and_tell(module, *args, **kwargs):
            names = of_thread.names
            if names is None:
                return call(module, *args, **kwargs)
            before = names.enter(module)
            try:
                return call(module, *args, **kwargs)
            finally:
                names.leave(before)

        return call_and_tell

    with module_calls_told(told), pipeline_passes_told(in_pass):
        yield


@contextmanager
def in_pass(stage, letter, microbatch):
    """torch's stage runs a pass. Some of torch's schedules name it, and some do not."""
    names = of_thread.names
    if names is not None:
        names.parts.own_stage(stage, stage.stage_index, stage.submod)
    if names is None or any(name.startswith(OF_SCHEDULES) for name in names.regions):
        yield
    else:
        with region(f"{stage.stage_index}{letter}{microbatch}"):
            yield
