"""The parts of ``make gpu``, on processors: each runs, a failure stops no other, the report tells all."""

import json
import sys

import pytest
import torch

from gpu import kernels, parts, report, starts
from gpu.__main__ import main, on_processors, run

MACHINE = on_processors("simulated", 2)


@pytest.mark.parametrize("name", [name for name in parts.PARTS if name != "launch under torchrun"])
def test_a_part_runs_on_simulated_ranks(name):
    outcome = parts.outcome_of(name, MACHINE)
    assert outcome.state == "passed", outcome.why
    assert len({tuple(row) for row in outcome.rows}) == 1  # one table
    assert all(row["seconds"] > 0 for row in outcome.rows if "seconds" in row)


def test_launch_joins_torchrun():
    outcome = parts.outcome_of("launch under torchrun", on_processors("simulated", 1))
    assert outcome.state == "passed", outcome.why


def test_training_on_processes():
    outcome = parts.outcome_of("ZeRO 3", on_processors("gloo", 2))
    assert outcome.state == "passed", outcome.why
    ours, theirs = outcome.rows
    assert ours["last loss"] == pytest.approx(theirs["last loss"], rel=1e-4)
    assert ours["clock's"] > 0 < ours["ledger's"]


@pytest.mark.parametrize("name", ["collectives", "pipeline 1F1B"])
def test_what_needs_two_devices_says_so_on_one(name):
    outcome = parts.outcome_of(name, on_processors("simulated", 1))
    assert (outcome.state, outcome.why) == ("not run", "needs 2 devices, here: 1")


def missing(machine):
    raise kernels.NoTriton("Triton is not installed: pip install triton")


def wrong(machine):
    raise AssertionError("losses: 1.0 is not 2.0")


def fine(machine):
    return [{"call": "first", "seconds": 0.25, "bytes": None, "tokens": 1024}]


def test_a_failure_is_in_the_report_stops_no_other_and_fails_the_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "PARTS", {"a": (1, wrong), "b": (1, missing), "c": (3, fine), "d": (1, fine)})
    monkeypatch.setattr("gpu.__main__.PARTS", parts.PARTS)
    assert run(MACHINE, tmp_path / "new") == 1
    told = json.loads((tmp_path / "new" / "report.json").read_text())
    assert [part["state"] for part in told["parts"]] == ["failed", "not run", "not run", "passed"]
    text = (tmp_path / "new" / "report.md").read_text()
    assert "| a | failed |" in text and "AssertionError: losses: 1.0 is not 2.0" in text
    assert "Triton is not installed" in text and "needs 3 devices, here: 2" in text
    assert "| first | 0.25 |  | 1,024 |" in text
    monkeypatch.setattr("gpu.__main__.PARTS", {"b": None, "d": None})
    assert run(MACHINE, tmp_path) == 0


def test_another_device_or_sum_is_found():
    right = [{"rank": rank, "device": "cpu", "sum": 1.0} for rank in range(2)]
    starts.check(right, MACHINE)
    for wrong in ({"sum": 2.0}, {"device": "cuda:0"}):
        with pytest.raises(AssertionError, match="expected a sum of 1 on each of cpu, cpu, got"):
            starts.check([right[0], right[1] | wrong], MACHINE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_it_would_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("No GPU is here.")
    assert [line.split(" (on")[0].strip() for line in said[1:]] == list(parts.PARTS)


def test_a_table_has_a_line_for_each_row():
    assert report.table([{"a": 1, "b": 0.5}, {"a": None, "b": "x"}])[2:] == ["| 1 | 0.5 |", "|  | x |"]
