"""What tiles cost in plain torch, and what they save: flash beside naive and torch's own, measured in one run.

    python benchmarks/attention.py [--quick]

Forward and backward of one causal head of 64 numbers, float32, on one thread. Seconds are medians. Memory is the peak
that the ledger sees, inputs and their gradients included; torch's own kernel has buffers that no ledger sees.
Then the numbers that would move between a slow memory and 192 kB of a fast one, forward and not causal.
"""

import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F

import tinydist
from tinydist.attention import attention, flash_attention, hbm

DIM, FAST_BYTES = 64, 192 * 1024


def naive(q, k, v):
    return attention(q, k, v, causal=True)


def flash(q, k, v):
    return flash_attention(q, k, v, causal=True, tile=(512, 512))


def torchs(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


PROGRAMS = {"naive": naive, "flash": flash, "torch's own": torchs}


def step(program, N):
    q, k, v = (torch.randn(1, 1, N, DIM, requires_grad=True) for _ in range(3))
    program(q, k, v).sum().backward()


def seconds(N, times):
    """By program; in turn, so that all see the same noise."""
    samples = {name: [] for name in PROGRAMS}
    for _ in range(times):
        for name, program in PROGRAMS.items():
            begin = time.perf_counter()
            step(program, N)
            samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(each) for name, each in samples.items()}


def peaks(N):
    """Bytes, by program."""
    return {name: tinydist.launch(step, 1, each, N, fake=True).memory[0].peak for name, each in PROGRAMS.items()}


def moved(N):
    """Bytes of one head in float16, by program."""
    found, inputs = {}, [torch.zeros(N, DIM, dtype=torch.float16) for _ in range(3)]
    for name, options in (("naive", ()), ("flash_1", (FAST_BYTES,)), ("flash_2", (FAST_BYTES,))):
        memory = hbm.HBM()
        getattr(hbm, name)(memory, *inputs, *options)
        found[name] = memory.moved
    return found


def row(N, found, scale, unit):
    print(f"{N:8}" + "".join(f"{each * scale:16.2f}" for each in found.values()) + f"  {unit}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 4096 tokens only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = [512, 1024, 2048, 4096] + ([] if options.quick else [8192, 16384])
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, 1 thread")
    for title, measured in (("", PROGRAMS), ("moved", ("naive", "flash 1", "flash 2"))):
        print(f"\n{title or 'tokens':8}" + "".join(f"{name:>16}" for name in measured))
        for N in lengths:
            if title:
                row(N, moved(N), 1e-6, "MB")
            else:
                step(flash, N)
                row(N, seconds(N, 5 if N < 4096 else 1 if N > 8192 else 3), 1e3, "ms")
                row(N, peaks(N), 2**-20, "MiB")
