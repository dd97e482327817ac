"""How wrong the planner is: each set of published runs, its mean error, bias and worst rows, of time and memory.

    python benchmarks/published.py [SET ...] [--rows] [--controls] [--folder FOLDER] [--write]

``--rows`` prints every row. ``--controls``: each set once more with one cause changed: how much does it explain? Beside
that, what it makes of the set's three worst rows. A set that misses its target shows this unasked.
``--folder``: other rows of the same tables. ``--write``: the summary, with the controls, to the file that notebook 13b
reads.

No constant of the planner was taken from these rows: they come from kernels, copies and collectives, alone.
"""

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import measured_runs
from measured_runs import GIB, RUNS, Run

from benchmarks import csv_rows
from tinydist.planner import Measured
from tinydist.planner.checks import broken

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "13_published.csv"
COMFORTABLE = 0.8  # of what a device has


def machine(**changed):
    return lambda run: run.candidate(Measured(run.cluster, **changed))


def program(**changed):
    return lambda run: replace(run, program=replace(run.program, **changed)).candidate()


def holds(**changed):
    return lambda run: program(holds=replace(run.program.holds, **changed))(run)


def without_triton(run):
    """Attention that ran in Triton takes as long as FlashAttention 1."""
    kernel = "fa1" if run.program.attention == "triton 2022" else run.program.attention
    return program(attention=kernel)(run)


def one_card(run):
    """Rings of gradients send through one card of a node, as NCCL's log shows for BLOOM's cluster."""
    inside = run.plan.tp <= run.cluster.devices_per_node
    return replace(run, cluster=replace(run.cluster, ring_through_one_card=inside)).candidate()


def all_cards(run):
    return replace(run, cluster=replace(run.cluster, ring_through_one_card=False)).candidate()


EVERYWHERE = {
    "matmuls 10 % slower": machine(slower_products=1.1),
    "attention twice as fast": machine(slower_attention=0.5),
    "memory-bound kernels 1.5 times as long": machine(slower_memory=1.5),
    "collectives twice as long": machine(slower_collectives=2.0),
    "70 us of the CPU for each kernel": machine(launch=70e-6),
    "no contention": machine(contention=0.0),
}
CONTROLS = {
    "llm-foundry, H100": {
        "attention by FlashAttention 2": program(attention="fa2"),
        "no Triton, but FlashAttention 1": without_triton,
    },
    "llm-foundry, A100": {
        "attention by FlashAttention 2": program(attention="fa2"),
        "no Triton, but FlashAttention 1": without_triton,
    },
    "SimuMax, B200": {
        "no weight gradient in flight": holds(in_flight=0),
        "a weight gradient in flight, which does not stay": holds(stays=False),
        "logits in fp32 at the loss": program(loss="vocab_parallel"),
        "this library's ledger": program(holds=None),
    },
    "BLOOM's trials, A100": {
        "a stage's outputs freed": holds(outputs=False),
        "rings through all cards": all_cards,
        "launches that do not wait": program(blocking=False),
        "gradients reduced and scattered": program(sums="reduce-scatter"),
    },
    "vTrain, several nodes": {"rings through one card": one_card},
    "torchtitan, H100 and H200": {"kernels that are not compiled": program(compiled=False)},
    "vTrain, one node of A100, simulated": {
        "layers recomputed": lambda run: replace(run, plan=replace(run.plan, recompute="full")).candidate()
    },
}
# Mean error of the time that was aimed at.
TARGETS = {
    "llm-foundry, H100": 0.10,
    "llm-foundry, A100": 0.10,
    "SimuMax, B200": 0.08,
    "torchtitan, H100 and H200": 0.15,
    "BLOOM's trials, A100": 0.12,
    "vTrain, one node of A100, simulated": 0.14,
    "vTrain, several nodes": 0.07,
}
WORST = 3  # rows


def time_error(run, found):
    return run.seconds and found.seconds / run.seconds - 1


def memory_error(run, found):
    return run.peak and getattr(found.memory, run.said) / run.peak - 1


def errors(runs, how=Run.candidate):
    """[(error of time, error of memory, part of the device that it needs)]; None for what was not measured."""
    found = [how(run) for run in runs]
    return [(time_error(run, each), memory_error(run, each), each.needed) for run, each in zip(runs, found)]


def summary(some):
    some = [each for each in some if each is not None]
    if not some:
        return {}
    mean, bias = sum(map(abs, some)) / len(some), sum(some) / len(some)
    return {"rows": len(some), "mean": f"{mean:.1%}", "bias": f"{bias:+.1%}", "worst": f"{max(some, key=abs):+.1%}"}


def fitting(runs, found):
    ran = [needed for run, (_, _, needed) in zip(runs, found) if run.ran]
    comfortable = sum(needed < COMFORTABLE for run, (_, _, needed) in zip(runs, found) if not run.ran)
    return f"{sum(needed <= 1 for needed in ran)} of {len(ran)}", comfortable


def line(what, time, memory):
    def text(part):
        return f"{part['mean']:>7}{part['bias']:>8}{part['worst']:>8}" if part else " " * 23

    return f"{what:52}{time.get('rows', ''):>5}{text(time)}   {text(memory)}"


def read(name):
    """Runs; and why other rows are none, how often."""
    runs, left_out = [], Counter()
    for each in RUNS[name]():
        why = each if isinstance(each, str) else next(broken(each.plan, each.model, each.cluster, each.program), None)
        left_out[why] += why is not None
        runs += [each] * (why is None)
    return runs, +left_out


def row(name, changed, time, memory, **more):
    """Of the summary. ``changed``: what a control changes."""
    return {
        "set": name,
        "changed": changed,
        **time,
        **{f"memory {key}": memory[key] for key in memory if key != "rows"},
    } | more


def score(name, chosen):
    """Prints a set; gives its rows of the summary."""
    runs, left_out = read(name)
    found = errors(runs)
    time, memory = (summary([each[number] for each in found]) for number in (0, 1))
    fit, comfortable = fitting(runs, found)
    print(f"{line(name, time, memory)}   {fit}" + f", {comfortable} comfortably" * any(not run.ran for run in runs))
    for reason, count in left_out.items():
        print(f"    {count} not expressed: {reason}")
    shown = chosen.controls or mean_error(found) > TARGETS.get(name, 1.0)
    order = sorted(range(len(runs)), key=lambda place: -abs(found[place][0] or 0))
    for place in order if chosen.rows else order[: WORST * shown]:
        print_row(runs[place], *found[place])
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
    worst = "; ".join(f"{runs[place].name} {found[place][0]:+.1%}" for place in order[:WORST])
    rows = [row(name, "", time, memory, fit=fit, **{"not expressed": reasons, "worst rows": worst})]
    if shown or chosen.write:
        rows += controlled(name, runs, found, order[:WORST], shown)
    return rows


def mean_error(found):
    some = [abs(error) for error, _, _ in found if error is not None]
    return sum(some) / len(some)


def print_row(run, off, held, needed):
    seconds = f"{run.seconds:10.3f} s {off:+7.1%}" if run.seconds else " " * 20
    peak = f"{run.peak / GIB:7.1f} GiB {held:+7.1%}" if run.peak else " " * 19
    print(f"    {run.name:48}{seconds} {peak} {needed:5.0%}  {run.model}, {run.plan}")


def controlled(name, runs, found, worst, shown):
    """Rows of the summary, one for each cause that is changed. ``worst``: places of the worst rows."""
    rows, left = [], {}
    for what, how in (EVERYWHERE | CONTROLS.get(name, {})).items():
        changed = errors(runs, how)
        scores = [summary([each[number] for each in changed]) for number in (0, 1)]
        left[what] = [changed[place][0] or 0.0 for place in worst]
        each = "; ".join(f"{runs[place].name} {error:+.1%}" for place, error in zip(worst, left[what]))
        rows.append(row(name, what, *scores, **{"worst rows": each}))
        if shown:
            print(line(f"    {what}", *scores) + "".join(f"{error:+9.1%}" for error in left[what]))
    for number, place in enumerate(worst if shown else ()):
        print(
            f"    {runs[place].name}: {verdict(found[place][0], {what: each[number] for what, each in left.items()})}"
        )
    return rows


def verdict(before, left):
    """Which changes close the gap, and how much of each: time is linear in them. ``left``: the error with each."""
    gained = {what: (before - error) / before for what, error in left.items()}  # part of the gap
    parts = {what: 1 / part for what, part in gained.items() if part > 0.01}
    closing = [f"{part:.1f} of: {what}" for what, part in parts.items() if round(part, 1) <= 1]
    if closing or not parts:
        return "the gap is closed by " + (", or ".join(closing) or "none of these")
    nearest = min(parts, key=parts.get)
    return f"no change closes the gap; of {nearest} it would take {parts[nearest]:.1f} times as much"


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET")
    for option, about in {
        "--rows": "every row", "--controls": "with one cause changed", "--write": "the summary and controls to a file",
    }.items():  # fmt: skip
        parser.add_argument(option, action="store_true", help=about)
    parser.add_argument("--folder", type=Path, default=measured_runs.FOLDER)
    chosen = parser.parse_args(words)
    measured_runs.FOLDER = chosen.folder
    print(f"{'':52} rows   mean    bias   worst     mean    bias   worst   ran and fit")
    print(f"{'':52}      time, of a step         memory                   controls: the worst rows")
    names = [name for name in RUNS if not chosen.sets or any(each.lower() in name.lower() for each in chosen.sets)]
    table = [each for name in names for each in score(name, chosen)]
    if chosen.write:
        keys = list(dict.fromkeys(key for row in table for key in row))
        csv_rows.write(FILE, table, keys)


if __name__ == "__main__":
    main(sys.argv[1:])
