"""The start: all ranks have rank 0's parameters and buffers. From the meta device, no rank ever has the whole model.

    with torch.device("meta"):          shapes, and no numbers
        model = GPT(config)
    zero = Parameters(model, units=blocks)

    layer by layer      memory for it | it is initialized | rank 0's numbers go to all | each keeps its part | free

The peak is what all shards need, and a unit. Layers are initialized in the order of ``module.modules()``, each by its
``reset_parameters``, as constructors do it. So with one seed they have the same numbers as in a model that is made
whole, if its constructors draw them in that order, and nothing is drawn or changed later. What a model does beyond
that (GPT-2's smaller deviations, say) is for ``initialize`` to do, a function of a layer.
"""

import torch
from torch import nn

from ..collectives.agreement import around, broadcast_all, check_same_parameters
from ..rules import each_of, must
from .memory import room_for


def all_alike(name, module, group=None, replicas=None):
    """Raises ``ValueError`` on all ranks, in the words of ``name``, if they bring different modules."""
    for ranks in around(group, replicas):
        check_same_parameters(name, module, ranks)


def as_rank_0(tensors, group=None, replicas=None):
    for ranks in around(group, replicas):
        broadcast_all(tensors, group=ranks)


def trained_groups(name, module, param_groups=None):
    """Parameter groups as optimizers take them, with a list of what is trained in each; and whether that has no numbers
    yet. Parameters on the meta device have become others then.
    """
    given = list(module.parameters() if param_groups is None else param_groups)
    must(name, "param_groups", each_of(torch.Tensor | dict, 0), given)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    groups = [{**each, "params": [p for p in each["params"] if p.requires_grad]} for each in groups]
    known = set(module.parameters())
    foreign = [p for each in groups for p in each["params"] if p not in known]
    if foreign:
        shapes = ", ".join(str(list(p.shape)) for p in foreign)
        raise ValueError(f"{name}: param_groups has parameters that are none of the module's: {shapes}")
    if not any(each["params"] for each in groups):
        raise ValueError(f"{name}: there is nothing to train, no parameter of the module requires a gradient")
    new = in_name_only(name, module)
    return [{**each, "params": [new.get(p, p) for p in each["params"]]} for each in groups], bool(new)


# From the meta device.


def in_name_only(name, module):
    """Meta parameters become others, on the default device: they have shapes, and no memory. Old -> new."""
    known = {}
    on_meta = {tensor.is_meta for tensor in module.parameters()}
    if len(on_meta) == 2:
        raise ValueError(f"{name}: a module is on the meta device with all its parameters, or with none")
    for owner in module.modules() if True in on_meta else ():
        for own_name, meta in list(owner.named_parameters(recurse=False, remove_duplicate=False)):
            if meta not in known:
                number = torch.empty((), dtype=meta.dtype, device=torch.get_default_device())
                known[meta] = nn.Parameter(number.expand(meta.shape), meta.requires_grad)
            setattr(owner, own_name, known[meta])
    return known


@torch.no_grad()
def bring_to_life(name, module, buckets, initialize, spread):
    """The parameters of ``buckets`` get their numbers; what is in none keeps its memory, and so do buffers.

    ``initialize(layer)``, ``spread(tensors)``: from rank 0 to all.
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
            parameter.data = room_for(parameter, (bucket.places[parameter] if bucket else parameter).shape)
        for key in buffers:
            setattr(layer, key, torch.empty_like(getattr(layer, key), device=torch.get_default_device()))
        initialized(name, place, layer, initialize)
        spread([*parameters, *layer.buffers(recurse=False)])
        for parameter in parameters:
            first, bucket = parameter not in done, bucket_of.get(parameter)
            if first and bucket:
                bucket.fill(parameter, parameter.data)
            if bucket or not first:  # one that is tied was drawn before
                parameter.data = before[parameter]
        done.update(parameters)


def initialized(name, place, layer, initialize):
    if initialize is None and not hasattr(layer, "reset_parameters"):
        raise ValueError(
            f"{name}: {place or 'the module'}, a {type(layer).__name__}, comes from the meta device and has no "
            "reset_parameters(): pass initialize=fn to materialize and initialize its parameters"
        )
    (initialize or type(layer).reset_parameters)(layer)
