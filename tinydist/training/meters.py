"""Metrics of a step: FLOPs of the model, MFU, peak memory.

    FLOPs of a token = 6 N + 12 L D T        forward and backward
    MFU              = tokens/s x FLOPs of a token / (ranks x peak of a device)

N counts the elements of matrices that tokens pass through: the head among them, though it shares the embedding's,
looking up a row not, and of the experts of a layer the k that a token goes to. L layers, with queries of dim D, each
score T tokens; the causal half is not taken off. What is recomputed does not count. Source: Chowdhery et al. 2022,
PaLM, appendix B; Narayanan et al. 2021, Efficient Large-Scale Language Model Training, appendix, has the same sum by
matrix.
"""

import re
import sys
from typing import NamedTuple

import torch
import torch.distributed as dist

from ..experts.balance import layers_of
from ..experts.router import Scores
from ..hardware import DEVICES
from ..model import GPT, GPTConfig
from ..plan import DTYPES
from ..rules import count, each_of, validate, whole
from ..tracing.scopes import of_thread

BESIDE = {"PCIe", "NVL"}  # cards of the same name that are slower


@validate(model=GPT, context=count)
def flops_per_token(model, context=None):
    """Of a ``GPT``, on sequences of ``context`` tokens (None: its longest)."""
    config = model.config
    matrices = sum(each.weight.numel() for each in model.modules() if isinstance(each, torch.nn.Linear | Scores))
    for layer in layers_of(model):
        passed = getattr(layer.router, "top_k", None) or layer.router.capacity_factor
        matrices -= (1 - passed / len(layer.experts)) * sum(each.numel() for each in layer.experts.parameters())
    return 6 * matrices + 12 * config.layers * config.dim * (context or config.context)


@validate(config=GPTConfig, rows=count, length=count, layers=each_of(whole, 0))
def flops_of_step(config, rows, length, layers):
    """Of matmuls, on ``rows`` sequences of ``length`` tokens. ``layers``: how many of them each one computes, 0 for one
    that is left out. The same sum: 72 K D^2 + 12 K^2 D for a layer of K tokens, 6 D V for each token's logits.
    """
    D = config.dim
    computed = sum(72 * kept * D * D + 12 * kept * kept * D for kept in layers)
    return rows * (computed + 6 * length * D * config.vocab_size)


def peak_flops(precision="fp32"):
    """FLOP/s of this rank's GPU; None if it has none, or one that is not in hardware/devices.py."""
    if not on_gpu():
        return None
    device = device_named(torch.cuda.get_device_name())
    tf32 = precision == "fp32" and torch.get_float32_matmul_precision() != "highest"
    return device and device.peak_of("tf32" if tf32 else DTYPES[precision])


def device_named(name):
    """The ``Device`` that CUDA calls so: "NVIDIA A100-SXM4-80GB"; None if it is not known."""
    words = set(re.split(r"[\s-]+", name))
    known = [device for device in DEVICES.values() if set(device.name.split()) <= words]
    return known[0] if known and not words & BESIDE else None


class Peak(NamedTuple):
    nbytes: int
    of: str  # who says so

    def __str__(self):
        return f"{self.nbytes / 1e9:,.3g} GB" if self.nbytes >= 1e9 else f"{self.nbytes / 1e6:,.3g} MB"


def peak_memory():
    """The most that this rank has held: tensors, on simulated ranks that are observed and on GPUs; else its process."""
    if dist.get_backend() == "simulated":
        return of_thread.ledger and Peak(of_thread.ledger.peak, "ledger")
    if on_gpu():
        return Peak(torch.cuda.max_memory_allocated(), "GPU")
    import resource  # which Windows has not

    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes there, KiB on Linux
    return Peak(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process")


def on_gpu():
    return "nccl" in dist.get_backend()
