"""A recv that nobody has sent is told, and nobody else's: entries as torch's Flight Recorder writes them for nccl."""

import pickle
import random

import pytest

from tinydist.diagnose import diagnose, files_in
from tinydist.diagnose.command import NotJudged

WORLD = ("0", "default_pg")


def write(folder, rank, *issued, ranks=3, first=0, group=WORLD, members=None):
    """``issued``: "send 1", "recv 1", "all_reduce", or a list of messages, which are a batch."""
    entries, batch, calls = [], 0, 0

    def entry(name, is_p2p):
        frames = [{"name": "step", "filename": "train.py", "line": len(entries)}]
        entries.append(
            dict(is_p2p=is_p2p, collective_seq_id=calls, p2p_seq_id=batch, profiling_name=f"nccl:{name}", frames=frames,
                 record_id=first + len(entries), time_created_ns=1, process_group=group, input_sizes=[[4]],
                 input_dtypes=["Float"], state="scheduled")
        )  # fmt: skip

    for each in issued:
        if each == "all_reduce":
            calls += 1
            entry(each, False)
            continue
        batch += 1
        for message in each if isinstance(each, list) else [each]:
            what, other = message.split()
            entry(f"{what} {rank}{'->' if what == 'send' else '<-'}{other}", True)
    listed = {"0": {"name": group[0], "desc": group[1], "ranks": str(members or list(range(ranks)))}}
    (folder / f"rank_{rank}").write_bytes(pickle.dumps({"entries": entries, "pg_config": listed}))


def said(folder):
    return diagnose(files_in([folder]))


def test_a_pipeline_stands_still_behind_the_stage_that_has_not_sent(tmp_path):
    write(tmp_path, 0, "send 1")
    write(tmp_path, 1, "recv 0", "send 2", "recv 0")
    write(tmp_path, 2, "recv 1", "recv 1")
    assert said(tmp_path) == (
        [
            "rank 1: the last that it called is a recv from rank 0, which has not sent it (train.py:2 in step)",
            "rank 2: the last that it called is a recv from rank 1, which has not sent it (train.py:1 in step)",
        ],
        True,
    )


def test_a_rank_that_did_not_join_is_told_with_the_message_that_it_has_not_got(tmp_path):
    write(tmp_path, 0, "all_reduce")
    write(tmp_path, 1, "send 0", "all_reduce")
    write(tmp_path, 2, "recv 1")
    lines, wrong = said(tmp_path)
    assert wrong and lines[0] == (
        "start here: rank 2 did not join, and waits in no collective: the last that it called is a recv from rank 1, "
        "which has not sent it (train.py:0 in step); ranks 0, 1 wait for it"
    )


def test_of_a_batch_any_may_be_the_one(tmp_path):
    write(tmp_path, 0, ["send 1", "recv 1"], ranks=2)
    write(tmp_path, 1, ranks=2)
    assert said(tmp_path)[0] == [
        "rank 0: the last that it called is a recv from rank 1, which has not sent it (train.py:1 in step)"
    ]


def test_ranks_of_a_message_are_those_of_its_group(tmp_path):
    group = dict(group=("3", "pp"), members=[0, 2])
    write(tmp_path, 0, ranks=3, **group)
    path = tmp_path / "rank_2"
    write(tmp_path, 1, "recv 0", **group)  # the group's second rank
    (tmp_path / "rank_1").rename(path)
    write(tmp_path, 1, **group)
    assert said(tmp_path)[0][0].startswith("rank 2: the last that it called is a recv from rank 0")


HARMLESS = {
    "a recv that is posted ahead": (["recv 1", "all_reduce"], ["all_reduce"]),
    "the same, before a send": (["recv 1", "send 1"], ["recv 0"]),
    "a send that was buffered": (["all_reduce", "send 1"], ["all_reduce"]),
    "all have come": (["recv 1", "all_reduce", "send 1"], ["send 0", "all_reduce", "recv 0"]),
    "more were sent": (["recv 1", "all_reduce"], ["send 0", "send 0", "all_reduce"]),
    "a batch that has come": ([["recv 1", "send 1"], "all_reduce"], [["send 0", "recv 0"], "all_reduce"]),
}


@pytest.mark.parametrize("both", HARMLESS.values(), ids=HARMLESS)
def test_nobody_is_accused_of(both, tmp_path):
    for rank, issued in enumerate(both):
        write(tmp_path, rank, *(issued if "all_reduce" in issued else [*issued, "all_reduce"]), ranks=2)
    lines, wrong = said(tmp_path)
    assert not wrong and not any("recv" in line for line in lines)


@pytest.mark.parametrize("seed", range(10))
def test_whoever_stops_is_told_by_those_alone_who_receive_from_it(seed, tmp_path):
    """Messages of three ranks in any order, each recv blocking; then one rank stops."""
    draw, issued = random.Random(seed), {rank: [] for rank in range(3)}
    for _ in range(30):
        source, target = draw.sample(range(3), 2)
        issued[source].append(f"send {target}")
        issued[target].append(f"recv {source}")
    (tmp_path / "all").mkdir()
    for rank, own in issued.items():
        write(tmp_path / "all", rank, "all_reduce", *own)
    assert said(tmp_path / "all")[1] is False
    stops = draw.randrange(3)
    issued[stops] = [each for each in issued[stops][:5] if each.startswith("send")]
    done, waits = {rank: [] for rank in issued}, {}
    while len(waits) < 3:
        for rank, own in issued.items():
            while rank not in waits:
                if len(done[rank]) == len(own):
                    waits[rank] = None
                    break
                done[rank].append(each := own[len(done[rank])])
                what, other = each.split()
                other = int(other)
                if what == "recv" and done[rank].count(each) > done[other].count(f"send {rank}"):
                    if other not in waits:  # it may still come
                        done[rank].pop()
                        break
                    waits[rank] = other
    for rank, own in done.items():
        write(tmp_path, rank, *own)
    expected = [(rank, other) for rank, other in sorted(waits.items()) if other is not None]
    lines = said(tmp_path)[0] if expected else []
    assert [(int(line.split()[1][0]), int(line.split("from rank ")[1][0])) for line in lines] == expected


def test_where_older_entries_were_dropped_nobody_counts(tmp_path):
    write(tmp_path, 0, "all_reduce", "recv 1", ranks=2)
    write(tmp_path, 1, "all_reduce", ranks=2, first=2000)
    assert said(tmp_path)[1] is False


def test_of_a_rank_without_a_file_nothing_is_said(tmp_path):
    write(tmp_path, 0, "all_reduce", "recv 1", ranks=2)
    with pytest.raises(NotJudged, match="there is no file of rank 1"):
        said(tmp_path)
