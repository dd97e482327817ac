"""What a pass through a model costs, on a device: prompts are bound by its arithmetic, decoding by its memory.

    prefill    n tokens of a prompt    2 P n FLOPs for 2 P bytes of weights     n FLOPs a byte: compute, from n = 200 on
    decode     a token of b sequences  2 P b FLOPs for the same bytes           b FLOPs a byte: bandwidth
               and all keys and values of each, read for itself alone: 1 FLOP a byte in fp16, whatever the batch

A pass reads the weights once for all tokens in it: that is what a batch shares, and why 20 sequences take little longer
than one. What they do not share is the cache; it bounds how many there can be.

    seconds    max(FLOPs / peak, weights / bandwidth) + max(attention's FLOPs / peak, cache / bandwidth) (1 + paging)
    on t ranks each has 1/t of both, and waits for two all-reduces a layer of n D numbers

Peaks are those of the device as it is given: ``device.at(matmul=0.8, memory=0.8)`` is nearer to what programs get. What
the CPU takes to schedule, to sample and to start kernels is ``overhead``; by default none.

Sources: Pope et al. 2022, Efficiently Scaling Transformer Inference, section 2; Kwon et al. 2023, PagedAttention,
section 7.1 (attention over blocks takes 20 to 26 % longer than over one piece).
"""

from dataclasses import dataclass

import torch

from ..attention import bytes_a_token, latent_bytes_a_token
from ..hardware import Device, Link, costs
from ..planner import Model
from ..rules import amount, count, each_of, flag, must, part, stated, takes, whole

PAGING = 0.23  # the middle of 20 to 26 %


def some_tokens(value):
    """(past, new): tokens in the cache, and those that are computed"""
    return isinstance(value, tuple) and len(value) == 2 and all(map(whole, value))


DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
of_numbers = stated(f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES)


@takes(model=Model, device=Device, dtype=of_numbers, ranks=count, link=Link, paging=amount, overhead=amount)
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

    def __post_init__(self):
        if self.model.heads % self.ranks:
            raise ValueError(f"StepCost: {self.model.heads} heads do not divide among {self.ranks} ranks")
        if self.ranks > 1 and self.link is None:
            raise ValueError(f"StepCost: {self.ranks} ranks need a link, got None")

    @property
    def number(self):
        """Bytes of one."""
        return DTYPES[self.dtype].itemsize

    @property
    def weights(self):
        """Bytes, of all ranks together."""
        return self.number * self.model.parameters

    @property
    def bytes_a_token(self):
        """In the cache, of all ranks together: heads of keys, of which there is one at least on each."""
        latent = self.model.latent
        if latent:
            return self.ranks * latent_bytes_a_token(self.model.layers, latent.keys, latent.rotary, DTYPES[self.dtype])
        heads = max(self.model.kv_heads, self.ranks)
        return bytes_a_token(self.model.layers, heads, self.model.head_dim, DTYPES[self.dtype])

    @takes(memory=part)
    def room(self, memory=0.92):
        """Tokens that the cache holds, if it gets what weights leave of this part of the devices' memory."""
        left = self.ranks * self.device.memory * memory - self.weights
        if left < self.bytes_a_token:
            raise ValueError(
                f"StepCost: {self.weights / 1e9:.1f} GB of weights leave no room in {self.ranks} x "
                f"{self.device.memory / 1e9:.0f} GB x {memory:g}"
            )
        return int(left // self.bytes_a_token)

    @takes(parts=each_of(some_tokens, 0), paged=flag)
    def seconds(self, parts, paged=False):
        """Of a pass that computes ``parts``: of each sequence, (its tokens in the cache, those that are computed)."""
        new, t = sum(new for _, new in parts), self.ranks
        if not new:
            return 0.0
        cached = sum(past + new for past, new in parts) * self.bytes_a_token
        linear = costs.kernel_seconds(self.device, self.linear_flops(parts) / t, self.weights / t, self.dtype)
        attention = costs.kernel_seconds(self.device, self.attention_flops(parts) / t, cached / t, self.dtype)
        return linear + attention * (1 + self.paging * paged) + self.sending(new) + self.overhead

    def linear_flops(self, parts):
        """Of all products with weights; the head computes for the last token of each part alone."""
        a_token = self.model.layers * (self.model.layer_flops - self.model.attention_flops)
        return sum(new for _, new in parts) * a_token + len(parts) * self.model.head_flops

    def attention_flops(self, parts):
        """Of scores, and what they weigh: each new token sees the past, and the new ones up to itself."""
        seen = sum(new * past + new * (new + 1) / 2 for past, new in parts)
        return self.model.layers * self.model.attention_flops / self.model.tokens * seen

    def bytes_sent(self, tokens):
        """By each rank, for so many tokens: two all-reduces a layer, and that of what is embedded; 2(t-1)/t n each."""
        must("StepCost", "tokens", whole, tokens)
        nbytes = tokens * self.model.width * self.number
        return (2 * self.model.layers + 1) * 2 * (self.ranks - 1) / self.ranks * nbytes

    def sending(self, tokens):
        """Seconds."""
        if self.ranks == 1:
            return 0.0
        nbytes = tokens * self.model.width * self.number
        return (2 * self.model.layers + 1) * costs.ring_all_reduce(nbytes, self.ranks, self.link)
