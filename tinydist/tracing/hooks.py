"""Hooks on modules, autograd and optimizers that classify tensors for the memory ledger, and name what a rank runs."""

from contextlib import contextmanager

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..annotate import region
from ..torch_internals import conversions_told, modes_unseen, module_calls_told, pipeline_passes_told, shapes_found
from .observer import hidden_from_debuggers
from .scopes import of_thread

OF_SCHEDULES = ("Forward ", "Backward ", "PP:")  # the regions that torch's make around passes


@contextmanager
def purposes_known(record, ledger):
    """While this lasts, parameters, gradients and optimizer states are marked as such, and with their owners, in
    ``ledger()``, that of the rank which runs."""

    @hidden_from_debuggers
    def registered(module, name, tensor):
        if tensor is not None:
            record.module_names.own(module, name, tensor)
            ledger().mark(tensor, "parameters", tensor)
            if tensor.requires_grad and tensor.is_leaf:
                hooks.append(tensor.register_post_accumulate_grad_hook(accumulated))

    def converted(module):
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            ledger().mark(tensor, "parameters", tensor)
            ledger().mark(tensor.grad, "gradients", tensor)

    @hidden_from_debuggers
    def accumulated(tensor):
        ledger().mark(tensor.grad, "gradients", tensor)

    @hidden_from_debuggers
    def before_step(optimizer, args, kwargs):
        with modes_unseen():  # each look at a tensor would go through them
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if not ledger().is_for("optimizer states", parameter):  # as master weights are
                    ledger().mark(parameter, "parameters", parameter)
                ledger().mark(parameter.grad, "gradients", parameter)

    @hidden_from_debuggers
    def after_step(optimizer, args, kwargs):
        with modes_unseen():
            for parameter, state in optimizer.state.items():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        ledger().mark(value, "optimizer states", parameter)

    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage, size):
        resize(storage, size)
        ledger().resized(storage)

    hooks = [
        register_module_parameter_registration_hook(registered),
        register_module_buffer_registration_hook(registered),
        register_module_module_registration_hook(record.module_names.own),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    for scopes in record.scopes:
        scopes.tell = registered
    torch.UntypedStorage.resize_ = resize_and_tell
    try:
        with conversions_told(converted):
            yield
    finally:
        torch.UntypedStorage.resize_ = resize
        for hook in hooks:
            hook.remove()


@contextmanager
def paused():
    """What runs is no work of the program: it takes no time, and holds no memory."""
    before, of_thread.paused = of_thread.paused, True
    try:
        yield
    finally:
        of_thread.paused = before


@contextmanager
def calls_told():
    """While this lasts, the scopes of a rank know which module is called."""

    def told(call):
        def call_and_tell(module, *args, **kwargs):
            scopes = of_thread.scopes
            if scopes is None:
                return call(module, *args, **kwargs)
            before = scopes.enter(module)
            try:
                return call(module, *args, **kwargs)
            finally:
                scopes.leave(before)

        return call_and_tell

    with module_calls_told(told), pipeline_passes_told(in_pass), shapes_found(paused):
        yield


@contextmanager
def in_pass(stage, letter, microbatch):
    """torch's stage runs a pass. Some of torch's schedules name it, and some do not."""
    scopes = of_thread.scopes
    if scopes is not None:
        scopes.module_names.own_stage(stage, stage.stage_index, stage.submod)
    if scopes is None or any(name.startswith(OF_SCHEDULES) for name in scopes.regions):
        yield
    else:
        with region(f"{stage.stage_index}{letter}{microbatch}"):
            yield
