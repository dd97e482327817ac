"""Cost model of a forward pass on a device: prefill is compute-bound, decode memory-bound.

    prefill    n tokens of a prompt    2 P n FLOPs for 2 P bytes of weights     n FLOPs per byte: compute (n > 200)
    decode     a token of b sequences  2 P b FLOPs for the same bytes           b FLOPs per byte: bandwidth
               and all keys and values of each, read for itself alone: 1 FLOP per byte in fp16, for any batch size

A pass reads the weights once for all its tokens, so decoding 20 sequences takes little longer than one. Of the
embedding it reads a row for each token. The KV cache is not shared; it limits the batch size.

    GPU        max(FLOPs / peak, weights / bandwidth) + max(attention's FLOPs / peak, cache / bandwidth) (1 + paging)
               + the start of each kernel + all-reduces
    seconds    max(GPU, the CPU's time to start all kernels) + overhead
    on t ranks each has 1/t of both, and waits for two all-reduces per layer of n D elements (hardware/algorithms.py)

On many GPUs a rank reads little, and what remains are starts (execution.py) and the latency of small all-reduces. With
``vocab_parallel=False`` each rank has the whole embedding and head, as in gpt-fast.

Peaks are those of the device as it is given: ``device.at(matmul=0.8, memory=0.87)`` is nearer to what programs get; a
copy gets 0.87 of an A100's bandwidth (hardware/published.py). What the CPU takes between passes, to schedule and to
sample, is ``overhead``; by default none. vLLM of November 2024 took about 1.3 ms: a pass of OPT 125M, which needs
0.3 ms of a GPU, took 1.6 (vllm-project/vllm pull request 10058, read; it names no GPU).

Sources: Pope et al. 2022, Efficiently Scaling Transformer Inference, section 2; Kwon et al. 2023, PagedAttention,
section 7.1 (attention over blocks takes 20 to 26 % longer than over one piece).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ..attention import bytes_per_token, latent_bytes_per_token
from ..hardware import Cluster, Device, Link, collective_time, costs
from ..hardware.cluster import some_algorithm
from ..hardware.fabrics import NODE_FABRICS
from ..planner import Model
from ..rules import amount, count, each_of, flag, must, one_of, part, stated, validate, whole
from .execution import EXECUTIONS

PAGING = 0.23  # the middle of 20 to 26 %
LARGEST_DIRECT = 8 * 2**20  # bytes: from here on, vLLM leaves it to NCCL (vllm@00d618aa custom_all_reduce.py, read)


def some_tokens(value):
    """(past, new): tokens in the cache, and those that are computed"""
    return isinstance(value, tuple) and len(value) == 2 and all(map(whole, value))


DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
of_numbers = stated(f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES)


@validate(model=Model, device=Device, dtype=of_numbers, ranks=count, link=Link, paging=amount, overhead=amount)
@validate(execution=one_of(EXECUTIONS), vocab_parallel=flag, algorithm=some_algorithm)
@dataclass(frozen=True)
class StepCost:
    """Of passes through ``model`` on ``ranks`` devices, which ``link`` joins."""

    model: Model
    device: Device
    dtype: str = "float16"
    ranks: int = 1
    link: Link | None = None
    paging: float = PAGING
    overhead: float = 0.0  # seconds a pass
    execution: str = "CUDA graph"
    vocab_parallel: bool = True
    algorithm: str | None = "custom"  # of small all-reduces: vLLM's kernel, a direct exchange; None: NCCL's

    def __post_init__(self):
        if self.model.heads % self.ranks:
            raise ValueError(f"StepCost: heads ({self.model.heads}) must be divisible by ranks ({self.ranks})")
        if self.ranks > 1 and self.link is None:
            raise ValueError(f"StepCost: {self.ranks} ranks need a link, got None")

    @property
    def weights(self):
        """Bytes, of all ranks together."""
        return DTYPES[self.dtype].itemsize * self.model.parameters

    @property
    def weights_read(self):
        """Bytes, by each rank in a pass: not the embedding, of which a row is read for each token."""
        model, table = self.model, self.model.vocabulary * self.model.width
        layers = model.parameters - table * (1 if model.tied else 2)
        split = layers + table if self.vocab_parallel else layers
        return DTYPES[self.dtype].itemsize * (split / self.ranks + (layers + table - split))

    @property
    def bytes_per_token(self):
        """Of cache, on all ranks together; each rank has at least one head of keys."""
        model, dtype = self.model, DTYPES[self.dtype]
        if model.latent:
            return self.ranks * latent_bytes_per_token(model.layers, model.latent.keys, model.latent.rotary, dtype)
        return bytes_per_token(model.layers, max(model.kv_heads, self.ranks), model.head_dim, dtype)

    @validate(memory=part)
    def room(self, memory=0.92):
        """Tokens that fit in the cache, if it gets what weights leave of this fraction of the devices' memory."""
        left = self.ranks * self.device.memory * memory - self.weights
        if left < self.bytes_per_token:
            raise ValueError(
                f"StepCost: {self.weights / 1e9:.1f} GB of weights leave no memory for the KV cache in {self.ranks} x "
                f"{self.device.memory / 1e9:.0f} GB x {memory:g}"
            )
        return int(left // self.bytes_per_token)

    @validate(parts=each_of(some_tokens, 0), paged=flag)
    def seconds(self, parts, paged=False):
        """Of a pass over ``parts``: of each sequence (tokens in its cache, tokens that are computed)."""
        new, t = sum(new for _, new in parts), self.ranks
        if not new:
            return 0.0
        cached = sum(past + new for past, new in parts) * self.bytes_per_token
        linear = costs.kernel_time(self.device, self.linear_flops(parts) / t, self.weights_read, self.dtype)
        attention = costs.kernel_time(self.device, self.attention_flops(parts) / t, cached / t, self.dtype)
        gpu = linear + attention * (1 + self.paging * paged) + self.starting + self.sending(new)
        return max(gpu, EXECUTIONS[self.execution].cpu_seconds(self.model.layers)) + self.overhead

    @property
    def starting(self):
        """Seconds of a pass that the GPU takes to start kernels."""
        return EXECUTIONS[self.execution].gpu_seconds(self.model.layers, self.device)

    def linear_flops(self, parts):
        """Of all matmuls with weights; the head is computed only for the last token of each sequence."""
        per_token = self.model.layers * (self.model.layer_flops - self.model.attention_flops)
        return sum(new for _, new in parts) * per_token + len(parts) * self.model.head_flops

    def attention_flops(self, parts):
        """Of scores and weighted sums: each new token attends to the past, and to the new ones up to itself."""
        seen = sum(new * past + new * (new + 1) / 2 for past, new in parts)
        return self.model.layers * self.model.attention_flops / self.model.tokens * seen

    def bytes_sent(self, tokens):
        """Bytes per rank for so many tokens, by a ring: two all-reduces per layer, one of a sharded embedding, of
        2 (t-1)/t n each."""
        must("StepCost", "tokens", whole, tokens)
        all_reduces, nbytes = self._all_reduces(tokens)
        return all_reduces * 2 * (self.ranks - 1) / self.ranks * nbytes

    def sending(self, tokens):
        """Seconds of all-reduces in a pass over so many tokens."""
        must("StepCost", "tokens", whole, tokens)
        all_reduces, nbytes = self._all_reduces(tokens)
        if self.ranks == 1:
            return 0.0
        algorithm = self.algorithm if nbytes < LARGEST_DIRECT else None
        return all_reduces * collective_time("all_reduce", nbytes, self.ranks, self.ranks, self._node, algorithm)

    @cached_property
    def _node(self):
        """Switches join the devices: each reaches any other by all of its link."""
        fabric = self.link.fabric or (self.link.name if self.link.name in NODE_FABRICS else None)
        link = replace(self.link, shape="switch", fabric=fabric)
        return Cluster(self.device, self.ranks, link)

    def _all_reduces(self, tokens):
        """How many in a pass, and the bytes of each."""
        return 2 * self.model.layers + self.vocab_parallel, tokens * self.model.width * DTYPES[self.dtype].itemsize
