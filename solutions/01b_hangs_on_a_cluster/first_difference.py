"""Reading a Flight Recorder: at which call did a rank leave the others?"""

from random import Random

from tinydist.lab.author import Values, Wrong, alone, exercise, mistake

STEP = [
    "all_gather of [250] Float, train.py:12 in step",
    "reduce_scatter of [1000] Float, train.py:19 in step",
    "all_reduce of [1] Float, train.py:31 in step",
]
METRIC = ["all_reduce of [1] Float, train.py:40 in log"]


def recorded(ranks, odd, calls, about, others=STEP * 2):
    """All ranks have made two steps, but for one."""
    records = [calls if rank == odd else others for rank in range(ranks)]
    return alone(lambda: (list(map(list, records)),), f"records in which rank {odd} {about}")


def test_cases():
    yield recorded(4, 2, STEP + METRIC + STEP, "logs a metric before the second step")
    yield recorded(4, 0, METRIC + STEP * 2, "logs a metric first")
    yield recorded(4, 0, STEP[:2] + METRIC + STEP[2:] + STEP, "logs a metric before the all-reduce of the first step")
    yield recorded(3, 1, STEP[:1] + STEP[2:] + STEP, "leaves out a call")
    yield recorded(5, 3, STEP, "stops after the first step")
    yield recorded(3, 1, STEP * 2 + METRIC, "makes a call too many at the end")
    yield recorded(6, 0, STEP[:2] + METRIC + STEP, "takes another branch for one call")
    yield recorded(4, 1, METRIC * 3, "stops in a loop of the same call", METRIC * 5)
    yield recorded(3, 2, STEP + METRIC + STEP, "logs a metric before the second step")
    for draw in map(Random, range(10)):
        ranks, at = draw.randint(3, 6), draw.randint(0, 8)
        calls = (STEP * 3)[:at] + draw.choice([METRIC, [], METRIC * 2]) + (STEP * 3)[at + 1 :]
        yield recorded(ranks, draw.randrange(ranks), calls, f"takes another path at call {at + 1}", STEP * 3)


def program(answer, records):
    found = answer(records)
    alike = all(len(set(calls)) == 1 for calls in zip(*records))
    first = min(map(len, records)) + 1
    if alike and (found is None or (isinstance(found, tuple) and found[:1] != (first,))):
        raise Wrong(
            f"it returns {'nothing' if found is None else found}. Up to the end of the shortest record all calls are "
            "the same, and there a loop over zip(*records) ends. But a rank that has stopped, where the others go on, "
            "differs from them: take None for the call that it does not make"
        )
    return found


class Difference(Values):
    def general(self, trial, right):
        """What the ranks call there."""
        (records,), (number, rank) = trial.case.arguments(0), trial.returned[0]
        if not 1 <= number <= max(map(len, records)) or not 0 <= rank < len(records):
            return f"there is no call {number} of rank {rank}: calls count from 1, and ranks from 0"
        calls = [record[number - 1] if number <= len(record) else None for record in records]
        most, mine = max(calls, key=calls.count), calls[rank]
        first = right.returned[0][0]
        if mine == most:
            same = "all ranks" if len(set(calls)) == 1 else "most ranks"
            return (
                f"in call {number} rank {rank} does what {same} do: {'nothing, it has ended' if mine is None else mine}"
            )
        return (
            f"call {number} of rank {rank} differs from what most ranks call, but it is not the first: see call {first}"
        )


@exercise(
    title="Find the bug in the records of a Flight Recorder",
    minutes=10,
    difficulty=2,
    test_cases=test_cases,
    program=program,
    targets=[Difference("for records of 3 to 6 ranks", ["the number of the call", "the rank"], whole=True)],
    mistakes=[
        mistake(
            "Compare the line, too, and not the operation alone: calls of one kind and from different lines meet "
            "without a word, as in puzzle 2 of chapter 01",
            "record[number] if",
            "record[number].split()[0] if",
        ),
        mistake(
            "Calls count from 1, as in the reports: the first call of a rank is its call 1",
            "return number + 1, rank",
            "return number, rank",
        ),
        mistake(
            "The two are exchanged: the number of the call first, then the rank",
            "return number + 1, rank",
            "return rank, number + 1",
        ),
        mistake(
            "Rank 0 may be the one that is wrong: compare with what most ranks call, and not with rank 0",
            "max(calls, key=calls.count)",
            "calls[0]",
        ),
        mistake(
            "This is the last difference. After the first one all later calls are shifted, so only the first one tells",
            "in range(longest)",
            "in reversed(range(longest))",
        ),
        mistake(
            "This is the first call of all where nothing differs yet: look for the first in which a rank does "
            "something else",
            "if call != most",
            "if call == most",
        ),
    ],
    hints=[
        "Look at call 1 of all ranks, then at call 2 of all ranks, and so on.",
        "A record that has ended has no next call: take None for it. Which call do most ranks make? max(calls, "
        "key=calls.count) finds it.",
    ],
    why="After the first difference every later call is shifted, so the first one is the only one that tells where the "
    "bug is. torchfrtrace compares kinds, sizes and dtypes, and not the lines: where they are alike, it stops at a "
    "later call. `python -m tinydist diagnose` compares the lines, too, as you did.",
)
def first_difference(records):
    """One rank has left the path of the others. Return (number, rank): the number of its
    first call that is not what the others did, counted from 1, and the rank.

    ``records[rank]`` lists the calls that a rank has made in one group, in their order,
    as texts such as "all_reduce of [1] Float, train.py:31 in step": those that
    ``[str(call) for call in read("rank_0")[0]]`` gives of a record of notebook 01b. A rank
    that has stopped, or that goes on where the others have stopped, does something else,
    too.
    """
    longest = max(len(record) for record in records)
    # ? Call by call: what do most ranks do, and which one does not?
    for number in range(longest):
        calls = [record[number] if number < len(record) else None for record in records]
        most = max(calls, key=calls.count)
        for rank, call in enumerate(calls):
            if call != most:
                return number + 1, rank
