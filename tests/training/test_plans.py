"""The table of plans in notebook 11 is what the planner finds and the benchmark measures."""

import csv
import importlib.util
from pathlib import Path

import pytest

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


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"pp {row['pp']}, tp {row['tp']}")
def test_a_row_is_what_is_measured(row):
    there = plans()
    plan = there.plan_of(row)
    assert there.settings(plan) | there.measured(plan) == row
