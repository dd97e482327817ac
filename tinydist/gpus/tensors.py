"""What tensors say of their device, and how they move: attributes of torch.Tensor while ranks run.

C++ has CPU tensors only. A copy to another device is one to other memory, which the ledger holds, or does not.
"""

import torch

from ..torch_internals import compiled_as, default_device, parse_to_arguments
from ..tracing.streams import host_waits
from .overridable import of_rank, overridable
from .placement import HOST, new_tensors_on
from .rank_gpus import mine, of_thread

Tensor = torch.Tensor


def device_of(tensor):
    return of_thread.gpus.placement.device_of(tensor)


class Move(torch.autograd.Function):
    """To another device, and gradients back."""

    @staticmethod
    def forward(ctx, tensor, device, dtype, memory_format, non_blocking):
        ctx.device, ctx.dtype = device_of(tensor), tensor.dtype
        return copied(tensor, device, dtype, memory_format, non_blocking)

    @staticmethod
    def backward(ctx, gradient):
        return copied(gradient, ctx.device, ctx.dtype), None, None, None, None


def copied(tensor, device, dtype=None, memory_format=None, non_blocking=False):
    how = {"memory_format": memory_format} if memory_format else {}
    with new_tensors_on(device):
        return real["to"](tensor, HOST, dtype or tensor.dtype, non_blocking=non_blocking, copy=True, **how)


def moved(tensor, device, dtype=None, memory_format=None, non_blocking=False):
    if tensor.requires_grad and torch.is_grad_enabled():
        return Move.apply(tensor, device, dtype, memory_format, non_blocking)
    return copied(tensor, device, dtype, memory_format, non_blocking)


# The attributes.


def is_cuda(self):
    return device_of(self).type == "cuda"


def is_cpu(self):
    return device_of(self).type == "cpu"


def get_device(self):
    index = device_of(self).index
    return -1 if index is None else index


def to(self, *how, **named):
    if "other" in named:
        how = named.pop("other"), *how
    copy = named.pop("copy", False)
    if len(how) > 2 and (len(how) > 3 or isinstance(how[0], Tensor | torch.dtype)):  # (..., non_blocking, copy)
        how, copy = how[:-1], how[-1]
    device, dtype, non_blocking, memory_format = parsed(*how, **named)
    here = device_of(self)
    there = here if device is None else device
    if there != here and {there.type, here.type} <= {"cuda", "cpu"}:
        return moved(self, there, dtype, memory_format, non_blocking)
    named = {"memory_format": memory_format} if memory_format else {}
    if "meta" in (there.type, here.type):
        named["device"] = HOST if there.type == "cuda" else there
    return real["to"](self, dtype=dtype or self.dtype, copy=copy, **named)


def parsed(*how, **named):
    """What ``to`` is asked for, with the number of the GPU."""
    if how and isinstance(how[0], Tensor):  # as another one is
        how = device_of(how[0]), how[0].dtype, *how[1:]
    if how and isinstance(how[0], int) and not isinstance(how[0], bool):
        how = mine().device(how[0]), *how[1:]
    if "device" in named:
        how, named = (named["device"], *how), {name: value for name, value in named.items() if name != "device"}
        return parsed(*how, **named)
    device, *others = parse_to_arguments(*how, **named)
    return device and mine().device(device), *others


def cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
    return to(self, mine().device(device), non_blocking=non_blocking)


def cpu(self, memory_format=torch.preserve_format):
    return to(self, HOST)


def type_of(self, dtype=None, non_blocking=False, **named):
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return real["type"](cuda(self), dtype.replace("torch.cuda.", "torch."))
    if dtype is not None:
        return real["type"](self, dtype, non_blocking)
    name = real["type"](self)
    return name.replace("torch.", "torch.cuda.") if is_cuda(self) else name


def type_as(self, tensor):
    return to(self, tensor)


def numpy(self, *, force=False):
    if is_cuda(self):
        if not force:
            raise TypeError(
                f"can't convert {device_of(self)} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        self = cpu(self.detach())
    return real["numpy"](self, force=force)


def tolist(self):
    return real["tolist"](cpu(self.detach()) if is_cuda(self) else self)


def represented(self, *, tensor_contents=None):
    """torch reads it outside of all modes."""
    if is_cuda(self):
        host_waits()
    return real["__repr__"](self, tensor_contents=tensor_contents)


def pin_memory(self, device=None):
    if is_cuda(self):
        raise RuntimeError(f"cannot pin '{type_of(self)}' only dense CPU tensors can be pinned")
    mine().pinned[self] = True
    return self


def is_pinned(self, device=None):
    return self in mine().pinned


def record_stream(self, stream):
    """The allocator's business."""


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, **named):
    return tensor(data, dtype=dtype or self.dtype, device=device or device_of(self), requires_grad=requires_grad)


def new(self, *sizes_or_data, device=None):
    """As it was before ``new_tensor`` and ``new_empty``."""
    return on_its_device(real["new"](self, *sizes_or_data), device or device_of(self))


PROPERTIES = {"device": device_of, "is_cuda": is_cuda, "is_cpu": is_cpu}
METHODS = {
    "get_device": get_device,
    "to": to,
    "cuda": cuda,
    "cpu": cpu,
    "type": type_of,
    "type_as": type_as,
    "numpy": numpy,
    "tolist": tolist,
    "__repr__": represented,
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "record_stream": record_stream,
    "new_tensor": new_tensor,
    "new": new,
}
real = {name: getattr(Tensor, name) for name in PROPERTIES | METHODS}
ATTRIBUTES = {name: of_rank(attribute, real[name]) for name, attribute in PROPERTIES.items()}
ATTRIBUTES |= {name: overridable(method, real[name]) for name, method in METHODS.items()}


# Functions that make tensors of the program's data, out of the dispatcher's sight.


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    if of_thread.gpus is None:
        return makers["tensor"](data, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)
    device = device_of(data) if device is None and isinstance(data, Tensor) else device
    made = on_its_device(makers["tensor"](data, dtype=dtype, device=HOST), device)
    return made.requires_grad_(requires_grad)


def as_tensor(data, dtype=None, device=None):
    if of_thread.gpus is None:
        return makers["as_tensor"](data, dtype=dtype, device=device)
    if isinstance(data, Tensor):
        return to(data, device or device_of(data), dtype or data.dtype)
    return on_its_device(makers["as_tensor"](data, dtype=dtype, device=HOST), device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    if of_thread.gpus is None:
        return makers["asarray"](obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
    made = obj.detach() if isinstance(obj, Tensor) else makers["asarray"](obj, dtype=dtype, device=HOST, copy=copy)
    device = device_of(obj) if device is None and isinstance(obj, Tensor) else device
    made = to(on_its_device(made, device), dtype=dtype or made.dtype, copy=bool(copy))
    return made.requires_grad_(requires_grad) if requires_grad else made


def on_its_device(made, device):
    wanted = default_device() or HOST if device is None else device
    device = mine().device(wanted)
    return made if device == device_of(made) else moved(made, device)


MAKERS = {"tensor": tensor, "as_tensor": as_tensor, "asarray": asarray}
makers = {name: getattr(torch, name) for name in MAKERS}
for name, function in MAKERS.items():
    compiled_as(function, makers[name])
