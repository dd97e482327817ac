"""Where a hang in several groups began, by the records of ranks that mostly wait for one another."""

import pickle
import random
from pathlib import Path

import pytest

from tinydist.diagnose import diagnose, files_in

RECORDS = Path(__file__).parents[1] / "flight_records"


def mesh(outer, inner):
    """Groups by name: tp of neighbors, dp across."""
    rows = [[row * inner + place for place in range(inner)] for row in range(outer)]
    return {f"tp {row}": ranks for row, ranks in enumerate(rows)} | {
        f"dp {place}": [row[place] for row in rows] for place in range(inner)
    }


def run(folder, groups, calls, no_file=(), listed=True, named=str, messages=()):
    """What is said of ranks whose ``calls`` are (group, size): each goes on when all of the group have come, and fit.

    ``named``: a group's description. ``messages``: ranks that have a point-to-point message on record, too. Returns
    where to start, all lines, and the ranks that wait for nobody.
    """
    made, numbers, met = {rank: [] for rank in calls}, {}, {}
    moved, free, at = True, set(calls), 0
    while moved:
        moved = False
        for rank in sorted(free):
            if len(made[rank]) < len(calls[rank]):
                group, size = calls[rank][len(made[rank])]
                number = numbers[rank, group] = numbers.get((rank, group), 0) + 1
                made[rank].append((group, number, size, at := at + 1))
                there = met.setdefault((group, number), {})
                there[rank] = size
                free.discard(rank)
                if len(there) == len(groups[group]) and len(set(there.values())) == 1:
                    free |= there.keys()
                moved = True
    for rank, own in made.items():
        if rank not in no_file:
            entries = [
                dict(is_p2p=False, collective_seq_id=number, profiling_name="nccl:all_reduce", time_created_ns=at,
                     process_group=(str(list(groups).index(group)), named(group)), input_sizes=[[size]],
                     input_dtypes=["Float"], frames=[{"name": "step", "filename": "train.py", "line": 7}])
                for group, number, size, at in own
            ]  # fmt: skip
            configured = {
                str(place): {"name": str(place), "desc": group, "ranks": str(ranks)}
                for place, (group, ranks) in enumerate(groups.items())
            }
            entries += [dict(is_p2p=True)] * (rank in messages)
            content = {"entries": entries, "pg_config": configured if listed else {}}
            (folder / f"rank_{rank}").write_bytes(pickle.dumps(content))
    lines, wrong = diagnose(files_in([folder]))
    assert wrong
    return [line.removeprefix("start here: ") for line in lines if line.startswith("start here")], lines, free


def steps(groups, rank, count):
    """Of each step: twice along tp, once along dp."""
    tp, dp = [group for group, ranks in groups.items() if rank in ranks]
    return [(tp, 8), (tp, 8), (dp, 4)] * count


def test_on_a_mesh_of_gloo_processes_the_rank_that_left_is_named_first():
    lines, wrong = diagnose(files_in([RECORDS / "mesh"]))
    assert wrong
    assert lines[0] == "start here: rank 4 did not join, and waits for nobody; ranks 0, 1, 2, 3, 5 wait for it"
    absent = [line.split(": ")[-1] for line in lines if line.endswith("did not join") and not line.startswith("start")]
    assert absent == ["rank 4 did not join"] * 2 + ["rank 3 did not join", "rank 5 did not join"]


@pytest.mark.parametrize("seed", range(40))
def test_whoever_stops_is_named_and_nobody_else(seed, tmp_path):
    draw = random.Random(seed)
    groups = mesh(draw.choice([2, 3, 4]), draw.choice([2, 3, 4]))
    ranks = sorted({rank for members in groups.values() for rank in members})
    calls = {rank: steps(groups, rank, 3) for rank in ranks}
    stopped = draw.sample(ranks, draw.choice([1, 1, 1, 2]))
    listed = bool(seed % 2)  # where no file lists a group's ranks, they are those that have called in it
    for rank in stopped:
        calls[rank] = calls[rank][: draw.randrange(1 if listed else 3, 8)]
    begin, lines, free = run(tmp_path, groups, calls, listed=listed)
    absent = [line for line in lines if line.endswith("did not join")]
    missed = {rank for rank in free if any(f"    rank {rank}: " in line for line in lines)}
    if len(absent) == 1:
        assert not begin and missed
    else:
        assert {int(line.split()[1]) for line in begin} == missed
        assert all("waits for nobody" in line for line in begin)


def test_of_several_the_one_comes_first_for_whom_more_wait(tmp_path):
    groups = {"a": [0, 1], "b": [2, 3, 4], "c": [1, 5]}
    calls = {0: [("a", 1)], 1: [], 2: [], 3: [("b", 1)], 4: [("b", 1)], 5: [("c", 1)]}
    calls[6], groups["d"] = [("d", 1)], [5, 6]
    begin, *_ = run(tmp_path, groups, calls)
    assert begin == [
        "rank 1 did not join, and waits for nobody; ranks 0, 5, 6 wait for it",
        "rank 2 did not join, and waits for nobody; ranks 3, 4 wait for it",
    ]


def test_ranks_that_wait_for_one_another_are_a_circle_and_the_others_its_victims(tmp_path):
    groups = {"a": [0, 1], "b": [0, 1], "c": [1, 2]}
    calls = {0: [("a", 1)], 1: [("b", 1)], 2: [("c", 1)]}
    begin, lines, _ = run(tmp_path, groups, calls)
    assert begin == ["ranks 0, 1 wait for one another"]
    assert [line[0] for line in lines if line.endswith("did not join")] == ["a", "b", "c"]


def test_a_call_that_does_not_match_comes_before_ranks_that_are_missing_because_of_it(tmp_path):
    groups = mesh(2, 2)
    calls = {rank: steps(groups, rank, 2) for rank in range(4)}
    calls[3][1] = ("tp 1", 9)
    begin, lines, _ = run(tmp_path, groups, calls)
    assert begin == ["tp 1, call 2: the calls do not match"]
    assert lines[1] == "tp 1, call 2: the calls do not match"


def test_a_call_that_does_not_match_is_named_also_where_somebody_is_missing_from_it(tmp_path):
    groups = mesh(2, 3)
    calls = {rank: steps(groups, rank, 2) for rank in range(6)}
    calls[0][3], calls[2] = ("tp 0", 9), calls[2][:3]
    begin, lines, _ = run(tmp_path, groups, calls)
    assert begin[0] == "tp 0, call 3: the calls do not match"
    assert begin[1].startswith("rank 2 did not join, and waits for nobody; ")
    assert lines[2] == "tp 0, call 3: the calls do not match, and rank 2 did not join"


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (3, 3)])
def test_who_stops_before_its_first_call_of_an_axis_is_named_and_no_victim(shape, tmp_path):
    """Of gloo: no file lists a group's ranks, and those of one mesh dimension have one description."""
    groups = mesh(*shape)
    ranks = range(shape[0] * shape[1])
    for gone in ranks:
        calls = {rank: steps(groups, rank, 3) for rank in ranks}
        calls[gone] = calls[gone][:2]
        folder = tmp_path / str(gone)
        folder.mkdir()
        begin, *_ = run(folder, groups, calls, listed=False, named=lambda group: group.split()[0])
        assert [line.partition(" did")[0] for line in begin] == [f"rank {gone}"]


def test_of_a_rank_that_has_sent_messages_it_is_not_said_that_it_waits_for_nobody(tmp_path):
    groups = mesh(2, 3)
    calls = {rank: steps(groups, rank, 3) for rank in range(6)}
    calls[4] = calls[4][:4]
    begin, *_ = run(tmp_path, groups, calls, messages=[4])
    assert begin == ["rank 4 did not join, and waits in no collective; ranks 0, 1, 2, 3, 5 wait for it"]


def test_a_rank_without_a_file_is_the_cause_where_others_made_their_last_call_with_it(tmp_path):
    """Ranks 3 and 5 did not join along dp, and would be to blame if nobody asked with whom they were last."""
    groups = mesh(2, 3)
    calls = {rank: steps(groups, rank, 3) for rank in range(6)}
    calls[4] = calls[4][:4]
    begin, lines, _ = run(tmp_path, groups, calls, no_file=[4])
    assert begin == ["rank 4 has left no file; ranks 0, 1, 2, 3, 5 wait for it"]
    assert "dp 0, call 2: rank 3 did not join" in lines


def test_one_group_that_stands_still_needs_no_advice(tmp_path):
    begin, *_ = run(tmp_path, {"a": [0, 1]}, {0: [("a", 1)], 1: []})
    assert begin == []
