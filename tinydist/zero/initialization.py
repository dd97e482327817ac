"""Initialization: broadcast of rank 0's parameters and buffers; or from the meta device, without ever a full model.

    with torch.device("meta"):          shapes without data
        model = GPT(config)
    zero = ZeRO3(model, units=blocks)

    layer by layer      allocate | initialize | broadcast from rank 0 | keep the shard | free

The peak is the rank's shards and one unit. Layers are initialized in the order of ``module.modules()``, each by its
``reset_parameters``, as constructors do. So with the same seed they get the same values as a model built in full, if
its constructors draw them in that order, and nothing is drawn or changed later. For anything else (GPT-2's smaller
standard deviations, say) pass ``initialize``, a function of a layer.
"""

import torch
from torch import nn

from ..collectives.agreement import around, broadcast_all, check_same_parameters
from ..rules import each_of, must
from .memory import full_parameter


def check_same_module(name, module, group=None, replicas=None, among=None):
    """Raises ``ValueError`` on all ranks if their modules differ. ``name`` begins the message."""
    for ranks in around(group, replicas):
        check_same_parameters(name, module, ranks, among)


def broadcast_rank_0(tensors, group=None, replicas=None):
    for ranks in around(group, replicas):
        broadcast_all(tensors, group=ranks)


def trained_groups(name, module, param_groups=None):
    """(parameter groups with the parameters that require a gradient, whether they were on the meta device).

    Those on the meta device are replaced.
    """
    given = list(module.parameters() if param_groups is None else param_groups)
    must(name, "param_groups", each_of(torch.Tensor | dict, 0), given)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    groups = [{**each, "params": [p for p in each["params"] if p.requires_grad]} for each in groups]
    known = set(module.parameters())
    foreign = [p for each in groups for p in each["params"] if p not in known]
    if foreign:
        shapes = ", ".join(str(list(p.shape)) for p in foreign)
        raise ValueError(f"{name}: param_groups has parameters that are not in the module: {shapes}")
    if not any(each["params"] for each in groups):
        raise ValueError(f"{name}: no parameter of the module requires a gradient")
    new = leave_meta_device(name, module)
    return [{**each, "params": [new.get(p, p) for p in each["params"]]} for each in groups], bool(new)


# From the meta device.


def leave_meta_device(name, module):
    """Replace meta parameters by ones on the default device, expanded from one element. Returns old -> new."""
    known = {}
    on_meta = {tensor.is_meta for tensor in module.parameters()}
    if len(on_meta) == 2:
        raise ValueError(f"{name}: either all parameters of a module must be on the meta device, or none")
    for owner in module.modules() if True in on_meta else ():
        for own_name, meta in list(owner.named_parameters(recurse=False, remove_duplicate=False)):
            if meta not in known:
                number = torch.empty((), dtype=meta.dtype, device=torch.get_default_device())
                known[meta] = nn.Parameter(number.expand(meta.shape), meta.requires_grad)
            setattr(owner, own_name, known[meta])
    return known


@torch.no_grad()
def materialize(name, module, buckets, initialize, spread):
    """Allocate and initialize the parameters of ``buckets``; parameters in no bucket, and buffers, keep their memory.

    ``initialize(layer)``; ``spread(tensors)`` broadcasts from rank 0.
    """
    bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
    done = set()
    for place, layer in module.named_modules():
        parameters = list(layer.parameters(recurse=False))
        buffers = [key for key, buffer in layer.named_buffers(recurse=False) if buffer.is_meta]
        if not parameters and not buffers:
            continue
        before = {parameter: parameter.data for parameter in parameters}
        for parameter in parameters:
            bucket = bucket_of.get(parameter)
            parameter.data = full_parameter(parameter, (bucket.places[parameter] if bucket else parameter).shape)
        for key in buffers:
            setattr(layer, key, torch.empty_like(getattr(layer, key), device=torch.get_default_device()))
        initialized(name, place, layer, initialize)
        spread([*parameters, *layer.buffers(recurse=False)])
        for parameter in parameters:
            first, bucket = parameter not in done, bucket_of.get(parameter)
            if first and bucket:
                bucket.fill(parameter, parameter.data)
            if bucket or not first:  # a tied one is initialized already
                parameter.data = before[parameter]
        done.update(parameters)


def initialized(name, place, layer, initialize):
    if initialize is None and not hasattr(layer, "reset_parameters"):
        raise ValueError(
            f"{name}: {place or 'the module'}, a {type(layer).__name__}, is on the meta device and has no "
            "reset_parameters(): pass initialize=fn to materialize and initialize its parameters"
        )
    (initialize or type(layer).reset_parameters)(layer)
