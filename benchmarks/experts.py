"""Dropless experts beside the dense product of the same FLOPs, and beside what else one would take; on one CPU thread.

    python benchmarks/experts.py

Forward and backward of 8 gated experts, a token to one of them: CPU seconds over those of one expert that takes all
tokens, which is as many FLOPs. Each pair is timed in turn, in one run; the median of the ratios. Target: 1.2 for the
grouped product. Where transformers is installed its Mixtral block runs on the same sizes, and torch's grouped_mm, where
torch has one for CPUs. Then what a layer holds for backward, by the ledger, over the formula (sizes.py); and at the end
the time of dispatch and combine, flat and over nodes: where tokens are narrow the flat one is faster.
"""

import statistics
import time
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.collectives import part_sizes
from tinydist.experts import EvenRouter, Expert, Experts, MoE, Router, Sizes, dense
from tinydist.hardware import find_cluster

SIZES, TOKENS, EXPERTS, TIMES = [(512, 512), (256, 1024)], 4096, 8, 7
TARGET = 1.2


def cases(D, hidden):
    """What is timed -> a function of x [N, D]; "one expert" is the yardstick."""
    own = {number: Expert(D, hidden, gated=True) for number in range(EXPERTS)}
    grouped, one = Experts(own), Expert(D, hidden, gated=True)
    even = [TOKENS // EXPERTS] * EXPERTS
    uneven = [TOKENS // 2, *part_sizes(TOKENS // 2, EXPERTS - 1)]
    moe = MoE(EvenRouter(D, EXPERTS, 1), own.get)
    found = {
        "one expert": one,
        "grouped product": partial(grouped, counts=even),
        "grouped product, half of the tokens to one": partial(grouped, counts=uneven),
        "the layer: router, sort, grouped product, back": moe,
        "each expert on all tokens, masked": partial(dense, moe),
        "padded to capacity 1.25": partial(padded, own, TOKENS * 5 // 4 // EXPERTS),
    }
    return found | peers(own, D, hidden)


def padded(own, capacity, x):
    """Each expert on as many rows as its capacity, tokens or zeros."""
    rows = F.pad(x.unflatten(0, (EXPERTS, -1)), (0, 0, 0, capacity - len(x) // EXPERTS))  # [E, C, D]
    return torch.cat([expert(part) for expert, part in zip(own.values(), rows)])


def peers(own, D, hidden):
    found = {}
    if hasattr(F, "grouped_mm"):
        ends = torch.arange(1, EXPERTS + 1, dtype=torch.int32) * (TOKENS // EXPERTS)
        gate, up, down = (
            torch.stack([getattr(expert, name).weight.detach().T for expert in own.values()]).requires_grad_()
            for name in ("gate", "up", "down")
        )

        def grouped_mm(x):
            product = partial(F.grouped_mm, offs=ends)
            return product(F.silu(product(x, gate)) * product(x, up), down)

        found["torch's grouped_mm"] = grouped_mm
    try:
        from transformers.models.mixtral.modeling_mixtral import MixtralConfig, MixtralSparseMoeBlock
    except ImportError:
        return found
    sizes = dict(hidden_size=D, intermediate_size=hidden, num_local_experts=EXPERTS, num_experts_per_tok=1)
    block = MixtralSparseMoeBlock(MixtralConfig(**sizes))
    for parameter in block.parameters():
        parameter.data.normal_(0, 0.02)
    return found | {"Mixtral's block of transformers": lambda x: block(x[None])}


def seconds(function, x):
    begin = time.process_time()
    y = function(x)
    y.backward(torch.ones_like(y))
    return time.process_time() - begin


def ratios(D, hidden, times=TIMES):
    """Case -> CPU seconds over those of one expert, timed in turn."""
    x = torch.randn(TOKENS, D, requires_grad=True)
    functions = cases(D, hidden)
    one = functions.pop("one expert")
    found = {}
    for name, function in functions.items():
        try:
            seconds(function, x)
        except (RuntimeError, NotImplementedError) as error:
            print(f"    {name}: not on this machine: {str(error).splitlines()[0][:80]}")
            continue
        found[name] = statistics.median(seconds(function, x) / seconds(one, x) for _ in range(times))
    return found


def held(D, hidden, ranks=4):
    """(bytes that a forward leaves on rank 0, those of the formula): of even load on ``ranks`` ranks."""

    def program():
        moe = MoE(EvenRouter(D, EXPERTS, 2), lambda number: Expert(D, hidden, gated=True))
        x = torch.randn(TOKENS // ranks, D, requires_grad=True)
        tinydist.mark("begin")
        y = moe(x)
        tinydist.mark("end")
        return y.nbytes, sum(moe.load.computed)

    run = tinydist.launch(program, ranks)
    begin, end = (sum(run.memory[0].at(mark).values()) for mark in ("begin", "end"))
    out, computed = run.results[0]
    return end - begin - out, Sizes(D, hidden, EXPERTS, 2).held(2 * TOKENS // ranks, computed)


def dispatch_seconds(width, nodes, deduplicate=True, top_k=8, tokens=16):
    """On the clock, of a forward through 32 experts that do nothing, on 8 ranks in two nodes; ``nodes=1``: flat. Links
    with 1/16 of their bandwidth take as long for 16 tokens as real ones for 256."""

    def program():
        router = Router(width, 32, top_k, generator=torch.Generator().manual_seed(0))
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("across", "inside"))
        groups = (mesh.get_group("inside"), mesh.get_group("across")) if nodes == 2 else (None, None)
        moe = MoE(router, lambda number: nn.Identity(), group=groups[0], across=groups[1], deduplicate=deduplicate)
        moe(torch.randn(tokens, width, generator=torch.Generator().manual_seed(dist.get_rank())))

    cluster = find_cluster("2 x 4").at(wire=1 / 16).communication_alone
    return tinydist.launch(program, 8, cluster=cluster, observe="communication").seconds


def main():
    torch.set_num_threads(1)
    for D, hidden in SIZES:
        print(f"{EXPERTS} experts of {D} x {hidden}, {TOKENS} tokens; over one expert of the same FLOPs:")
        for name, ratio in ratios(D, hidden).items():
            print(f"    {name:50}{ratio:6.2f}" + f"   (target {TARGET})" * (name == "grouped product"))
        measured, formula = held(D, hidden)
        print(f"    held for backward on each of 4 ranks: {measured:,} bytes, {measured / formula:.3f} of the formula")
    print("dispatch and combine of 256 fp32 tokens a rank, 8 of 32 experts, 2 nodes of 4, on the clock, in us:")
    print(f"    {'width':>6}  {'flat':>8}  {'over nodes':>12}  {'and once to a node':>20}")
    for width in (4, 64, 256, 1024, 4096):
        flat, twice, once = (dispatch_seconds(width, *how) * 1e6 for how in ((1,), (2, False), (2, True)))
        print(f"    {width:6}  {flat:8.0f}  {twice:12.0f}  {once:20.0f}")


if __name__ == "__main__":
    main()
