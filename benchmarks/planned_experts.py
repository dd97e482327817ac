"""Models with experts, by the planner: beside Mixtral's step on 64 simulated ranks (bytes by the ledger, time by the
clock), beside published steps, and DeepSeek-V3's whole run.

    python benchmarks/planned_experts.py [--layers 32]
"""

import argparse
from dataclasses import replace

from benchmarks import mixtral
from benchmarks.measured_runs import EXPERTS, GIB
from tinydist.planner import TINYDIST, Clock, Plan, evaluate, find_model, memory, step_time
from tinydist.planner.published_experts import deepseek_v3

PLAN = Plan(dp=mixtral.RANKS, ep=mixtral.EP, zero=2, precision="bf16")


def mixtral_planned(layers=mixtral.LAYERS, tokens=mixtral.TOKENS, machine=Clock):
    """(bytes at rest, at the peak, seconds), as ``machine`` has the kernels."""
    model, cluster = replace(find_model("Mixtral 8x7B"), layers=layers, tokens=tokens), mixtral.cluster()
    program = replace(TINYDIST, loss="cross_entropy")
    held = memory(model, PLAN, program=program)
    at_rest = held.terms["parameters"] + held.terms["optimizer states"]
    return at_rest, held.held, step_time(model, PLAN, cluster, program, machine(cluster)).seconds


def published():
    """(name, predicted seconds, published; predicted bytes, published or None)."""
    for runs in EXPERTS.values():
        for run in runs():
            candidate = run.candidate()
            yield run.name, candidate.seconds, run.seconds, candidate.memory.held, run.peak


def forecast():
    """Hours of the run, in thousands: predicted; without what is sent in the expert group; published."""
    row = deepseek_v3()
    step = evaluate(row.model, row.plan, row.cluster, row.program).step
    hours = 2664 / row.seconds
    return hours * step.seconds, hours * (step.seconds - step.terms["expert group"]), 2664


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=mixtral.LAYERS)
    layers = parser.parse_args().layers
    run = mixtral.measured(layers)
    rank = run.memory[0]
    simulated = sum(rank.at("end").values()), rank.peak, run.seconds
    for name, (rest, peak, seconds) in {"simulated": simulated, "planner": mixtral_planned(layers)}.items():
        rate = mixtral.flops(layers, mixtral.TOKENS) / seconds / 1e12
        print(f"{name:10} at rest {rest / 1e9:.2f} GB, peak {peak / 1e9:.2f} GB, {seconds:.3f} s, {rate:.0f} TFLOP/s")
    for name, predicted, seconds, held, peak in published():
        of_memory = f"{held / GIB:.1f} GiB for {peak / GIB:.1f}, {held / peak - 1:+.1%}" if peak else ""
        print(f"{name:40} {predicted:7.3f} s for {seconds:7.3f}, {predicted / seconds - 1:+.1%}   {of_memory}")
    predicted, hidden, hours = forecast()
    print(f"DeepSeek-V3: {predicted:,.0f} thousand hours, {hidden:,.0f} if no all-to-all was waited for, for {hours:,}")


if __name__ == "__main__":
    main()
