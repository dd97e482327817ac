"""Training steps that others measured, predicted: beside the best model of one constant, and how each constant counts.

    python benchmarks/planner.py [--calculon FOLDER]

FOLDER: a checkout of calculon-ai/calculon (PyPI's package of that name is another program), whose plans per second are
measured beside ours; it needs pandas and psutil.

No constant of the planner was taken from these rows (benchmarks/published.py has more sets). The one constant, a part
of the peak that all FLOPs of a step run at, is fitted to them: for each table the one with the least mean error.
"""

import argparse
import logging
import sys
import time
from itertools import product
from pathlib import Path

from tinydist.hardware import find_cluster
from tinydist.hardware.published import RUNS
from tinydist.planner import MODELS, Measured, explain, find_model, search, step_time
from tinydist.planner.published import bloom, table_1, table_5

PARTS = "products", "memory", "collectives"  # what a step is made of


def predicted(row, **slower):
    """A StepTime."""
    return step_time(row.model, row.plan, row.cluster, row.program, Measured(row.cluster, **slower))


def error(found, row):
    return found / row.seconds - 1


def sensitivity(row, part):
    """Percent that a step takes longer if that part takes 10 % longer."""
    return 100 * (predicted(row, **{f"slower_{part}": 1.1}).seconds / predicted(row).seconds - 1)


def at_one_constant(rows):
    """Seconds of each, all FLOPs at the same part of the peak: that of the least mean error."""
    ideal = [row.model.flops(row.plan.batch, row.plan.recompute) / predicted(row).peak for row in rows]

    def mean_error(part):
        return sum(abs(error(seconds / part, row)) for seconds, row in zip(ideal, rows))

    best = min((seconds / row.seconds for seconds, row in zip(ideal, rows)), key=mean_error)
    return [seconds / best for seconds in ideal]


def summary(errors):
    return f"mean {100 * sum(map(abs, errors)) / len(errors):.1f} %, worst {100 * max(map(abs, errors)):.1f} %"


def pairs(each):
    return zip(each[::2], each[1::2])


def gains(rows):
    """(published, predicted, by one constant): percent more throughput without recomputing all, of each model."""
    ones = at_one_constant(rows)
    for (full, new), (a, b) in zip(pairs(rows), pairs(ones)):
        found = predicted(full).seconds / predicted(new).seconds
        yield tuple(100 * (ratio - 1) for ratio in (full.seconds / new.seconds, found, a / b))


def print_table(title, rows):
    print(f"\n{title}")
    heads = "".join(f"{head:>12}" for head in PARTS)
    print(f"{'':32}{'published':>10}{'predicted':>10}{'error':>8}{'one const.':>11}{'error':>8} {heads}")
    ones, errors = at_one_constant(rows), ([], [])
    for row, one in zip(rows, ones):
        found = predicted(row).seconds
        for kept, seconds in zip(errors, (found, one)):
            kept.append(error(seconds, row))
        counts = "".join(f"{sensitivity(row, part):12.2f}" for part in PARTS)
        both = f"{found:10.2f}{100 * errors[0][-1]:+7.1f}% {one:10.2f}{100 * errors[1][-1]:+7.1f}%"
        print(f"{row.name:32}{row.seconds:10.2f}{both} {counts}")
    print(f"    predicted: {summary(errors[0])};  one constant: {summary(errors[1])}")


def print_gains(rows):
    print("\ngain of selective recomputation with sequence parallelism over full recomputation, %")
    for (full, _), (published, found, one) in zip(pairs(rows), gains(rows)):
        print(f"{full.name.split(',')[0]:32}{published:10.1f}{found:10.1f}{one:29.1f}")


def llama_65b():
    """Its plan is not published: the fastest that fits 2048 A100s, with 4 million tokens a step."""
    model, cluster = find_model("LLaMA 65B"), find_cluster("A100 node").pod(256)
    return search(model, cluster, batch=2048).best


def print_runs():
    """GPU hours, if all of the time were steps; and the part of the published hours that is."""
    best = llama_65b()
    print(f"\nLLaMA 65B, 380 tokens a second and GPU: {best.tokens_per_second:.0f} by {best.plan}")
    steps = {"LLaMA 65B": best.seconds / best.plan.batch, "BLOOM 176B": predicted(bloom()).seconds / bloom().plan.batch}
    for name, seconds in steps.items():
        run, model = RUNS[name], find_model(name)
        ranks = best.plan.ranks if name == best.model.name else bloom().plan.ranks
        hours = run.tokens / model.tokens * seconds * ranks / 3600
        published = f"published {run.gpu_hours:,.0f}: goodput {hours / run.gpu_hours:.0%}"
        print(f"{name}: {hours:,.0f} GPU hours of steps; {published}")


def print_speed():
    model, cluster = MODELS["Llama 3 70B"], find_cluster("H100 node").pod(64)
    begin = time.process_time()
    found = search(model, cluster, batch=2048)
    seconds = time.process_time() - begin
    print(f"\n{len(found.candidates) / seconds:,.0f} plans a second of CPU ({len(found.candidates):,} plans)")
    print(explain(found.best, *found.fitting[1:2]))


def print_calculon(folder):
    """Of its own model and system, one process, as its search calls it; its logger is switched off."""
    sys.path.insert(0, str(folder))
    import calculon
    from calculon.llm import Llm, System

    app = Llm.Application(calculon.io.read_json_file(str(folder / "models" / "gpt3-175B.json")))
    system = System(calculon.io.read_json_file(str(folder / "systems" / "a100_80g.json")))
    logger = logging.Logger("off", logging.CRITICAL)
    fixed = {
        "num_procs": 64, "tensor_par": 8, "pipeline_par": 8, "data_par": 1, "tensor_par_net": 0, "pipeline_par_net": 1,
        "data_par_net": 1, "batch_size": 64, "datatype": "float16", "fused_activation": True,
        "attention_type": "multihead", "optimizer_sharding": False, "tensor_par_overlap": "none",
        "seq_par_ag_redo": False, "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": True,
    }  # fmt: skip
    names = "microbatch_size", "activation_recompute", "pipeline_interleaving", "tensor_par_comm_type"
    choices = [*product((1, 2, 4), ("full", "attn_only", "none"), (1, 2, 3), ("ar", "rs_ag"))]
    begin, fit = time.process_time(), 0
    for chosen in choices:
        try:
            model = Llm(app, logger)
            model.compile(system, Llm.Execution.from_json(fixed | dict(zip(names, chosen))))
            model.run(system)
            fit += 1
        except Llm.Error:  # a plan that does not fit, or makes no sense
            continue
    rate = len(choices) / (time.process_time() - begin)
    print(f"\ncalculon: {rate:,.0f} plans a second of CPU ({len(choices)} plans, of which {fit} fit)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calculon", type=Path, help="a checkout of calculon-ai/calculon")
    options = parser.parse_args()
    print_table("Korthikanti et al. 2022, table 5: seconds of a step", [*table_5()])
    print_gains([*table_5()])
    print_table("Narayanan et al. 2021 (SC'21), table 1", [*table_1()])
    print_table("BLOOM 176B", [bloom()])
    print_runs()
    print_speed()
    if options.calculon:
        print_calculon(options.calculon)
