"""``tinydist run --fake``: the forecast of a script for GPUs, and what it refuses."""

import csv
import math
import re
from pathlib import Path

import pytest

from tinydist.scripts.forecast import OFF_BY

PUBLISHED = Path(__file__).parents[2] / "notebooks" / "data" / "13_published.csv"


def test_the_error_is_that_of_the_benchmark():
    rows = [row for row in csv.DictReader(PUBLISHED.open()) if not row["changed"] and "simulated" not in row["set"]]
    means = [float(row["mean"].rstrip("%")) for row in rows if row["mean"]]
    worst = max(abs(float(row["worst"].rstrip("%"))) for row in rows if row["worst"])
    said = f"by {min(means):.0f} to {math.ceil(max(means))} % on average, the worst by {math.ceil(worst)} %"
    assert said in OFF_BY


def test_the_forecast_of_a_script(run):
    ran = run("--fake", "--cluster", "A100 node", "--nproc-per-node", 4, "on_gpus.py")
    assert ran.status == 0 and ran.out[:3] == [f"[rank 0] step {step} loss nan" for step in range(3)]
    forecast = next(line for line in ran.out if line.startswith("forecast: "))
    step = re.match(r"forecast: (\d+) us a step \(mean of 2, without the first\), (\d+)% of the FLOP/s peak", forecast)
    steps = [int(re.search(r"took (\d+) us", line)[1]) for line in ran.err if "took" in line]
    assert steps[1:] == pytest.approx([int(step[1])] * 2, rel=0.02), "the script's own log has the same time"
    assert 0 < int(step[2]) < 100
    assert any("unknown: " in line and "loss.item()" in line for line in ran.out)
    assert any(line == f"error: {OFF_BY}" for line in ran.out)


def test_with_numbers_the_same_script_trains(run):
    ran = run("--gpus", "A100 node", "--nproc-per-node", 2, "on_gpus.py")
    losses = [float(line.split()[-1]) for line in ran.out if "loss" in line]
    assert ran.status == 0 and len(losses) == 3 and 5 < losses[2] < 9


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("starts", r"on_gpus.py, line \d+, in <listcomp>: batch = .*\[data\[i : i \+ CONTEXT\] for i in starts\]\)"),
        ("steers", r'on_gpus.py, line \d+: if FAULT == "steers" and loss.item\(\) < 1:'),
        ("host", r"Expected all tensors to be on the same device, but got index is on cpu, different from other tens"),
        ("alone", r"no forecast: 4 ranks send nothing in a step. Is the model wrapped, in DDP or FSDP\?"),
        ("no steps", r"no forecast: the script has made 0 optimizer steps. It needs two or more"),
    ],
)
def test_what_is_refused(run, fault, says):
    ran = run("--fake", "--nproc-per-node", 4, "on_gpus.py", fault)
    assert ran.status == 1 and re.search(says, "\n".join(ran.err))


def test_a_number_that_is_given(run):
    ran = run("--fake", "--value", "loss=7", "--nproc-per-node", 2, "on_gpus.py", "steers")
    assert ran.status == 0 and "[rank 0] step 2 loss 7.0000" in ran.out


def test_values_are_of_a_forecast_and_numbers(run):
    assert run("--value", "loss=7", "on_gpus.py").err == [
        "run: --value gives a number to a forecast, --fake, got loss=7"
    ]
    ran = run("--fake", "--value", "loss", "on_gpus.py")
    assert ran.status == 2 and ran.err == ["run: --value must be NAME=NUMBER, such as loss=3.0, got 'loss'"]
