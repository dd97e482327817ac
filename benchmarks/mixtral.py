"""A step of Mixtral 8x7B, 46.7 billion parameters, on 64 simulated ranks without data: bytes, by the ledger; time, by
the clock.

    python benchmarks/mixtral.py [--layers 32] [--tokens 4096]

8 nodes of 8 H100s; a node's ranks share the experts, one each, and all 64 are data parallel: ZeRO stage 2 shards the
dense part over 64 ranks, and each expert over the 8 that have it. bf16 with master weights. The router is even, as in
measurements of Megatron-LM (``--moe-router-force-load-balancing``): fake tensors have no values to choose by.

Published: 468 TFLOP/s of an H100 for this model in bf16, of MCore v0.9; the plan that the same page has as a reference,
of v0.8, is pp 4 in 8 parts, ep 8, 256 sequences (Megatron-LM's megatron/core/transformer/moe/README.md at tag
core_v0.13.0, the plan at commit 022bcb5a). This step has one sequence a rank; a real one takes several before it
reduces gradients.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.attention import GroupedQueryAttention, fused_attention
from tinydist.experts import EvenRouter, Expert, MoE, Sizes, split
from tinydist.hardware import find_cluster
from tinydist.hardware.published import training_rates
from tinydist.zero import ZeRO2

SIZES = Sizes(dim=4096, hidden=14336, experts=8, top_k=2)
VOCABULARY, HEADS, KV_HEADS, LAYERS, TOKENS = 32000, 32, 8, 32, 4096
RANKS, EP = 64, 8


class Block(nn.Module):
    def __init__(self, group):
        super().__init__()
        D = SIZES.dim
        self.attention_norm, self.mlp_norm = nn.RMSNorm(D), nn.RMSNorm(D)
        self.attention = GroupedQueryAttention(D, HEADS, KV_HEADS, rotary=1e6, attend=fused_attention)
        router = EvenRouter(D, SIZES.experts, SIZES.top_k)
        self.mlp = MoE(router, lambda number: Expert(D, SIZES.hidden, gated=True), group=group)

    def forward(self, x):  # [B, T, D]
        x = x + self.attention(self.attention_norm(x), causal=True)
        return x + self.mlp(self.mlp_norm(x))


class Mixtral(nn.Module):
    def __init__(self, layers, group=None):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, SIZES.dim)
        self.blocks = nn.ModuleList(Block(group) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(SIZES.dim), nn.Linear(SIZES.dim, VOCABULARY, bias=False)

    def loss(self, tokens, targets):  # [B, T]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def parameters(layers):
    """(dense, of experts)."""
    D = SIZES.dim
    attention = 2 * D**2 + 2 * D**2 * KV_HEADS // HEADS
    return layers * (attention + SIZES.experts * D + 2 * D) + 2 * VOCABULARY * D + D, layers * SIZES.experts * SIZES.one


def at_rest(layers):
    """Bytes of a rank after a step: weights, and its share of masters and of Adam's two moments."""
    dense, experts = parameters(layers)
    return dense * (2 + 12 / RANKS) + experts / EP * (2 + 12 / (RANKS // EP))


def flops(layers, tokens):
    """Of a rank's step: products of weights, and the half of attention's scores that causality leaves."""
    D = SIZES.dim
    active = layers * (SIZES.active + 2 * D**2 + 2 * D**2 * KV_HEADS // HEADS) + VOCABULARY * D
    return 6 * active * tokens + 6 * layers * tokens**2 * D


def one_step(layers, tokens):
    """The first makes Adam's states; the second is measured."""
    torch.set_default_dtype(torch.bfloat16)
    mesh = init_device_mesh("cpu", (RANKS // EP, EP), mesh_dim_names=("same_experts", "experts"))
    model = Mixtral(layers, mesh.get_group("experts"))
    groups = mesh._flatten("data").get_group(), mesh.get_group("same_experts")
    parts = [ZeRO2(part, group=group) for part, group in zip(split(model), groups)]
    for length, name in ((64, "warm-up"), (tokens, "step")):
        text = torch.zeros(1, length, dtype=torch.long)
        tinydist.mark(name)
        loss = model.loss(text, text)
        tinydist.mark(f"{name}: forward is over")
        loss.backward()
        for part in parts:
            part.step()
            part.zero_grad()
    tinydist.mark("end")
    assert all(block.mlp.load.dropped == 0 for block in model.blocks)


def cluster():
    """As GPUs get it in training."""
    pod = find_cluster("H100 node").pod(RANKS // EP)
    return pod.at(**training_rates(pod))


def measured(layers=LAYERS, tokens=TOKENS):
    """The second step: a Run."""
    how = dict(backend="simulated", fake=True, only=[0], cluster=cluster())
    return tinydist.launch(one_step, RANKS, layers, tokens, **how).between("step", "end")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    chosen = parser.parse_args()
    dense, experts = parameters(chosen.layers)
    run = measured(chosen.layers, chosen.tokens)
    rank = run.memory[0]
    print(f"{(dense + experts) / 1e9:.2f} billion parameters, {experts / 1e9:.2f} of them in experts")
    print(f"at rest {sum(rank.at('end').values()) / 1e9:.2f} GB, by formula {at_rest(chosen.layers) / 1e9:.2f}")
    print(f"at the peak {rank.peak / 1e9:.2f} GB: { ({k: round(v / 1e9, 2) for k, v in rank.at_peak.items()}) }")
    held = chosen.layers * SIZES.held(2 * chosen.tokens, 2 * chosen.tokens, 2)
    print(f"of it held for the backward of MoE layers, by formula {held / 1e9:.2f} GB")
    rate = flops(chosen.layers, chosen.tokens) / run.seconds
    print(f"a step {run.seconds:.3f} s: {rate / 1e12:.0f} TFLOP/s of a GPU")
    streams = {}
    for event in run.trace.of(0):
        if event.name != "wait":
            key = "compute" if event.stream == "compute" else event.name
            streams[key] = streams.get(key, 0) + event.end - event.start
    print("busy, in seconds:", {name: round(seconds, 3) for name, seconds in streams.items()})


if __name__ == "__main__":
    main()
