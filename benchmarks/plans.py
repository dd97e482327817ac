"""The fastest plan of each mesh for one model on one cluster: found by the planner, and run by the engine.

    python benchmarks/plans.py [--write]

7.5 billion parameters (Narayanan et al., Megatron-LM, 2021, Table 1) on 32 A100s in 4 nodes, 64 sequences of 2,048
tokens a step, in bf16. The planner searches all settings of each (pp, tp), as Megatron-LM runs them; the engine then
takes a step of the fastest that fits, on fake ranks of the simulated cluster: its time and what a rank holds at the
peak. Prints a table; ``--write`` puts it where tests/training/test_plans.py reads it. One rank of each stage runs, the
others do the same. Takes a quarter of an hour: each plan some ten thousand operators.
"""

import argparse
from itertools import product
from pathlib import Path

import torch

import tinydist
from benchmarks import csv_rows
from tinydist.hardware import find_cluster
from tinydist.hardware.published import BUS_BANDWIDTHS, MEMORY_BANDWIDTHS
from tinydist.model import GPT, GPTConfig
from tinydist.planner import find_model, search
from tinydist.training import Plan, members, parallelize

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "11_plans.csv"
MODEL = GPTConfig(vocab_size=51200, context=2048, layers=36, heads=32, dim=4096)
BATCH = 64  # sequences
SETTINGS = (
    "pp", "dp", "tp", "zero", "microbatches", "microbatch", "sequence_parallel", "recompute", "schedule", "chunks",
    "overlap_param_gather",
)  # fmt: skip
# More than the planner tries unasked: tensor-parallel ranks on two nodes, and sequences of a microbatch.
WIDE, LARGE = ({}, {"tp": 16}), ({}, {"microbatch": 16}, {"microbatch": 32})


def fastest():
    """(pp, tp) -> Plan: the fastest that fits."""
    cluster, found = find_cluster("A100 node").pod(4), []
    for gather, wide, large in product((False, True), WIDE, LARGE):
        sizes = {"overlap_param_gather": gather} | wide | large
        found += search(find_model("Megatron 7.5B"), cluster, BATCH, **sizes).fitting
    best = {}
    for each in sorted(found, key=lambda candidate: candidate.seconds):
        best.setdefault((each.plan.pp, each.plan.tp), each.plan)
    return dict(sorted(best.items()))


def one_step(plan):
    """The first makes Adam's states; the second is measured."""
    engine = parallelize(GPT(MODEL), plan)
    for length, name in ((64, "warm-up"), (MODEL.context, "step")):
        tokens = torch.zeros(BATCH // plan.dp, length, dtype=torch.long)
        if length < MODEL.context:
            tokens = tokens[: plan.microbatches]
        tinydist.mark(name)
        engine.step(tokens, tokens)
    tinydist.mark("end")


def cluster():
    """As 32 GPUs get it: what chapter 03 takes from published measurements."""
    node = find_cluster("A100 node")
    device = node.device
    return node.pod(4).at(
        matmul=device.best_matmul["bfloat16"] / device.peak_of("bfloat16"),
        memory=MEMORY_BANDWIDTHS[device.name] / device.memory_bandwidth,
        wire=BUS_BANDWIDTHS["A100"] / node.intra_node.bandwidth,
    )


def measured(plan):
    """What a step of the engine takes, and holds at the peak."""
    run = tinydist.launch(
        one_step, plan.ranks, plan, backend="simulated", fake=True, only=members(plan, "pp"), cluster=cluster()
    )
    step = run.between("step", "end")
    peak = max(step.memory[rank].peak for rank in members(plan, "pp"))
    return {"seconds": f"{step.seconds:.6f}", "peak": str(peak)}


def settings(plan):
    """As a row has them; "" for None."""
    chosen = {name: getattr(plan, name) for name in SETTINGS}
    return {name: "" if value is None else str(value) for name, value in chosen.items()}


def plan_of(row):
    """The plan of a row."""
    words = ("sequence_parallel", "recompute", "schedule")
    chosen = {name: row[name] or None if name in words else int(row[name]) for name in SETTINGS[:-1]}
    return Plan(precision="bf16", overlap_param_gather=row["overlap_param_gather"] == "True", **chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for plan in fastest().values():
        rows.append(settings(plan) | measured(plan))
        print(f"{plan}: {rows[-1]['seconds']} s, {int(rows[-1]['peak']):,} bytes", flush=True)
    if chosen.write:
        csv_rows.write(FILE, rows)


if __name__ == "__main__":
    main()
