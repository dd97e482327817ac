"""Operands on two devices: the operators that take them, and torch's own words for the others.

torch's list of operators says how each one's CUDA kernel checks:

    device_check: NoCheck    operators that go over elements (TensorIterator): a 0-dim host tensor is taken as a number
    all others               each operand must be where the first one is, also a 0-dim one
    index, index_put         indices are moved to the tensor that is indexed
"""

import torch

from ..torch_internals import declaration_of
from ..tracing.tensor_storage import tensors_in

aten = torch.ops.aten
HOST = torch.device("cpu")
INDEXING = aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default
CALLED = {"embedding": ("index_select", {"weight": "self", "indices": "index"})}  # what it calls, and names there
SAME = "Expected all tensors to be on the same device, but"


def device_among(func, args, kwargs, device_of):
    """Where ``func`` computes, of the devices of its operands. Raises RuntimeError, as torch does."""
    operands = [
        (name, each, device_of(each)) for name, value in named(func, args, kwargs) for each in tensors_in((value,))
    ]
    if func in INDEXING:
        operands = check_indices(operands)
    for begin, check in CHECKS.items():
        if func.overloadpacket.__name__.startswith(begin):
            check(operands)
    declared = declaration_of(func)
    if func in INDEXING or not declared or "device_check: NoCheck" in declared:
        return common_of_elements(func, operands)
    return common_of_all(func, operands, "structured" in declared)


def named(func, args, kwargs):
    for position, argument in enumerate(func._schema.arguments):
        yield argument.name, args[position] if position < len(args) else kwargs.get(argument.name)


def common_of_elements(func, operands):
    """As TensorIterator says it: the GPU first."""
    written = operands[0][0] if func.overloadpacket.__name__.endswith("_") else "out"
    devices = [device for _, tensor, device in operands]
    common = next((device for device in devices if device != HOST), HOST)
    for name, tensor, device in operands:
        if device != common and (device != HOST or tensor.dim() or name == written):
            raise RuntimeError(f"{SAME} found at least two devices, {common} and {device}!")
    return common


def common_of_all(func, operands, structured):
    """As the code around kernels says it: what differs from the first."""
    called, names = CALLED.get(func.overloadpacket.__name__, (func.overloadpacket.__name__, {}))
    overload = func._schema.overload_name
    if structured:
        out = "_out" if operands[-1][0] == "out" else ""
        method = f"wrapper_CUDA_{called}{out}" + (f"_{overload}" if overload else "")
    else:
        method = f"wrapper_CUDA_{overload}_{called}"
    first = operands[0][2]
    for name, _, device in operands:
        if device != first:
            raise RuntimeError(
                f"{SAME} got {names.get(name, name)} is on {device}, different from other tensors on {first} "
                f"(when checking argument in method {method})"
            )
    return first


def check_indices(operands):
    """Without the indices, and without a value that is a number."""
    (_, _, indexed), *others = operands
    for name, _, device in others:
        if name == "indices" and device not in (HOST, indexed):
            raise RuntimeError(
                f"indices should be either on {HOST} or on the same device as the indexed tensor ({indexed})"
            )
    return [each for each in operands if each[0] != "indices" and (each[0] != "values" or each[1].dim())]


def check_convolution(operands):
    (_, given, here), (_, weight, there), *_ = operands
    if here != there:
        raise RuntimeError(
            f"Input type ({given.type()}) and weight type ({weight.type()}) should be the same"
            + (" or input should be a MKLDNN tensor and weight is a dense tensor" if here == HOST else "")
        )


def check_attention(operands):
    (_, _, query), (_, _, key), (_, _, value) = operands[:3]
    if {key, value} != {query}:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got "
            f"query.device: {query} key.device: {key} and value.device: {value} instead."
        )


def check_mask(operands):
    (_, _, filled), (_, _, mask), *_ = operands
    if mask != filled:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {mask} and self on {filled}"
        )


def check_recurrent(operands):
    (_, _, given), (_, _, weight), *_ = operands
    if given != weight:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, "
            f"found input tensor at {given} and parameter tensor at {weight}"
        )


CHECKS = {  # the beginning of an operator's name -> what checks its operands before torch does, in words of its own
    "convolution": check_convolution,
    "_scaled_dot_product": check_attention,
    "masked_fill": check_mask,
    "mkldnn_rnn": check_recurrent,
}
