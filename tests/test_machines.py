"""examples/machines: two machines in one, nodes that are killed, manifests."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MACHINES = ROOT / "examples" / "machines"


def rows_of(name):
    """Of a table that notebook 12b reads."""
    with open(ROOT / "notebooks" / "data" / f"{name}.csv") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.syspath_prepend(MACHINES)


# Two machines in one.


def test_a_slower_wire_takes_as_much_longer_as_its_rate_says(machines):
    from two_machines import PAYLOAD, clock

    gradients = 4 * 3_229_184  # bytes; a ring of two sends all of them each way
    for rate in (1e9, 1e8):
        assert clock(rate) == pytest.approx(8 * gradients / rate / PAYLOAD, rel=1e-4)


def test_it_says_what_a_machine_lacks_for_being_two(machines, monkeypatch):
    import namespaces

    monkeypatch.setattr(namespaces, "which", lambda name: name != "tc")
    with pytest.raises(SystemExit, match="two machines: Linux's tc is missing"):
        namespaces.check()
    monkeypatch.setattr(namespaces, "which", lambda name: True)
    monkeypatch.setattr(namespaces, "ALONE", [sys.executable, "-c", "raise SystemExit('not permitted')"])
    with pytest.raises(SystemExit, match="two machines: this user may make no namespaces here: not permitted"):
        namespaces.check()


def test_the_table_of_the_notebook_is_what_write_writes(machines, tmp_path):
    from two_machines import FILE, RATES, write

    stored = rows_of("12b_two_machines")
    rates = [float(row["bits_per_second"]) if row["bits_per_second"] else None for row in stored]
    assert rates == list(RATES)
    write({rate: float(row["ms"]) / 1e3 for rate, row in zip(rates, stored)}, tmp_path / FILE.name)
    with open(tmp_path / FILE.name) as file:
        again = list(csv.DictReader(file))
    measured = ("wire", "bits_per_second", "ms")
    assert [[row[key] for key in measured] for row in again] == [[row[key] for key in measured] for row in stored]
    assert [list(row) for row in again] == [list(row) for row in stored]


def test_a_slower_wire_took_longer_by_about_what_the_clock_gives_for_it(machines):
    from two_machines import clock

    free, *others = rows_of("12b_two_machines")
    for row in others:
        expected = float(free["ms"]) / 1e3 + clock(float(row["bits_per_second"]))
        assert float(row["ms"]) / 1e3 == pytest.approx(expected, rel=0.1), row


@pytest.mark.exhaustive
def test_two_machines_have_the_losses_of_one(machines):
    import namespaces

    try:
        namespaces.check()
    except SystemExit as lacks:
        pytest.skip(str(lacks))
    done = subprocess.run([sys.executable, MACHINES / "two_machines.py"], capture_output=True, text=True)
    assert "losses differ from those of one machine by 0.0 at most" in done.stdout, done.stdout + done.stderr


# Nodes that are killed.


def test_stored_kills_lose_the_steps_since_a_checkpoint_and_at_most_two_intervals(machines):
    from kills import EVERY, STEPS

    stored = rows_of("12b_kills")
    assert {row["what"] for row in stored} == {"worker", "node", "host", "join"}
    for row in stored:
        at, on, lost = (int(row[key]) for key in ("at", "on", "lost"))
        assert lost == at - on and on % EVERY == 0 and 0 <= lost <= 2 * EVERY and at <= STEPS, row
        assert row["last_call"] == "30" and float(row["meet"]) > 0 <= float(row["load"]), row
        if row["what"] == "node":
            assert float(row["meet"]) > 30, row


def test_stored_restarts_say_in_turn_with_the_variable_and_without_how_each_job_ended():
    stored = rows_of("12b_restarts")
    assert [row["own_store"] for row in stored] == ["1", "0"] * (len(stored) // 2)
    for row in stored:
        assert row["ended"] in ("well", "failed", "hung")
        assert bool(row["error"]) == (row["ended"] == "failed"), row


def test_lost_are_the_steps_from_where_training_goes_on(machines):
    from kills import rows

    def steps(*numbers):
        return [{"step": number} for number in numbers]

    starts = [(2, steps(0, 1, 2, 3)), (1, steps()), (1, steps(2, 3)), (2, steps(4))]
    happened = [("node", 1, 10.0), ("worker", 2, 12.0), ("join", 3, 20.0)]
    seen = [[5.0, 6.0], [11.0, None], [15.0, 15.5], [23.0, 24.0]]  # when it starts, and takes its first step
    assert list(rows(happened, starts, seen)) == [
        {"what": "node", "at": 4, "on": 2, "lost": 2, "meet": 5.0, "load": 0.5},
        {"what": "worker", "at": 4, "on": 2, "lost": 2, "meet": 3.0, "load": 0.5},
        {"what": "join", "at": 4, "on": 4, "lost": 0, "meet": 3.0, "load": 1.0},
    ]


@pytest.mark.exhaustive
def test_fifty_kills_leave_no_wrong_loss_and_no_process_and_cost_no_more_than_a_checkpoint(machines):
    from kills import EVERY, KILLS, STEPS

    done = subprocess.run([sys.executable, MACHINES / "kills.py", "50", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(row["what"] in KILLS for run in runs for row in run["rows"]) == 50
    for run in runs:
        assert (run["status"], run["steps"], run["wrong"], run["left"]) == (0, STEPS, 0, 0), run
        for row in run["rows"]:
            assert row["on"] % EVERY == 0 and 0 <= row["lost"] <= 2 * EVERY, "the save under way ends by the next one"


# Manifests.


def test_the_script_for_slurm_is_one():
    assert subprocess.run(["bash", "-n", MACHINES / "slurm.sh"]).returncode == 0


def test_the_manifest_has_the_fields_of_a_pytorchjob():
    job = yaml.safe_load((MACHINES / "pytorchjob.yaml").read_text())
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert spec.keys() <= {"runPolicy", "elasticPolicy", "pytorchReplicaSpecs", "nprocPerNode"}
    assert isinstance(spec["nprocPerNode"], str)
    elastic = {"minReplicas", "maxReplicas", "rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "maxRestarts"}
    assert spec["elasticPolicy"].keys() <= elastic
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    assert worker.keys() <= {"replicas", "template", "restartPolicy"}
    assert [each["name"] for each in worker["template"]["spec"]["containers"]] == ["pytorch"]
