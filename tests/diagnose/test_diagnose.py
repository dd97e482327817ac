"""Who keeps the others waiting, by what ranks have recorded."""

import json
import pickle
import random
import re
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.__main__ import main
from tinydist.diagnose import read
from tinydist.diagnose.command import groups_of, waits_for_last
from tinydist.diagnose.recorded_calls import calls_of_trace

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


WORLD = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}


@pytest.mark.parametrize("ranks, listed, absent", [((0, 1), WORLD, 2), ((0, 2), {}, 1)])
def test_without_the_file_of_a_rank_there_is_no_verdict(ranks, listed, absent, tmp_path, capfd):
    for rank in ranks:
        record(tmp_path, rank, (1, "all_reduce", [4], 0), pg_config=listed)
    assert said(capfd, tmp_path) == (
        3,
        [
            f"not judged: there is no file of rank {absent}. The others have recorded 1 calls, which match. A process "
            "that was killed leaves no file: look for its log first"
        ],
    )


def test_a_call_that_does_not_match_is_told_where_a_file_is_missing(tmp_path, capfd):
    for rank in (0, 2):
        record(tmp_path, rank, (1, "all_reduce", [4 + rank], 0))
    status, lines = said(capfd, tmp_path)
    assert (status, lines[0]) == (1, "default_pg, call 1: the calls do not match")


def test_a_rank_that_hangs_before_its_first_call_is_named(tmp_path, capfd):
    record(tmp_path, 0, (1, "all_reduce", [4], 0))
    record(tmp_path, 1)
    status, lines = said(capfd, tmp_path)
    assert (status, lines[0]) == (1, "default_pg, call 1: rank 1 did not join")
    assert lines[2] == "    rank 1: no call of it is recorded"


def test_a_rank_that_recorded_nothing_beside_calls_of_groups_that_nobody_lists(tmp_path, capfd):
    for rank in (0, 1):
        path = record(tmp_path, rank, (1, "all_reduce", [4], 0))
        content = pickle.loads(path.read_bytes())
        content["entries"][0]["process_group"] = ("1", "undefined")
        path.write_bytes(pickle.dumps(content))
    record(tmp_path, 2)
    words = "not judged: rank 2 recorded nothing, and others 1 calls, of groups whose ranks no file lists"
    assert said(capfd, tmp_path) == (3, [words])


def test_an_empty_folder_and_records_without_collectives_are_not_judged(tmp_path, capfd):
    assert said(capfd, tmp_path) == (3, ["not judged: there is no file"])
    path = record(tmp_path, 0)
    assert said(capfd, tmp_path) == (3, ["not judged: no collective is recorded"])
    path.write_bytes(pickle.dumps({"entries": [{"is_p2p": True}] * 2}))
    words = "not judged: no collective is recorded (2 point-to-point messages are)"
    assert said(capfd, tmp_path) == (3, [words])


def test_two_files_of_one_rank_are_refused(tmp_path, capfd):
    (tmp_path / "b").mkdir()
    first, second = record(tmp_path, 0), record(tmp_path / "b", 0)
    assert said(capfd, first, second) == (2, [f"diagnose: {second}: rank 0 has another file, {first}"])


def test_a_trace_and_a_record_are_not_of_one_job(tmp_path, capfd):
    trace = tmp_path / "trace.json"
    tinydist.launch(lambda: dist.all_reduce(torch.ones(4)), 2, backend="simulated").trace.save(trace)
    words = f"diagnose: {trace}: a trace has all ranks of a job: give it alone"
    assert said(capfd, trace, record(tmp_path, 0)) == said(capfd, trace, trace) == (2, [words])


def test_what_a_terminal_would_take_for_a_command_is_written_out(tmp_path, capfd):
    _, (line,) = said(capfd, tmp_path / "\x1b[31m_0")
    assert line.endswith("\\x1b[31m_0: No such file or directory")


def test_a_small_file_cannot_ask_for_much_memory(tmp_path, capfd):
    place = b"\x80\x02Nr" + (2**28).to_bytes(4, "little") + b"."
    data = b"\x80\x05\x96" + (2**31).to_bytes(8, "little")
    tracemalloc.start()
    for content in (place, data):
        (tmp_path / "rank_0").write_bytes(content)
        assert said(capfd, tmp_path / "rank_0")[0] == 2
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


# Campaign: records with a random part changed, left out or swapped.

ODD = [None, -1, 0, 2**70, 1.5, float("nan"), "", "\x1b", [], [None], {}, (), True, b"x"]


def changed(content, draw):
    """One random place of a nested record has another value, or is gone."""
    places, todo = [], [content]
    while todo:
        inside = todo.pop()
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            places.append((inside, key))
            if isinstance(inside[key], dict | list):
                todo.append(inside[key])
    if not places:
        return
    inside, key = draw.choice(places)
    if draw.random() < 0.3:
        del inside[key]
    else:
        inside[key] = draw.choice(ODD)


def campaign(folder, capfd, seeds):
    """Each record is of a hang: rank 1 lacks the last call. Exit status -> how often."""
    found = Counter()
    for seed in seeds:
        draw = random.Random(seed)
        record(folder, 0, (1, "all_reduce", [4], 0), (2, "barrier", [], 1))
        record(folder, 1, (1, "all_reduce", [4], 0))
        victim = folder / f"rank_{draw.randrange(2)}"
        content = pickle.loads(victim.read_bytes())
        for _ in range(draw.randint(1, 3)):
            changed(content, draw)
        victim.write_bytes(pickle.dumps(content))
        status, lines = said(capfd, folder)
        assert lines and not any("Traceback" in line for line in lines), seed
        assert status or all_came(folder), f"seed {seed}: a false all-clear"
        found[status] += 1
    return found


def all_came(folder):
    """Of the world, from the first call that both still have."""
    first, second = [
        {call.number for call in read(folder / f"rank_{rank}")[0] if call.group == "default_pg"} for rank in (0, 1)
    ]
    begin = max(min(first), min(second)) if first and second else 0
    return {number for number in first if number >= begin} == {number for number in second if number >= begin}


def test_mutated_records(tmp_path, capfd):
    assert campaign(tmp_path, capfd, range(60)).keys() >= {1, 2}


@pytest.mark.exhaustive
def test_a_thousand_mutated_records(tmp_path, capfd):
    assert campaign(tmp_path, capfd, range(60, 1060)).total() == 1000


def test_calls_that_one_rank_has_dropped_for_newer_ones_are_not_missed(tmp_path, capfd):
    record(tmp_path, 0, *[(number, "all_reduce", [4], number) for number in (1, 2, 3)])
    record(tmp_path, 1, *[(number, "all_reduce", [4], number) for number in (2, 3)])
    assert said(capfd, tmp_path)[0] == 0


def test_of_a_group_that_was_made_anew_the_newer_calls_count(tmp_path, capfd):
    record(tmp_path, 0, (1, "barrier", [], 0), (2, "barrier", [], 0), (1, "all_reduce", [4], 0))
    record(tmp_path, 1, (1, "all_reduce", [4], 0))
    assert said(capfd, tmp_path)[0] == 0


@pytest.mark.parametrize("listed", [False, True])
def test_groups_of_one_description_are_told_apart_by_their_names(tmp_path, capfd, listed):
    """As those of a mesh dimension: gloo lists no ranks of a group, and nccl does."""
    for rank, name, calls in [(0, "1", 2), (1, "2", 2), (2, "1", 2), (3, "2", 3)]:
        group = {"name": name, "desc": "mesh_dp", "ranks": str([0, 2] if name == "1" else [1, 3])}
        numbers = [(number, "all_reduce", [4], 0) for number in range(1, calls + 1)]
        path = record(tmp_path, rank, *numbers, pg_config={name: group} if listed else {})
        content = pickle.loads(path.read_bytes())
        for entry in content["entries"]:
            entry["process_group"] = (name, "mesh_dp")
        path.write_bytes(pickle.dumps(content))
    assert said(capfd, tmp_path) == (
        1,
        [
            "2:mesh_dp, call 3: rank 1 did not join",
            "    rank 3: all_reduce of [4] Float, train.py:7 in step",
            "    rank 1: its last call is 2, all_reduce of [4] Float, train.py:7 in step",
        ],
    )


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


def launches(count):
    """Small kernels: on a GPU each takes less than its launch."""
    x = torch.ones(4)
    for _ in range(count):
        x + 1


def steps(late):
    """``late``: how many kernels more than the others a rank launches before a call, by call."""

    def program():
        for extra in late:
            launches(100 + extra.get(dist.get_rank(), 0))
            dist.all_reduce(torch.ones(4))

    return tinydist.launch(program, 4, backend="simulated", cluster="A100 node").trace


def late(trace):
    """{rank: the numbers of the calls that count against it}, and the seconds of each."""
    waits, _ = waits_for_last(groups_of(calls_of_trace(trace)))
    numbers = {rank: [int(re.search(r"call (\d+)", words)[1]) for _, words in own] for rank, own in waits.items()}
    return numbers, [wait for own in waits.values() for wait, _ in own]


def test_a_rank_that_was_late_once_counts_once():
    """Its CPU stays behind, and it comes last to each later call."""
    trace = steps([{}, {2: 80}, {}, {}, {}])
    calls = [[event for event in trace.of(rank) if event.name == "all_reduce"] for rank in range(4)]
    assert all(max(call.issued for call in each) == each[2].issued for each in list(zip(*calls, strict=True))[1:])
    numbers, seconds = late(trace)
    assert numbers == {2: [2]}
    assert seconds == [pytest.approx(80 * trace.cluster.device.launch_overhead)]


def test_a_rank_that_is_late_in_each_step_counts_in_each():
    numbers, seconds = late(steps([{1: 50}] * 5))
    assert numbers == {1: [1, 2, 3, 4, 5]}
    assert seconds == [pytest.approx(seconds[0], abs=3e-9)] * 5


def test_ranks_that_are_alike_are_never_late():
    assert late(steps([{}] * 5)) == ({}, [])


def test_a_rank_that_catches_up_is_not_counted():
    """Rank 3 has less to do in the second step, and rank 0 is not late: it was early before."""
    numbers, _ = late(steps([{3: 50}, {0: 50, 1: 50, 2: 50}, {}]))
    assert numbers == {3: [1]}


def chain(late, orders):
    """Groups 0-1 and 1-2. ``orders``: of the calls of rank 1."""

    def program():
        rank = dist.get_rank()
        groups, x = [dist.new_group([0, 1]), dist.new_group([1, 2])], torch.ones(4)
        for step in range(4):
            launches(100 + 80 * (step == 1 and rank == late))
            for place in orders:
                if rank in (place, place + 1):
                    dist.all_reduce(x, group=groups[place])

    trace = tinydist.launch(program, 3, backend="simulated", cluster="A100 node").trace
    waits, _ = waits_for_last(groups_of(calls_of_trace(trace)))
    return {rank: [words.partition(":")[0] for _, words in own] for rank, own in waits.items()}


def test_a_rank_that_waited_in_one_group_is_not_late_in_another():
    """Rank 2 waits for rank 1, which has waited for rank 0."""
    assert chain(0, [0, 1]) == {0: ["ranks 0-1, group 1, call 2"]}


def test_a_delay_counts_in_one_of_two_groups():
    """Of rank 1: rank 0 has waited for it first, and then rank 2."""
    assert chain(1, [0, 1]) == {1: ["ranks 0-1, group 1, call 2"]}
    assert chain(1, [1, 0]) == {1: ["ranks 1-2, group 2, call 2"]}


def test_what_was_saved_is_judged_as_what_was_not(tmp_path, capfd):
    trace = steps([{}, {2: 80}, {}, {}])
    trace.save(tmp_path / "trace.json")
    _, lines = said(capfd, tmp_path / "trace.json")
    assert lines[1] == f"rank 2 joined last in 1: the next-to-last waited {1e3 * late(trace)[1][0]:,.3g} ms in all"
    assert len(lines) == 3


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
