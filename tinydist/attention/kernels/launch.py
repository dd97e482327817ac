"""Kernel launches: arguments, grid, and autotuned tile sizes."""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from .backward import backward_kernel, delta_kernel, queries_kernel
from .configs import WIDEST_DESCRIBED, configs
from .forward import forward_kernel
from .tiles import INTERPRETED, View

KERNELS = {"forward": forward_kernel, "backward": backward_kernel, "queries": queries_kernel}


class KernelArguments(NamedTuple):
    """What the kernels take besides the tensors.

    nearest, farthest:   the edges of the ``AttentionMask``.
    longest_q, _k:       tokens of the longest sequence.
    bounds_q, _k:        int32 tensors, of packed sequences; None: each row of the batch is one.
    offsets:             int32 tensor, of each row of the batch the position of its first query; None: keys - queries.
    tile:                (queries, keys), or None: the fastest of configs.py.
    """

    scale: float
    nearest: float
    farthest: float
    longest_q: int
    longest_k: int
    bounds_q: Any = None
    bounds_k: Any = None
    offsets: Any = None
    tile: tuple | None = None


def forward(task, q, k, v):
    """The output [B, H, T, e], laid out by tokens, and the log-sum-exp to base 2 [B, H, T]."""
    B, H, T, _ = q.shape
    out = q.new_empty(B, T, H, v.shape[3]).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    run("forward", task, dict(q=q, k=k, v=v), out=view(out), lse=lse)
    return out, lse


def backward(task, q, k, v, out, lse, dout):
    """The gradients of q, k, v."""
    (B, H, T, e), delta, tensors = dout.shape, torch.empty_like(lse), dict(q=q, k=k, v=v, dout=dout)
    with torch.cuda.device_of(q):
        sizes = dict(e=e, E=padded(e), M=64, enable_fp_fusion=True)
        delta_kernel[(triton.cdiv(T, 64) * H * B,)](view(out), view(dout), delta, H, T, **sizes)
    dq, dk, dv = (torch.empty_like(each) for each in (q, k, v))
    of_heads = [x.new_empty(B, H, *x.shape[2:], dtype=torch.float32) for x in (k, v)] if k.shape[1] < H else [dk, dv]
    known = dict(lse=lse, delta=delta, scale=task.scale)
    of_keys = known | dict(zip(("dk", "dv"), map(view, of_heads)))
    if torch.are_deterministic_algorithms_enabled():
        run("backward", task, tensors, dq=None, **of_keys)
        run("queries", task, tensors, dq=view(dq), **known)
    else:
        total = q.new_empty(q.shape, dtype=torch.float32)
        run("backward", task, tensors, dq=total, **of_keys)
        torch.mul(total, task.scale, out=dq)
    if k.shape[1] < H:
        for total, gradient in zip(of_heads, (dk, dv)):
            gradient.copy_(total.unflatten(1, (k.shape[1], -1)).sum(2))
    return dq, dk, dv


def run(kind, task, tensors, **more):
    q = tensors["q"]
    with torch.cuda.device_of(q):  # kernels start on the current device
        arguments = arguments_of(kind, task, tensors) | more
        key = tuple(arguments[name] for name in ("d", "e", "right", "left"))
        kernel = autotuned(kind, q.dtype, key, choices(kind, arguments, q.dtype, task.tile))
        kernel[functools.partial(grid_of, kind, len(q))](**arguments)


def grid_of(kind, batch, arguments):
    """A program for each tile and head, on one axis: the others end at 65,535."""
    tile = arguments["N" if kind == "backward" else "M"]
    return (triton.cdiv(arguments["longest"], tile) * arguments["H"] * arguments["sequences"] * batch,)


def arguments_of(kind, task, tensors):
    """What all kernels take."""
    (_, H, T, d), (_, G, S, e) = tensors["q"].shape, tensors["v"].shape
    tma = max(d, e) <= WIDEST_DESCRIBED[kind] and all(map(describable, tensors.values()))
    right, left = task.nearest > -math.inf, task.farthest < math.inf
    band = dict(nearest=task.nearest if right else 0, farthest=task.farthest if left else 0, right=right, left=left)
    sequences = 1 if task.bounds_q is None else len(task.bounds_q) - 1
    packed = dict(bounds_q=task.bounds_q, bounds_k=task.bounds_k, sequences=sequences, offsets=task.offsets)
    sizes = dict(T=T, S=S, R=H // G, d=d, e=e, D=padded(d), E=padded(e), H=H)
    sizes |= dict(
        longest=task.longest_k if kind == "backward" else task.longest_q, scale2=task.scale * math.log2(math.e)
    )
    return {name: (descriptor if tma else view)(x) for name, x in tensors.items()} | band | packed | sizes


def padded(dim):
    return max(16, triton.next_power_of_2(dim))


def view(x):
    return View(x, *x.stride()[:3])


def descriptor(x):
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 16, 16])


def describable(x):
    """A Hopper GPU's Tensor Memory Accelerator (TMA) requires base addresses and strides aligned to 16 bytes."""
    places = [x.data_ptr(), *(stride * x.itemsize for stride in x.stride()[:3])]
    return architecture() >= 90 and all(places) and not any(place % 16 for place in places)


def architecture():
    """Of the current device: 90 is an H100. The interpreter can do what that does."""
    return 90 if INTERPRETED.value else driver.active.get_current_target().arch


def prepare(arguments):
    """Before each launch: descriptors learn the tile, and where programs add, there is zero."""
    for name, tokens, dim in (("q", "M", "D"), ("k", "N", "D"), ("v", "N", "E"), ("dout", "M", "E")):
        if isinstance(arguments.get(name), TensorDescriptor):
            arguments[name].block_shape = [1, 1, arguments[tokens], arguments[dim]]
    if isinstance(arguments.get("dq"), torch.Tensor):
        arguments["dq"].zero_()


def choices(kind, arguments, dtype, tile=None):
    """What is tried: in the interpreter, only the first."""
    tma, dim = isinstance(arguments["q"], TensorDescriptor), max(arguments["D"], arguments["E"])
    packed = arguments["bounds_q"] is not None
    tiles = configs(kind, architecture(), dim, dtype.itemsize, tma, packed) if tile is None else [(*tile, 4, 1)]
    return tuple(tiles[:1] if INTERPRETED.value else tiles)


@functools.cache
def autotuned(kind, dtype, key, tiles):
    """The kernel that tries the tiles once, the first time that it is called with this key."""
    chosen = [
        triton.Config(dict(M=M, N=N, enable_fp_fusion=True), num_warps=warps, num_stages=stages, pre_hook=prepare)
        for M, N, warps, stages in tiles
    ]
    return triton.autotune(chosen, key=[])(KERNELS[kind])
