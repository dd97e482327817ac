"""Which collectives XLA puts into a step, beside those of tinydist's sharding pass, for the same layouts.

    .venv-compilers/bin/python benchmarks/xla_collectives.py [--write]

Forward and backward on four ranks: an MLP and attention, their inputs cut for tensor parallelism, data parallelism, or
fully sharded. XLA's are read in the HLO that JAX compiles for four CPU devices of one process, after SPMD partitioning
and all other passes. ``sent``: bytes of a rank, by a ring. Pipelines of XLA for GPUs and TPUs have passes that the one
for CPUs has not (all-reduce and slice to reduce-scatter, for one). Needs JAX (``make compilers``); ``--write`` puts the
rows where notebook 20 reads them.
"""

import argparse
import os
import re
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from benchmarks import csv_rows
from tinydist.compilers import Layouts, capture, with_gradients

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "20_xla_collectives.csv"
RANKS, HEADS, BYTES = 4, 4, {"f32": 4, "f64": 8}
NAMES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


class Case(NamedTuple):
    """``inputs``, ``outputs``: the dim along which each is cut, the same for both; None: it is replicated."""

    function: str
    shapes: list
    inputs: list
    outputs: list


MLP = [(2, 8, 16), (32, 16), (32,), (32, 16)]
BATCH = [(8, 8, 16), *MLP[1:]]
ATTENTION = [(2, 8, 16), *[(16, 16)] * 4]
FUSED = [(2, 8, 16), (16, 48), (16, 16)]
CASES = {
    "MLP, columns then rows": Case("mlp", MLP, [None, 0, 0, 0], [None, None, 0, 0, 0]),
    "attention by heads": Case("attention", ATTENTION, [None, 1, 1, 1, 0], [None, None, 1, 1, 1, 0]),
    "attention, one weight": Case("fused_attention", FUSED, [None, 1, 0], [None, None, 1, 0]),
    "attention, one weight by heads": Case("by_heads", FUSED, [None, 1, 0], [None, None, 1, 0]),
    "batch cut": Case("mlp", BATCH, [0, None, None, None], [0, 0, None, None, None]),
    "batch and gradients cut": Case("mlp", BATCH, [0, None, None, None], [0, 0, 0, 0, 0]),
    "all cut": Case("mlp", BATCH, [0, 0, 0, 0], [0, 0, 0, 0, 0]),
}


# Written for torch.


def mlp(x, w, b, v):
    return F.gelu(x @ w.mT + b) @ v


def attention(x, wq, wk, wv, out):
    return mix(*(heads(x @ w) for w in (wq, wk, wv))) @ out


def fused_attention(x, w, out):
    return mix(*(x @ w).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)) @ out


def by_heads(x, w, out):
    """The columns of one head stand together, as in Megatron-LM: an even cut falls between heads."""
    return mix(*(x @ w).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)) @ out


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def mix(q, k, v):
    return (torch.softmax(q @ k.mT / 2, -1) @ v).transpose(1, 2).flatten(2)


def ours(case):
    """[(collective, bytes that a rank sends)]"""
    step = with_gradients(globals()[case.function])
    plan = Layouts(capture(step, *map(torch.ones, case.shapes)), RANKS, case.inputs, case.outputs)
    return [(each.collective, int(each.sent(RANKS))) for each in plan.conversions if each.collective]


# Written for JAX.


def in_jax(name):
    import jax
    import jax.numpy as jnp

    def heads(x):
        return jnp.swapaxes(x.reshape(*x.shape[:2], HEADS, -1), 1, 2)

    def mix(q, k, v):
        mixed = jnp.swapaxes(jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 2, -1) @ v, 1, 2)
        return mixed.reshape(*mixed.shape[:2], -1)

    def forward(x, *weights):
        if name == "mlp":
            w, b, v = weights
            return jax.nn.gelu(x @ w.T + b, approximate=False) @ v
        *inside, out = weights
        if name == "attention":
            return mix(*(heads(x @ w) for w in inside)) @ out
        if name == "by_heads":
            parts = (x @ inside[0]).reshape(*x.shape[:2], HEADS, 3, -1)
            return mix(*parts.transpose(3, 0, 2, 1, 4)) @ out
        parts = (x @ inside[0]).reshape(*x.shape[:2], 3, HEADS, -1)
        return mix(*parts.transpose(2, 0, 3, 1, 4)) @ out

    def step(*inputs):
        y, backward = jax.vjp(forward, *inputs)
        return y, *backward(jnp.ones_like(y))

    return step


def hlo(case):
    """What XLA compiles, as text."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((RANKS,), ("ranks",))

    def named(dim):
        return NamedSharding(mesh, PartitionSpec(*([] if dim is None else [None] * dim + ["ranks"])))

    inputs, outputs = map(named, case.inputs), map(named, case.outputs)
    step = jax.jit(in_jax(case.function), in_shardings=tuple(inputs), out_shardings=tuple(outputs))
    return step.lower(*[jax.ShapeDtypeStruct(shape, "float32") for shape in case.shapes]).compile().as_text()


def collectives_in(text, ranks=RANKS):
    """[(collective, bytes that a rank sends)], one for each tensor: XLA joins several in one call."""
    found = []
    for made, name in re.findall(rf"= (.*?) ({NAMES})(?:-start)?\(", text):
        for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", made):
            nbytes = BYTES[dtype] * prod(map(int, filter(None, shape.split(","))))
            times = {
                "all-reduce": 2 * (ranks - 1) / ranks,
                "all-gather": (ranks - 1) / ranks,
                "reduce-scatter": ranks - 1,
            }
            # An all-to-all gives a tensor for each rank: all but one's own are sent; a permutation sends all of it
            found.append((name.replace("-", "_"), int(nbytes * times.get(name, (ranks - 1) / ranks))))
    return found


def row(name, system, found):
    counts = {each: [one for one, _ in found].count(each) for each in sorted({one for one, _ in found})}
    words = ", ".join(f"{times} {each}" for each, times in counts.items())
    return {
        "case": name,
        "system": system,
        "ranks": RANKS,
        "collectives": words,
        "sent": sum(sent for _, sent in found),
    }


def rows(compiled=hlo):
    for name, case in CASES.items():
        yield row(name, "tinydist", ours(case))
        yield row(name, "XLA", collectives_in(compiled(case)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found = [each | csv_rows.measured_on("torch", "jax", "jaxlib") for each in rows()]
    for each in found:
        print("{case:32} {system:9} {sent:8,} bytes  {collectives}".format(**each))
    if chosen.write:
        csv_rows.write(FILE, found)


if __name__ == "__main__":
    main()
