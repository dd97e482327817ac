"""The plans that notebook 11 compares: each has a row, and the planner is near what the engine measures."""

import csv
import importlib.util
from pathlib import Path

import pytest

from tinydist.planner import TINYDIST, Clock, evaluate, find_model

ROOT = Path(__file__).parents[2]


def plans():
    spec = importlib.util.spec_from_file_location("plans", ROOT / "benchmarks" / "plans.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows():
    with (ROOT / "notebooks" / "data" / "11_plans.csv").open() as file:
        return list(csv.DictReader(file))


def test_each_fastest_plan_has_a_row():
    there = plans()
    assert [there.plan_of(row) for row in rows()] == list(there.fastest().values())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"pp {row['pp']}, tp {row['tp']}")
def test_the_planner_is_near_the_engine(row):
    there = plans()
    cluster = there.cluster()
    found = evaluate(find_model("Megatron 7.5B"), there.plan_of(row), cluster, TINYDIST, Clock(cluster))
    held = found.memory.total - sum(found.memory.overhead.values())
    assert found.seconds == pytest.approx(float(row["seconds"]), rel=0.1)
    assert held == pytest.approx(float(row["peak"]), rel=0.1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"pp {row['pp']}, tp {row['tp']}")
def test_a_row_is_what_is_measured(row):
    there = plans()
    plan = there.plan_of(row)
    assert there.settings(plan) | there.measured(plan) == row
