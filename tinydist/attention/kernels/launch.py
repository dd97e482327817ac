"""Launches: what a kernel is given, how many programs there are, and with which tiles."""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from .backward import backward_kernel, delta_kernel
from .configs import configs
from .forward import forward_kernel
from .tiles import INTERPRETED, View


class Task(NamedTuple):
    """What the kernels are asked for, besides the tensors: see ``Band``, and ``PackedBand``.

    bounds_q, bounds_k:  int32 tensors, of packed sequences; None: each row of the batch is one.
    longest_q, _k:       tokens of the longest sequence.
    tile:                (queries, keys), or None: what was the fastest of those in configs.py.
    """

    scale: float
    nearest: float
    farthest: float
    longest_q: int
    longest_k: int
    bounds_q: Any = None
    bounds_k: Any = None
    tile: tuple | None = None


def forward(task, q, k, v):
    """The output [B, H, T, e], laid out by tokens, and the log-sum-exp to base 2 [B, H, T]."""
    B, H, T, _ = q.shape
    out = q.new_empty(B, T, H, v.shape[3]).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    more = dict(out=view(out), lse=lse, H=H, longest=task.longest_q)
    _launch(forward_kernel, task, dict(q=q, k=k, v=v), more, "M")
    return out, lse


def backward(task, q, k, v, out, lse, dout):
    """The gradients of q, k, v."""
    (B, H, T, e), delta = dout.shape, torch.empty_like(lse)
    with torch.cuda.device_of(q):
        delta_kernel[(triton.cdiv(T, 64) * H * B,)](view(out), view(dout), delta, H, T, e=e, E=padded(e), M=64)
    dq, dk, dv = torch.empty_like(q, dtype=torch.float32), torch.empty_like(k), torch.empty_like(v)
    more = dict(lse=lse, delta=delta, dq=view(dq), dk=view(dk), dv=view(dv))
    more |= dict(H=k.shape[1], longest=task.longest_k, scale=task.scale)
    _launch(backward_kernel, task, dict(q=q, k=k, v=v, dout=dout), more, "N")
    return torch.mul(dq, task.scale, out=torch.empty_like(q)), dk, dv


def _launch(kernel, task, tensors, more, side):
    arguments = arguments_of(task, tensors) | more

    def grid(meta):
        return (programs(meta["longest"], meta[side], meta["H"], tensors["k"].shape[0], meta["sequences"]),)

    q, tma = tensors["q"], isinstance(arguments["q"], TensorDescriptor)
    with torch.cuda.device_of(q):  # kernels start on the current device
        chosen = choices(kernel, architecture(q.device), arguments["D"], arguments["E"], q.dtype, tma, task.tile)
        if INTERPRETED.value or len(chosen) == 1:
            arguments |= chosen[0].all_kwargs()
            prepare(arguments)
            kernel[grid](**arguments)
        else:
            edges = arguments["right"], arguments["left"]
            autotuned(kernel, q.dtype, arguments["d"], arguments["e"], *edges, tuple(chosen))[grid](**arguments)


def programs(longest, tile, heads, batch, sequences):
    """One for each tile and head, on one axis of the grid: the others end at 65,535."""
    return triton.cdiv(longest, tile) * heads * batch * sequences


def arguments_of(task, tensors):
    """What all kernels take."""
    (_, H, T, d), (_, G, S, e) = tensors["q"].shape, tensors["v"].shape
    tma = all(map(describable, tensors.values()))
    right, left = task.nearest > -math.inf, task.farthest < math.inf
    band = dict(nearest=task.nearest if right else 0, farthest=task.farthest if left else 0, right=right, left=left)
    bounds = dict(bounds_q=task.bounds_q, bounds_k=task.bounds_k)
    sequences = 1 if task.bounds_q is None else len(task.bounds_q) - 1
    sizes = dict(T=T, S=S, R=H // G, d=d, e=e, D=padded(d), E=padded(e), sequences=sequences)
    where = {name: descriptor(x) if tma else view(x) for name, x in tensors.items()}
    return where | band | bounds | sizes | dict(scale2=task.scale * math.log2(math.e))


def padded(dim):
    return max(16, triton.next_power_of_2(dim))


def view(x):
    return View(x, *x.stride()[:3])


def descriptor(x):
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 16, 16])


def describable(x):
    """The copy engine of Hopper wants places that are multiples of 16 bytes."""
    places = [x.data_ptr(), *(stride * x.itemsize for stride in x.stride()[:3])]
    return architecture(x.device) >= 90 and all(places) and not any(place % 16 for place in places)


@functools.cache
def architecture(device):
    """90 of an H100. The interpreter can do what that does."""
    return 90 if INTERPRETED.value else 10 * torch.cuda.get_device_capability(device)[0] + torch.cuda.get_device_capability(device)[1]


def prepare(arguments):
    """Before each launch: descriptors learn the size of a tile, and dq, to which programs add, is zero."""
    for name, tokens, dim in (("q", "M", "D"), ("k", "N", "D"), ("v", "N", "E"), ("dout", "M", "E")):
        if isinstance(arguments.get(name), TensorDescriptor):
            arguments[name].block_shape = [1, 1, arguments[tokens], arguments[dim]]
    if "dq" in arguments:
        arguments["dq"].pointer.zero_()


def choices(kernel, capability, D, E, dtype, tma, tile):
    """What is tried: all of it fits, and nothing spills (tests compile it)."""
    tiles = [(*tile, 4, 2)] if tile else configs(kernel.__name__, capability, max(D, E), dtype.itemsize, tma)
    return [
        triton.Config(dict(M=M, N=N), num_warps=warps, num_stages=stages, pre_hook=prepare)
        for M, N, warps, stages in tiles
    ]


@functools.cache
def autotuned(kernel, dtype, d, e, right, left, chosen):
    """The kernel that tries what was chosen, once for each of these."""
    return triton.autotune(list(chosen), key=[])(kernel)
