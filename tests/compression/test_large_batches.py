"""The stored runs of Adam beside LAMB (benchmarks/large_batches.py): equal tokens, the best rate of each scan."""

import math

import pytest
import torch

from benchmarks import csv_rows, large_batches

ROWS = csv_rows.read(large_batches.FILE)
PAIRS = [(name, batch) for name in large_batches.RATES for batch in large_batches.BATCHES]


def of(what, name, batch):
    return [row for row in ROWS if (row["what"], row["optimizer"], row["batch"]) == (what, name, str(batch))]


def test_one_text_and_as_many_tokens_in_each_run():
    assert len({row["text"] for row in ROWS}) == 1
    assert all(row["version"] and row["processor"] and row["date"] for row in ROWS)
    for row in ROWS:
        assert int(row["tokens"]) == int(row["steps"]) * int(row["batch"]) * large_batches.LENGTH


@pytest.mark.parametrize(("name", "batch"), PAIRS)
def test_five_seeds_at_the_best_rate_of_the_scan(name, batch):
    scan, runs = of("scan", name, batch), of("run", name, batch)
    first = scan[: len(large_batches.RATES[name])]
    assert [float(row["rate"]) for row in first] == [*large_batches.RATES[name]]
    near = large_batches.around(large_batches.best(first, name, batch), large_batches.RATES[name])
    assert [float(row["rate"]) for row in scan[len(first) :]] == near
    assert {float(row["rate"]) for row in runs} == {large_batches.best(scan, name, batch)}
    assert sorted(row["seed"] for row in runs) == ["0", "1", "2", "3", "4"]
    assert str(large_batches.SCAN_SEED) not in {row["seed"] for row in runs}


def test_neighbors_of_a_rate_and_what_is_beyond_the_last():
    assert large_batches.around(0.01, large_batches.RATES["Adam"]) == [0.0058, 0.017]
    assert large_batches.around(0.3, large_batches.RATES["LAMB"]) == [0.17, 0.52, 0.9]
    assert large_batches.around(1e-3, large_batches.RATES["Adam"]) == [0.00058, 0.0017, 0.00033]


def test_the_rate_rises_and_falls_to_zero():
    parts = [large_batches.part_of_rate(step, 100) for step in range(101)]
    assert max(parts) == 1 and parts[10] == parts[9] == 1 and parts[0] == 0.1 and parts[100] == 0


@pytest.mark.parametrize("name", large_batches.RATES)
def test_all_parameters_are_trained_once(name):
    model = large_batches.make_model()
    trained = [p for each in large_batches.optimizers(name, model, 0.01) for p in each.param_groups[0]["params"]]
    assert {*map(id, trained)} == {id(p) for p in model.parameters()} and len(trained) == len({*map(id, trained)})


def test_a_run_and_a_run_that_diverges(monkeypatch):
    tokens = 4 * 16 * large_batches.LENGTH
    steps, loss = large_batches.train("LAMB", 16, 0.01, seed=0, tokens=tokens)
    assert steps == 4 and 5 < loss < 6
    monkeypatch.setattr(large_batches.GPT, "loss", lambda *_: torch.tensor(math.nan, requires_grad=True))
    assert large_batches.train("Adam", 16, 0.01, seed=0, tokens=tokens)[1] == math.inf
