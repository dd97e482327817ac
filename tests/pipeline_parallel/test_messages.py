"""A message for each result that another rank needs, received in the order of sends."""

from collections import defaultdict
from itertools import pairwise

import pytest

from tinydist.pipeline_parallel import SCHEDULES, Costs, analyze, make_schedule, verify, with_messages


def test_one_f_one_b_by_hand():
    assert str(with_messages(make_schedule("1F1B", 2, 2))).splitlines() == [
        "rank 0   0F0      0SEND_F0 0RECV_B0 0F1      0SEND_F1 0RECV_B1 0B0      0B1",
        "rank 1   1RECV_F0 1F0      1RECV_F1 1B0      1SEND_B0 1F1      1B1      1SEND_B1",
    ]
    assert str(with_messages(make_schedule("1F1B", 2, 2), blocking=True)).splitlines() == [
        "rank 0   0F0      0SEND_F0 0F1      0SEND_F1 0RECV_B0 0B0      0RECV_B1 0B1",
        "rank 1   1RECV_F0 1F0      1B0      1SEND_B0 1RECV_F1 1F1      1B1      1SEND_B1",
    ]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ranks, microbatches", [(1, 2), (2, 4), (3, 6), (4, 8), (4, 3), (8, 8)])
def test_verified_and_as_long(name, ranks, microbatches):
    schedule = make_schedule(name, ranks, microbatches)
    whole = verify(with_messages(schedule))
    assert with_messages(whole) == whole
    assert analyze(whole).makespan == analyze(schedule).makespan
    count = defaultdict(int)
    for rank in range(ranks):
        for part in whole.passes(rank):
            if part.kind.startswith("SEND"):
                count[rank, whole.rank_of[part.stage + (1 if part.kind == "SEND_F" else -1)]] += 1
    expected = analyze(schedule).messages
    assert [[count[a, b] for b in range(ranks)] for a in range(ranks)] == expected


def test_receives_of_what_was_overtaken_are_posted_early():
    """Rank 0 of a V sends microbatches that rank 1 uses in another order."""
    overtaken = 0
    for name in SCHEDULES:
        whole = with_messages(make_schedule(name, 4, 8))
        for rank in range(4):
            waiting = 0
            for part in whole.passes(rank):
                waiting += part.kind.startswith("RECV")
                waiting -= (part.kind == "F" and whole.rank_of.get(part.stage - 1, rank) != rank) or (
                    part.kind in "BI" and whole.rank_of.get(part.stage + 1, rank) != rank
                )
                overtaken = max(overtaken, waiting)
                assert waiting >= 0
    assert overtaken > 2


@pytest.mark.parametrize("name", SCHEDULES)
def test_blocking_each_receive_stands_right_before_the_pass_that_needs_it(name):
    """Or before another that must come first; and it costs what a message takes, as it is begun no earlier."""
    schedule = make_schedule(name, 4, 8)
    whole = verify(with_messages(schedule, blocking=True))
    for program in whole.programs:
        for each, following in pairwise(program):
            assert not (str(each).count("RECV") and str(following).count("SEND"))
    assert analyze(whole).makespan == analyze(schedule).makespan
    late = Costs(message=0.25)
    assert analyze(with_messages(schedule), late).makespan == analyze(schedule, late).makespan
    assert (analyze(whole, late).makespan > analyze(schedule, late).makespan) == (
        name != "naive"
    )  # nobody is late there
