"""Modules, autograd and optimizers tell the ledger what a tensor is for, and of which parameter."""

from contextlib import contextmanager

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..torch_internals import conversions_told
from .untraced import untraced


@contextmanager
def purposes_known(record, ledger):
    """While this lasts, parameters, gradients and optimizer states are marked as such, and as whose they are, in
    ``ledger()``, that of the rank which runs."""

    @untraced
    def registered(module, name, tensor):
        if tensor is not None:
            record.parts.own(module, name, tensor)
            ledger().mark(tensor, "parameters", tensor)
            if tensor.requires_grad and tensor.is_leaf:
                hooks.append(tensor.register_post_accumulate_grad_hook(accumulated))

    def converted(module):
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            ledger().mark(tensor, "parameters", tensor)
            ledger().mark(tensor.grad, "gradients", tensor)

    @untraced
    def accumulated(tensor):
        ledger().mark(tensor.grad, "gradients", tensor)

    @untraced
    def before_step(optimizer, args, kwargs):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if not ledger().is_for("optimizer states", parameter):  # as master weights are
                ledger().mark(parameter, "parameters", parameter)
            ledger().mark(parameter.grad, "gradients", parameter)

    @untraced
    def after_step(optimizer, args, kwargs):
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
        register_module_module_registration_hook(record.parts.own),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    for names in record.names:
        names.tell = registered
    torch.UntypedStorage.resize_ = resize_and_tell
    try:
        with conversions_told(converted):
            yield
    finally:
        torch.UntypedStorage.resize_ = resize
        for hook in hooks:
            hook.remove()
