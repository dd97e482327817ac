"""Block-sparse attention beside dense attention under the same mask, and beside FlexAttention, in one run on a CPU.

    python benchmarks/sparse_attention.py [--quick]

Forward of 8 causal heads of 64 numbers, float32, blocks of 64, on one thread; medians of 3, of programs in turn. FLOPs
are those of the matmuls, counted. FlexAttention is compiled where there is a C++ compiler (it has no backward on CPUs);
not compiled it computes all scores. "fused" is torch's scaled_dot_product_attention without a mask but causal: what
dense attention costs today.
"""

import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

from tinydist.attention import block_sparse_attention, sparse_layouts

HEADS, DIM, BLOCK = 8, 64, 64
LAYOUTS = {
    "all blocks": lambda n: torch.ones(n, n, dtype=torch.bool).tril(),
    "fixed": lambda n: sparse_layouts.fixed(n, causal=True),
    "bigbird": lambda n: sparse_layouts.bigbird(n, causal=True),
    "window": lambda n: sparse_layouts.window(n, 9, causal=True),
}


def programs(layout, N, compiled):
    """By name, each of q, k, v."""
    mask = layout.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1).tril()

    def seen(b, h, i, j):
        return layout[i // BLOCK, j // BLOCK] & (i >= j)

    blocks = create_block_mask(seen, None, None, N, N, device="cpu", BLOCK_SIZE=BLOCK)
    return {
        "fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "fused, masked": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        "flex": lambda q, k, v: compiled(q, k, v, block_mask=blocks),
        "ours": lambda q, k, v: block_sparse_attention(q, k, v, layout, BLOCK, causal=True),
    }


def seconds(named, inputs, times=3):
    samples = {name: [] for name in named}
    for program in named.values():
        program(*inputs)
    for _ in range(times):
        for name, program in named.items():
            begin = time.perf_counter()
            program(*inputs)
            samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(each) for name, each in samples.items()}


def flops(program, inputs):
    with FlopCounterMode(display=False) as counter:
        program(*inputs)
    return counter.get_total_flops()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 2048 tokens only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        compiled = torch.compile(flex_attention)
        compiled(*torch.randn(3, 1, 1, 128, DIM))
    except Exception as error:
        print(f"FlexAttention is not compiled: {str(error).splitlines()[0]}")
        compiled = flex_attention
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, 1 thread; ms, and FLOPs over those of all blocks")
    print(
        f"{'tokens':8}{'layout':12}{'blocks':>8}{'FLOPs':>8}"
        + "".join(f"{n:>16}" for n in ("fused", "fused, masked", "flex", "ours"))
    )
    for N in (1024, 2048) if options.quick else (1024, 2048, 4096, 8192):
        q, k, v = torch.randn(3, 1, HEADS, N, DIM)
        whole = None
        for name, make in LAYOUTS.items():
            layout = make(N // BLOCK)
            named = programs(layout, N, compiled)
            count = flops(named["ours"], (q, k, v))
            whole = whole or count
            took = seconds(named, (q, k, v))
            row = f"{N:<8}{name:12}{int(layout.sum()):8}{count / whole:8.2f}"
            print(row + "".join(f"{1e3 * each:16.1f}" for each in took.values()), flush=True)
