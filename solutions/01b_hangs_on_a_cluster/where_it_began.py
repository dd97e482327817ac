"""A hang in several groups: who waits for whom, and at which ranks do all these waits end?"""

import re

from tinydist.lab.author import Values, Wrong, alone, exercise, mistake
from tinydist.rules import ranks_in_words

MESH = {"world": [0, 1, 2, 3], "tp 0": [0, 1], "tp 1": [2, 3], "dp 0": [0, 2], "dp 1": [1, 3]}
STEP = ["tp", "dp", "world"]
FOUR = [0, 1, 2, 3]


def of_the_mesh(second, about):
    """All ranks of a mesh of 2 x 2 have made a step, and in the second one these calls."""
    records = []
    for rank, calls in enumerate(second):
        names = {"tp": f"tp {rank // 2}", "dp": f"dp {rank % 2}", "world": "world"}
        records.append([names[each] for each in STEP + calls])
    return hang(MESH, records, about)


def hang(members, records, about):
    return alone(lambda: ({name: list(ranks) for name, ranks in members.items()}, list(map(list, records))), about)


def test_cases():
    apart = {"left": [0, 1], "right": [2, 3], "own": [1], "world": FOUR}
    calls = [["world"], ["own"] * 5, ["right", "right", "world"], ["right", "right", "world"]]
    yield hang(apart, calls, "a rank that has called often, and has left")
    yield of_the_mesh([STEP, STEP, STEP, ["tp", "dp", "dp"]], "the hang of notebook 01b")
    left = [["tp", "dp"], ["tp", "dp"], [], ["tp"]]
    yield of_the_mesh(left, "a mesh that rank 2 has left after the first step")
    chain = {"ends": [0, 1], "middle": [1, 2], "others": [2, 3]}
    calls = [["ends"], ["middle"], ["others"], []]
    yield hang(chain, calls, "ranks that each wait for the next one, the last of which has left")
    circle = {"a": [0, 1], "b": [1, 2], "c": [2, 0], "world": FOUR}
    calls = [["world", "a"], ["world", "b"], ["world", "c"], ["world", "world"]]
    yield hang(circle, calls, "three ranks that wait in a circle, and a fourth that waits for them")
    yield hang(apart, [["left", "left"], ["left"], ["right"], []], "two hangs at once")
    calls = [["left"], ["left"], ["right"] * 2, ["right"]]
    yield hang(apart, calls, "two ranks that have ended, and two that hang")
    several = {"a": [1, 3], "b": [0, 1, 2], "c": [0, 1, 3]}
    yield hang(several, [["b"], ["c"], ["b"], ["a"]], "a rank that waits for two others, each of which waits for it")


def program(answer, members, records):
    began = answer(members, records)
    if not isinstance(began, list):
        raise Wrong(f"it should return a list of ranks, and returns {began!r}")
    return "ranks " + ", ".join(map(str, began))


class Ends(Values):
    def general(self, trial, right):
        """Of the first rank that is missing, or too much: for whom it waits, and who for it."""
        members, records = trial.case.arguments(0)
        mine, its = ({int(each) for each in re.findall(r"\d+", run.returned[0])} for run in (trial, right))
        waits = [
            [other for other in members[calls[-1]] if records[other].count(calls[-1]) < calls.count(calls[-1])]
            if calls
            else []
            for calls in records
        ]
        for rank in sorted(mine ^ its):
            by = [other for other, others in enumerate(waits) if rank in others]
            is_in = "is not in your list" if rank in its else "is in your list"
            whom, who = (ranks_in_words(each) if each else "nobody" for each in (waits[rank:] and waits[rank], by))
            return f"rank {rank} {is_in}. It waits for {whom}, and {who} {'wait' if len(by) > 1 else 'waits'} for it"
        return ""


@exercise(
    title="Several groups: where the hang began",
    minutes=10,
    difficulty=3,
    test_cases=test_cases,
    program=program,
    targets=[Ends("the ranks at which the waits end, in hangs of 4 ranks and up to 5 groups", whole=True)],
    mistakes=[
        mistake(
            "These are all ranks that somebody waits for. But some of them wait themselves, for ranks that are further "
            "on: follow the waits to their end",
            "if last and rank in waited_for:",
            "if rank in waited_for:",
        ),
        mistake(
            "The waits may also end in a circle: two ranks, or more, each of which waits for the next one. All of them "
            "belong to the answer",
            "not waits_for[rank] or rank in reached[rank]",
            "not waits_for[rank]",
        ),
        mistake(
            "A circle may have more than two ranks: each waits for the next one, and none for the one that waits for "
            "it. Follow the waits until they come back",
            "not waits_for[rank] or rank in reached[rank]",
            "all(rank in waits_for[other] for other in waits_for[rank])",
        ),
        mistake(
            "The circle is there, and the rank that has left is missing: who waits for nobody, and is waited for, is "
            "where the waits end, too",
            "not waits_for[rank] or rank in reached[rank]",
            "rank in reached[rank]",
        ),
        mistake(
            "Count the calls in the group in which the rank waits. How often others have called in all their groups "
            "says nothing",
            "records[other].count(group) < number",
            "len(records[other]) < len(calls)",
        ),
        mistake(
            "A rank waits for those that have called less often in the group. Who has called as often is there",
            "records[other].count(group) < number",
            "other != rank",
        ),
        mistake(
            "Nobody waits for these: they have come to their end, and the hang is elsewhere. Take only ranks that "
            "somebody waits for",
            "if last and rank in waited_for:",
            "if last:",
        ),
        mistake(
            "A rank may wait for several others, and only the first of them is followed: follow each",
            "left += waits_for[other]",
            "left += waits_for[other][:1]",
        ),
    ],
    hints=[
        "A rank waits in the group of its last call. For whom? For the members of this group that have called in it "
        "less often than the rank has.",
        "Draw an arrow from each rank to those that it waits for. Where do you get to from each rank, in one or more "
        "steps?",
        "At an end are the ranks that somebody waits for, and that either wait for nobody or come back to themselves "
        "along the arrows.",
    ],
    why="On a cluster a thousand ranks wait, and nearly all of them wait for somebody who waits. Look at those who do "
    "not wait at all, or who wait in a circle: compare their calls, line by line, with what their neighbors do.",
)
def where_it_began(members, records):
    """Return the sorted list of the ranks at which the hang began.

    ``members[group]`` lists the ranks of a group. ``records[rank]`` lists the calls of a
    rank in their order, each as the name of its group. A rank that hangs does so in the
    last of its calls: it waits for the members of that group that have called less often
    in it. If there are none, it does not wait (it has left, or does something else).
    Follow the waits: they end at a rank that waits for nobody, or in a circle of ranks.
    Return all ranks of such ends. (Where nobody waits for a rank, no wait ends at it.)
    """
    began = []
    # ? Who waits for whom? Where does one get to from each rank, step by step?
    waits_for = []
    for rank, calls in enumerate(records):
        waits_for.append([])
        if calls:
            group = calls[-1]
            number = calls.count(group)
            for other in members[group]:
                if records[other].count(group) < number:
                    waits_for[rank].append(other)

    reached, waited_for = [], set()
    for others in waits_for:
        found, left = set(), list(others)
        while left:
            other = left.pop()
            if other not in found:
                found.add(other)
                left += waits_for[other]
        reached.append(found)
        waited_for |= found

    for rank in range(len(records)):
        last = not waits_for[rank] or rank in reached[rank]
        if last and rank in waited_for:
            began.append(rank)
    # .
    return began
