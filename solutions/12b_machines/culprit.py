"""Who keeps a job from going on? Flight Recorders of all ranks, whose groups wait for one another."""

from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

from .records import MANY, run


def case(about, *size, **how):
    return alone(lambda: run(*size, **how), f"{size[0] * size[1]} ranks as {size[0]} x {size[1]}, {about}")


def stops(number):
    return lambda calls: calls[:number]


def takes(number, *call):
    return lambda calls: [*calls[:number], call, *calls[number + 1 :]]


def another(number):
    return takes(number, "tp", "all_reduce", MANY)


def drawn(seed):
    """Slow ranks, and mostly one that stops."""
    draw = Random(seed)
    outer, inner = draw.choice([(2, 3), (3, 2), (2, 4), (3, 3), (2, 3)])
    ranks = range(outer * inner)
    slow = {(draw.choice(ranks), draw.randrange(18)): draw.randint(2, 90) for _ in range(8)}
    changed = {draw.choice(ranks): stops(draw.randint(1, 14))} if seed % 4 else {}
    about = "several slow, and one stops" if changed else "several slow, and all come to all calls"
    return case(about, outer, inner, 3, changed=changed, slow=slow)


def test_cases():
    yield case("one of which stops", 1, 4, 3, changed={2: stops(7)})
    yield case("one of which stops", 2, 3, 3, changed={4: stops(8)})
    yield case("one of which stops, and another is slow", 2, 3, 2, changed={4: stops(3)}, slow={(3, 2): 50})
    yield case("one of which stops, and one is slow to wait for it", 2, 3, 2, changed={4: stops(3)}, slow={(5, 3): 50})
    yield case("one of which stops before a call along dp", 3, 3, 2, changed={3: stops(4)})
    yield case("one of which has never called anything", 3, 2, 1, changed={5: stops(0)})
    yield case("one of which stops, and older calls are dropped", 3, 2, 4, changed={0: stops(15)}, kept=7)
    yield case("one of which calls another operation", 2, 4, 3, changed={0: another(8)})
    yield case("one of which has another size", 4, 2, 3, changed={6: takes(10, "dp", "all_reduce", [[4095]])})
    yield case("one calls another operation, and one has not come", 2, 4, 3, changed={0: another(8), 3: stops(8)})
    yield case("one of which leaves out a call", 3, 3, 3, changed={7: lambda calls: calls[:7] + calls[8:]}, kept=9)
    yield case("and all come to all calls", 2, 2, 3, slow={(3, 6): 40})
    yield case("and all come to all calls", 2, 3, 4, slow={(1, 3): 2, (1, 9): 4, (1, 15): 3, (1, 20): 2, (5, 12): 7})
    yield case("and all come to all calls", 4, 2, 4, slow={(0, 4): 300, (6, 8): 5, (6, 14): 30, (2, 3): 9}, kept=20)
    yield case("and all come to all calls", 1, 3, 2, slow={(1, 3): 20, (2, 3): 21, (0, 6): 5})
    yield from map(drawn, range(24))


ABSENT = "last.get((rank, group), 0) < number"
KINDS = '(entry["profiling_name"], entry["input_sizes"])'
COSTS = "sum(cost for cost, *_ in waits[rank])"


class Named(Varied):
    """A mistake is told if all four are what it gives; else, whether the one that is named waits itself."""

    def __init__(self, *arguments, variants):
        super().__init__(*arguments, whole=True, variants=variants)

    def general(self, trial, right):
        (records, groups), (what, rank, *_), its = trial.arguments[0], trial.returned[0], right.returned[0]
        if not what == its[0] == "missing" or rank == its[1] or rank not in range(len(records)) or not records[rank]:
            return ""
        group, call = ids(records[rank][-1])
        absent = [f"rank {r}" for r in groups[group] if (group, call) not in map(ids, records[r])]
        return f"Rank {rank} waits itself, in call {call} of {group}, for {' and '.join(absent)}" if absent else ""


def ids(entry):
    return entry["process_group"], entry["collective_seq_id"]


@exercise(
    title="Name the culprit",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own reading", "read the records yourself", ("tinydist.diagnose",)),
        Named(
            "in records of 3 to 9 ranks in several groups",
            ["the verdict", "the rank", "the group", "the call"],
            variants=[
                ("This rank calls what most call: name the one that does not", "if kind != most:", "if kind == most:"),
                ("Sizes have to fit, too, and not the operation alone", KINDS, '(entry["profiling_name"],)'),
                ("Operations have to fit, too, and not the sizes alone", KINDS, 'entry["input_sizes"]'),
                (
                    "A call that does not fit comes before all else: here somebody who is missing is looked for first",
                    "if kind != most:",
                    "if kind != most and len(there) == len(groups[group]):",
                ),
                (
                    "Of the calls that wait for the rank, the one is asked for in which somebody has waited longest: "
                    "so the "
                    "first who came counts, and not the last",
                    "since = min(",
                    "since = max(",
                ),
                (
                    "Of the calls that wait for the rank, the one is asked for in which somebody has waited longest, "
                    "and not "
                    "the first that is found",
                    "in sorted(missing)",
                    "in missing",
                ),
                (
                    "Of the calls that wait for the rank, the one is asked for in which somebody has waited longest, "
                    "and not "
                    "the one with the smallest number",
                    "in sorted(missing)",
                    "in sorted(missing, key=lambda each: (each[3], each))",
                ),
                (
                    "A rank costs what it costs in all calls together, and not in its worst",
                    COSTS,
                    "max((cost for cost, *_ in waits[rank]), default=0)",
                ),
                (
                    "A rank costs what the next-to-last waits, and not what all others wait together",
                    "latest[0] - before[0]",
                    "sum(latest[0] - entry['time_created_ns'] for entry in there.values())",
                ),
                (
                    "The call is asked for in which the rank costs most, and not its first",
                    "= max(waits[rank])",
                    "= waits[rank][0]",
                ),
                (
                    "The call is asked for in which the rank costs most, and not its last",
                    "= max(waits[rank])",
                    "= waits[rank][-1]",
                ),
                (
                    "Calls that some have dropped do not count: nobody knows when those came",
                    "len(there) == len(groups[group]) > 1",
                    "len(there) > 1",
                ),
                (
                    "This is the next-to-last: the last one keeps the others waiting",
                    "waits[latest[1]]",
                    "waits[before[1]]",
                ),
                (
                    "Only a rank that calls less than others is looked for: where all came, somebody is late",
                    "if rank not in waiting:",
                    "if rank not in waiting or rank in {each[1] for each in missing[:1]}:",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "This rank has not come, but it is a victim: it stands in a call of another group, and waits there for "
            "somebody. Follow the chain to one that waits nowhere",
            "        if rank not in waiting:\n",
            "        if True:\n",
        ),
        mistake(
            "This rank waits: others have not come to its call. Who has not?",
            '        if rank not in waiting:\n            return "missing", rank, group, number',
            '        return "missing", made[group, number].popitem()[0], group, number',
        ),
        mistake(
            "Old calls are dropped from a record when it is full, and are no sign that a rank did not come: its last "
            "call in the group tells how far it is",
            ABSENT,
            "rank not in there",
        ),
        mistake(
            "Several calls wait for this rank. The one that is asked for is where somebody has waited longest",
            "in sorted(missing)",
            "in sorted(missing, reverse=True)",
        ),
        mistake(
            "The rank with the smallest number may be the one that is wrong: compare with what most of the group call",
            "most = max(kinds.values(), key=list(kinds.values()).count)",
            "most = kinds[min(kinds)]",
        ),
        mistake(
            "This one comes last most often. The one that costs most in all may do so in a single call",
            COSTS,
            "len(waits[rank])",
        ),
        mistake(
            "This is who came first. The first waits longest, for whoever comes last",
            "sorted((entry",
            "sorted((-entry",
        ),
        mistake(
            "What the last one costs is what the next-to-last waits. The first has waited for several ranks, and "
            "without the last one it would have waited for the others",
            "*_, before, latest = sorted",
            "before, *_, latest = sorted",
        ),
    ],
    hints=[
        "Sort all entries by group and call. To which calls have not all members come? Who is in such a call waits.",
        "A member is missing from a call if its last one in that group has a smaller number. Of those that are "
        "missing, one waits nowhere.",
        "If nobody is missing and all fits: sort each call's members by time. What the last takes longer than the "
        "next-to-last is what it costs the others.",
    ],
    why="A hang shows in the groups of its victims, too: with 3 axes one rank stops thousands, and most lines of a "
    "dump are about ranks that wait. torchfrtrace and `python -m tinydist diagnose` go through them group by group.",
)
def culprit(records, groups):
    """Name who keeps a job from going on: return (what, rank, group, call).

    ``records[rank]`` is what a rank's Flight Recorder has, in a short form, in the order of its calls: dicts of
    "process_group", "collective_seq_id" (the number of the call in that group, from 1), "profiling_name",
    "input_sizes" and "time_created_ns", when it was called. Records hold so many entries: the oldest may be dropped.
    ``groups`` tells the ranks of each group. A rank calls one collective at a time, and waits until all of the group
    have come, and fit.

    "mismatch" it is if a call does not fit: name the rank whose operation or sizes are not those of most, and the call.

    "missing", if somebody does not come: the rank that is missing and waits for nobody itself. Of the calls that wait
    for it, name the one in which somebody has waited longest.

    "late", if all came to all calls, and all fit. In each call the last rank costs what the next-to-last waits; calls
    that some have dropped do not count. Name the rank that costs most in all, and the call in which it costs most.
    """
    made, last = {}, {}
    for rank, entries in enumerate(records):
        for entry in entries:
            call = entry["process_group"], entry["collective_seq_id"]
            made.setdefault(call, {})[rank] = entry
            last[rank, entry["process_group"]] = entry["collective_seq_id"]

    # ? Does a call not fit?
    for (group, number), there in sorted(made.items()):
        kinds = {rank: (entry["profiling_name"], entry["input_sizes"]) for rank, entry in there.items()}
        most = max(kinds.values(), key=list(kinds.values()).count)
        for rank, kind in kinds.items():
            if kind != most:
                return "mismatch", rank, group, number
    # ? Who is missing, and who of them waits for nobody?
    waiting, missing = set(), []
    for (group, number), there in made.items():
        absent = [rank for rank in groups[group] if last.get((rank, group), 0) < number]
        if absent:
            waiting |= there.keys()
            since = min(entry["time_created_ns"] for entry in there.values())
            missing += [(since, rank, group, number) for rank in absent]
    for _, rank, group, number in sorted(missing):
        if rank not in waiting:
            return "missing", rank, group, number
    # ? Who costs the others most?
    waits = {rank: [] for rank in range(len(records))}
    for (group, number), there in made.items():
        if len(there) == len(groups[group]) > 1:
            *_, before, latest = sorted((entry["time_created_ns"], rank) for rank, entry in there.items())
            waits[latest[1]].append((latest[0] - before[0], group, number))
    rank = max(waits, key=lambda rank: sum(cost for cost, *_ in waits[rank]))
    _, group, number = max(waits[rank])
    return "late", rank, group, number
