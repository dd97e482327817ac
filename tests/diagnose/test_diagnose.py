"""Who keeps the others waiting, by what ranks have recorded."""

import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.__main__ import main

RECORDS = Path(__file__).parents[1] / "flight_records"


def said(capfd, *files):
    """The exit status, and the lines."""
    status = main(["diagnose", *map(str, files)])
    out, err = capfd.readouterr()
    return status, (out + err).splitlines()


def record(folder, rank, *calls, **content):
    """A file as nccl's watchdog writes it. ``calls``: (number, operation, sizes, time)"""
    frames = [
        {"name": "all_reduce", "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "step", "filename": "train.py", "line": 7},
    ]
    entries = [
        dict(is_p2p=False, collective_seq_id=number, profiling_name=f"nccl:{operation}", time_created_ns=at * 10**6,
             process_group=("0", "default_pg"), input_sizes=[sizes], input_dtypes=["Float"], frames=frames)
        for number, operation, sizes, at in calls
    ]  # fmt: skip
    path = folder / f"rank_{rank}"
    path.write_bytes(pickle.dumps({"version": "2.10", "entries": entries, **content}))
    return path


# What gloo processes have recorded (flight_records.py).


def test_a_rank_that_does_not_come_is_named_with_its_last_call(capfd):
    assert said(capfd, RECORDS / "missing") == (
        1,
        [
            "default_pg, call 2: rank 2 did not join",
            "    ranks 0, 1: all_reduce of [4] Float, tests/flight_records.py:33 in missing",
            "    rank 2: its last call is 1, all_reduce of [4] Float, tests/flight_records.py:33 in missing",
        ],
    )


def test_a_call_that_does_not_fit_is_named_with_the_lines_of_both_sides(capfd):
    assert said(capfd, RECORDS / "mismatch") == (
        1,
        [
            "default_pg, call 2: the calls do not match",
            "    rank 1: all_reduce of [5] Float, tests/flight_records.py:38 in mismatch",
            "    ranks 0, 2: all_reduce of [4] Float, tests/flight_records.py:38 in mismatch",
        ],
    )


def test_before_a_hang_calls_that_fit_but_come_from_different_lines_are_told(capfd):
    status, lines = said(capfd, RECORDS / "metric")
    assert status == 1
    assert lines[:4] == [
        "default_pg, call 1: it matches, but comes from different lines of code",
        "    rank 0: all_reduce of [1] Float, tests/flight_records.py:43 in metric",
        "    ranks 1, 2: all_reduce of [1] Float, tests/flight_records.py:44 in metric",
        "default_pg, call 2: ranks 1, 2 did not join",
    ]


def test_a_rank_that_was_stopped_is_the_one_for_whom_others_waited(capfd):
    status, lines = said(capfd, RECORDS / "stopped")
    assert status == 0
    assert lines[0] == "all ranks joined all of 21 calls, and the calls match"
    assert lines[1].startswith("rank 1 joined last in ")
    assert "all_reduce of [4] Float, tests/flight_records.py:52 in stopped" in lines[2]


# What nccl's watchdog writes.


def test_a_rank_without_a_file_is_known_by_its_group(tmp_path, capfd):
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    for rank in (0, 1):
        record(tmp_path, rank, (1, "all_reduce", [4], 0), pg_config=group)
    assert said(capfd, tmp_path) == (
        1,
        [
            "default_pg, call 1: rank 2 did not join",
            "    ranks 0, 1: all_reduce of [4] Float, train.py:7 in step",
            "    rank 2: no call of it is recorded",
        ],
    )


def test_calls_that_one_rank_has_dropped_for_newer_ones_are_not_missed(tmp_path, capfd):
    record(tmp_path, 0, *[(number, "all_reduce", [4], number) for number in (1, 2, 3)])
    record(tmp_path, 1, *[(number, "all_reduce", [4], number) for number in (2, 3)])
    assert said(capfd, tmp_path)[0] == 0


def test_of_a_group_that_was_made_anew_the_newer_calls_count(tmp_path, capfd):
    record(tmp_path, 0, (1, "barrier", [], 0), (2, "barrier", [], 0), (1, "all_reduce", [4], 0))
    record(tmp_path, 1, (1, "all_reduce", [4], 0))
    assert said(capfd, tmp_path)[0] == 0


def test_a_scatter_may_be_of_other_sizes_and_an_all_reduce_may_not(tmp_path, capfd):
    for operation, status in [("scatter", 0), ("all_to_all", 0), ("all_reduce", 1), ("reduce_scatter", 1)]:
        for rank in (0, 1):
            record(tmp_path, rank, (1, operation, [rank], 0))
        assert said(capfd, tmp_path)[0] == status, operation


# What simulated ranks have recorded.


def test_in_a_simulated_trace_the_rank_that_computes_longest_is_waited_for(tmp_path, capfd):
    def step():
        x = torch.ones(256, 256)
        for _ in range(10 if dist.get_rank() == 2 else 1):
            x = x @ x
        dist.all_reduce(x)

    trace = tinydist.launch(step, 4, backend="simulated").trace
    trace.save(tmp_path / "trace.json")
    calls = [event for event in trace.events if event.name == "all_reduce"]
    *_, before, last = sorted(call.issued for call in calls)
    status, lines = said(capfd, tmp_path / "trace.json")
    assert (status, lines[0]) == (0, "all ranks joined all of 1 calls, and the calls match")
    assert lines[1] == f"rank 2 joined last in 1: the next-to-last waited {1e3 * (last - before):,.3g} ms in all"
    assert "call 1: all_reduce of 262,144 bytes, in " in lines[2]


def test_in_a_trace_of_ranks_alike_nobody_is_last(tmp_path, capfd):
    tinydist.launch(lambda: dist.all_reduce(torch.ones(4)), 4, backend="simulated").trace.save(tmp_path / "trace.json")
    assert said(capfd, tmp_path / "trace.json") == (0, ["all ranks joined all of 1 calls, and the calls match"])


# Files that cannot be read.


class Runs:
    """When it is loaded, as pickle would."""

    def __reduce__(self):
        return print, ("RUN",)


@pytest.mark.parametrize(
    "name, content, why",
    [
        ("rank_0", b"no pickle", "neither a trace nor a Flight Recorder dump: "),
        ("rank_0", pickle.dumps({"entries": [Runs()]}), "it would import builtins.print"),
        ("rank_0", pickle.dumps({"entries": [{}]}), "neither a trace nor a Flight Recorder dump: KeyError('is_p2p')"),
        ("rank_0", pickle.dumps([1]), "a trace has traceEvents, a Flight Recorder dump has entries; this has neither"),
        ("dump", pickle.dumps({"entries": []}), "Flight Recorder dump must end with its rank, as rank_0"),
        ("t.json", b"{", "neither a trace nor a Flight Recorder dump: "),
        ("t.json", json.dumps({"a": 1}).encode(), "a trace has traceEvents, a Flight Recorder dump has entries"),
        ("t.json", json.dumps({"traceEvents": []}).encode(), "no communication in a trace; is it of torch.profiler"),
    ],
)  # fmt: skip
def test_a_file_that_is_neither_is_refused_with_the_reason(name, content, why, tmp_path, capfd):
    (tmp_path / name).write_bytes(content)
    status, (line,) = said(capfd, tmp_path / name)
    assert status == 2 and line.startswith(f"diagnose: {tmp_path / name}: ") and why in line


def test_a_file_that_is_not_there_is_refused(tmp_path, capfd):
    assert said(capfd, tmp_path / "none") == (2, [f"diagnose: {tmp_path / 'none'}: No such file or directory"])
