"""Plans for one model on one cluster: a step of each on fake ranks, its time and what a rank holds at the peak.

    python benchmarks/plans.py [--write]

7.5 billion parameters (Narayanan et al., Megatron-LM, 2021, Table 1) on 32 A100s in 4 nodes, 64 sequences of 2,048
tokens a step, in bf16. Prints a table; ``--write`` puts it where notebook 11 reads it. One rank of each stage runs, the
others do the same. Takes some minutes: each plan some ten thousand operators.
"""

import argparse
import csv
from pathlib import Path

import torch

import tinydist
from tinydist.hardware import find_cluster
from tinydist.hardware.published import BUS_BANDWIDTHS, MEMORY_BANDWIDTHS
from tinydist.model import GPT, GPTConfig
from tinydist.training import Plan, members, parallelize

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "11_plans.csv"
MODEL = GPTConfig(vocab_size=51200, context=2048, layers=36, heads=32, dim=4096)
BATCH = 64  # sequences
PLANS = {
    "data, ZeRO 1": dict(dp=32, zero=1, microbatches=2),
    "data, ZeRO 2": dict(dp=32, zero=2, microbatches=2),
    "data, ZeRO 3": dict(dp=32, zero=3, microbatches=1),
    "data, ZeRO 3 in nodes": dict(dp=32, zero=3, replicate=4, microbatches=1),
    "tensor 2": dict(tp=2, dp=16, zero=1, sequence_parallel="regather", microbatches=4),
    "tensor 4": dict(tp=4, dp=8, zero=1, sequence_parallel="regather", microbatches=4),
    "tensor 8": dict(tp=8, dp=4, zero=1, sequence_parallel="regather", microbatches=4),
    "tensor 16": dict(tp=16, dp=2, zero=1, sequence_parallel="regather", microbatches=4),
    "pipeline 4": dict(pp=4, dp=8, zero=1, microbatches=8),
    "pipeline 2, tensor 4": dict(pp=2, tp=4, dp=4, zero=1, sequence_parallel="regather", microbatches=8),
    "pipeline 4, tensor 4": dict(pp=4, tp=4, dp=2, zero=1, sequence_parallel="regather", microbatches=16),
    "pipeline 4, tensor 8": dict(pp=4, tp=8, dp=1, sequence_parallel="regather", microbatches=16),
}


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


def measured(name):
    """One row."""
    plan = Plan(precision="bf16", **PLANS[name])
    run = tinydist.launch(
        one_step, plan.ranks, plan, backend="simulated", fake=True, only=members(plan, "pp"), cluster=cluster()
    )
    step = run.between("step", "end")
    peak = max(step.memory[rank].peak for rank in members(plan, "pp"))
    return {"plan": name, "seconds": f"{step.seconds:.6f}", "peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for name in PLANS:
        rows.append(measured(name))
        print("{plan:24} {seconds} s {peak:,} bytes".format(**rows[-1]), flush=True)
    if chosen.write:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
