"""Flash attention, in plain torch and as Triton kernels, beside torch's own (SDPA): values, gradients, seconds."""

import statistics
from importlib.util import find_spec

import torch
import torch.nn.functional as F

from tinydist.attention import flash_attention

from .training import now

HEADS, DIM, REPEATS = 8, 64, 5


class NoTriton(Exception):
    """The kernels are written in Triton, which is not installed."""


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def triton(q, k, v):
    from tinydist.attention.flash_triton import flash_attention_triton

    return flash_attention_triton(q, k, v, causal=True)


def plain(q, k, v):
    return flash_attention(q, k, v, causal=True)


def forward_and_backward(attention, tensors, device):
    seconds = []
    for _ in range(REPEATS):
        began = now(device)
        out = attention(*tensors)
        gradients = torch.autograd.grad(out, tensors, out.detach())
        seconds.append(now(device) - began)
    return [out, *gradients], statistics.median(seconds[1:])


def compare(machine):
    if machine.device == "cuda" and not find_spec("triton"):
        raise NoTriton("Triton is not installed: make kernels")
    kernels = {"SDPA": sdpa, "flash, plain torch": plain} | ({"Triton": triton} if machine.device == "cuda" else {})
    dtype = torch.bfloat16 if machine.device == "cuda" else torch.float32
    torch.manual_seed(0)
    rows = []
    for length in machine.lengths:
        shape = 1, HEADS, length, DIM
        tensors = [torch.randn(shape, device=machine.device, dtype=dtype, requires_grad=True) for _ in range(3)]
        expected, _ = forward_and_backward(sdpa, tensors, machine.device)
        for name, attention in kernels.items():
            found, seconds = forward_and_backward(attention, tensors, machine.device)
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
            rows.append({"attention": name, "tokens": length, "seconds": seconds})
    return rows
