"""The stored training runs (benchmarks/balance.py): of this text, and what balancing does, seed by seed."""

from benchmarks import balance, csv_rows

ROWS = csv_rows.read(balance.FILE)


def last(method, column):
    """On what is held out: seed -> number."""
    found = [row for row in ROWS if row["what"] == "held out" and row["method"] == method]
    return {row["seed"]: float(row[column]) for row in found}


def test_five_seeds_of_each_method_on_this_text():
    assert {row["text"] for row in ROWS} == {balance.text_hash()}
    assert all(row["version"] and row["processor"] and row["date"] for row in ROWS)
    for method in [*balance.METHODS, balance.DENSE]:
        assert len(last(method, "loss")) == 5


def test_each_way_of_balancing_evens_the_load_of_its_own_scores_with_every_seed():
    pairs = {"softmax, balance loss 0.01": "softmax", "sigmoid, bias 0.001": "sigmoid", "sigmoid, bias 0.01": "sigmoid"}
    for balanced, control in pairs.items():
        after, before = (last(method, "max_over_mean") for method in (balanced, control))
        assert all(after[seed] < 0.85 * before[seed] for seed in before), (balanced, after, before)
        less, more = (last(method, "over_capacity") for method in (balanced, control))
        assert all(less[seed] < 0.75 * more[seed] for seed in more), (balanced, less, more)


def test_the_program_writes_such_rows(monkeypatch):
    first = balance.held_out()[:1]
    monkeypatch.setattr(balance, "held_out", lambda: first)
    rows = list(balance.train("sigmoid, bias 0.001", seed=0, steps=1))
    assert [row["what"] for row in rows] == ["training", "held out"]
    assert {*rows[0]} <= {*ROWS[0]}
    (dense,) = balance.train(balance.DENSE, seed=0, steps=1)
    assert {*dense} <= {*ROWS[0]} and dense["what"] == "held out" and float(dense["loss"]) > 0
    assert 1 <= float(rows[1]["max_over_mean"]) <= float(rows[1]["worst_layer"]) <= balance.EXPERTS / balance.TOP_K
