"""Reading a Flight Recorder: at which call did a rank leave the others?"""

from tinydist.lab.author import Values, alone, exercise, mistake

STEP = ["all_gather on line 12", "reduce_scatter on line 19", "all_reduce on line 31"]


def recorded(about, *calls):
    return alone(lambda: ([list(each) for each in calls],), about)


def worlds():
    metric = ["all_reduce on line 40"]
    yield recorded("rank 0 logs a metric first", metric + STEP, STEP, STEP, STEP)
    yield recorded("rank 2 logs a metric in the second step", *[STEP * 2 if r != 2 else STEP + metric + STEP for r in range(4)])
    yield recorded("rank 1 leaves out a call", STEP, STEP[:1] + STEP[2:], STEP, STEP)
    yield recorded("rank 3 stops early", STEP * 2, STEP * 2, STEP * 2, STEP)
    yield recorded("rank 1 makes a call too many at the end", STEP, STEP + metric, STEP)
    yield recorded("ranks 1 and 4 take another branch", *[STEP[:2] + metric if r in (1, 4) else STEP for r in range(5)])
    yield recorded("all ranks agree", STEP, STEP, STEP)


@exercise(
    title="Read a Flight Recorder",
    minutes=15,
    difficulty=2,
    worlds=worlds,
    targets=[Values("for records of 3 to 5 ranks", ["the number of the call", "the ranks"])],
    mistakes=[
        mistake(
            "Calls count from 1, as in the reports: the first call of a rank is its call 1",
            "number + 1",
            "number",
        ),
        mistake(
            "A rank that has stopped has no such call, and that is a difference, too: zip ends with the shortest record",
            "range(max(map(len, records)))",
            "range(min(map(len, records)))",
        ),
        mistake(
            "These are the ranks that agree: the ones that differ from most are asked for",
            "call != most",
            "call == most",
        ),
        mistake(
            "Rank 0 may be the one that is wrong: compare with what most ranks call, not with rank 0",
            "max(calls, key=calls.count)",
            "calls[0]",
        ),
        mistake(
            "This is the last difference. After the first one all later calls are shifted, so only the first one tells",
            "            return number + 1, ranks\n    return None\n",
            "            found = number + 1, ranks\n    return found if records[0] != records[1] or ranks else None\n",
        ),
        mistake(
            "Where all ranks agree, return None",
            "    return None\n",
            "    return 0, []\n",
        ),
    ],
    hints=[
        "Look at call 1 of all ranks, then at call 2 of all ranks, and so on.",
        "A record that has ended gives None for its next call. Which call do most ranks make? max(calls, key=calls.count) finds it.",
    ],
    why="torchfrtrace does this for the files of all ranks, group by group. After the first difference every later call is shifted, "
    "so the first one is the only one that tells you where the bug is.",
)
def first_difference(records):
    """``records[rank]`` lists the calls that a rank has made in one group, in their order, as texts such as "all_reduce on
    line 31". Return (number, ranks): the number of the first call, counted from 1, in which not all ranks do the same,
    and the list of the ranks that differ there from what most ranks do. None where all ranks agree to the end.
    """
    # ? Call by call: what do most ranks do, and who does not? A rank that has stopped does something else, too.
    for number in range(max(map(len, records))):
        calls = [record[number] if number < len(record) else None for record in records]
        most = max(calls, key=calls.count)
        ranks = [rank for rank, call in enumerate(calls) if call != most]
        if ranks:
            return number + 1, ranks
    return None
