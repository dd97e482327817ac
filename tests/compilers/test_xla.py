"""XLA's collectives for the same layouts: the stored rows, and JAX itself where it is installed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import csv_rows
from benchmarks.xla_collectives import CASES, FILE, collectives_in, ours, row

ROOT = Path(__file__).parents[2]
MEASURED = ["case", "system", "ranks", "collectives", "sent"]


def stored(system):
    return {each["case"]: [each[name] for name in MEASURED] for each in csv_rows.read(FILE) if each["system"] == system}


@pytest.mark.parametrize("name", CASES)
def test_ours_are_those_of_the_table(name):
    assert [str(each) for each in row(name, "tinydist", ours(CASES[name])).values()] == stored("tinydist")[name]


def test_where_ours_send_more_than_xlas():
    """Where an even cut falls within heads, XLA's propagation gathers less."""
    sent = {system: {name: int(each[-1]) for name, each in stored(system).items()} for system in ("tinydist", "XLA")}
    assert sent["tinydist"].keys() == sent["XLA"].keys() == CASES.keys()
    assert [name for name in CASES if sent["tinydist"][name] > sent["XLA"][name]] == ["attention, one weight"]
    same = [name for name in CASES if sent["tinydist"][name] == sent["XLA"][name]]
    assert same == ["MLP, columns then rows", "attention, one weight by heads", "batch cut"]


def test_hlo_is_read():
    """Several tensors in one call; done of what was started is not another."""
    text = """
    %a = (f32[2,8]{1,0}, f32[]) all-reduce(%x, %y), channel_id=1
    %b = f32[8,4]{0,1} all-gather-start(%z), dimensions={0}
    %c = f32[8,4]{0,1} all-gather-done(%b)
    %d = f32[2,4]{1,0} reduce-scatter(%z)
    """
    assert collectives_in(text, 4) == [
        ("all_reduce", 96),
        ("all_reduce", 6),
        ("all_gather", 96),
        ("reduce_scatter", 96),
    ]


def test_xla_makes_them_today():
    """In a process of its own: JAX is told of its devices before it is imported."""
    if not find_spec("jax"):
        pytest.skip("JAX is not installed: make compilers")
    asks = "from benchmarks.xla_collectives import *\nfor each in rows():\n    print(*each.values(), sep='|')"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", asks], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = [line.split("|") for line in ran.stdout.splitlines()]
    assert {each[0]: each for each in found if each[1] == "XLA"} == stored("XLA")
