"""Reading the watchdog: which ranks have not come to the call for which the others wait?"""

import re

from tinydist.lab.author import Values, Wrong, alone, exercise, mistake
from tinydist.rules import ranks_in_words


def said(group, enqueued, completed, ranks=None):
    """The watchdog's lines of one group: of each rank the numbers of its last calls."""
    ranks = range(len(enqueued)) if ranks is None else ranks
    return [
        f"[PG {group} Rank {rank}] last enqueued NCCL work: {last}, last completed NCCL work: {done}."
        for rank, last, done in zip(ranks, enqueued, completed)
    ]


def hang(lines, about):
    return alone(lambda: (list(lines),), about)


def test_cases():
    yield hang(said(0, [4, 3, 3, 3], [3, 3, 3, 3]), "lines of a job in which rank 0 has called once too often")
    yield hang(said(0, [7, 7, 6, 7], [6, 6, 6, 6]), "lines of a job in which one rank does not come")
    yield hang(said(0, [12, 12, 11, 12], [11, 11, 11, 11]), "lines with numbers of two digits")
    yield hang(said(1, [1516, 1517], [1515, 1516]), "lines of ranks that wait in different calls")
    yield hang(said(0, [40, 46, 51, 39], [39, 39, 39, 39]), "lines of ranks whose programs run ahead of their GPUs")
    yield hang(said(0, [9, 12, 9], [8, 8, 8]), "lines of a job in which all have come")
    yield hang(said(0, [5, 5, 5], [5, 4, 5]), "lines of ranks that have gone on, but for one that waits")
    two = said(0, [12, 12, 11, 12], [11, 11, 11, 11]) + said(3, [90, 90], [90, 90], ranks=[2, 3])
    yield hang(two, "lines of two groups, in one of which nobody waits")
    three = said(0, [2, 1, 2, 1], [1, 1, 1, 1]) + said(2, [2, 3], [2, 2], ranks=[1, 3]) + said(1, [2, 2], [2, 2])
    yield hang([three[place] for place in (5, 2, 7, 0, 4, 3, 6, 1)], "lines of three groups, in any order")


def program(answer, lines):
    missing = answer(lines)
    if not isinstance(missing, dict):
        raise Wrong("it should return a dict, from the number of a group to a list of ranks: {0: [1, 2, 3]}")
    if any(isinstance(each, str) for ranks in ([missing], missing.values()) for some in ranks for each in some):
        raise Wrong("the numbers of groups and ranks are texts here: make them numbers, with int")
    return {f"group {group}": in_words(missing[group]) for group in sorted(missing)}


def in_words(ranks):
    return ", ".join(map(str, ranks)) or "nobody"


class Missing(Values):
    def mistaken(self, exercise, trial, right, earlier=()):
        """That nobody is missing tells little: many mistakes lead to it."""
        found = super().mistaken(exercise, trial, right, earlier)
        return {} if set(trial.returned[0].values()) == {"nobody"} and 2 not in found else found

    def general(self, trial, right):
        """For which call the first group waits in which it is wrong, and who has enqueued that."""
        (lines,) = trial.case.arguments(0)
        for name, names in right.returned[0].items():
            if trial.returned[0].get(name) != names:
                group = int(name.removeprefix("group "))
                ranks = [
                    each for each in (tuple(map(int, re.findall(r"\d+", line))) for line in lines) if each[0] == group
                ]
                call = max(each[3] for each in ranks) + 1
                have = sorted(rank for _, rank, enqueued, _ in ranks if enqueued >= call)
                return (
                    f"{name} waits for call {call}: it is the first that no rank has completed. "
                    f"{ranks_in_words(have).capitalize() if have else 'Nobody'} {'has' if len(have) < 2 else 'have'} "
                    "enqueued it"
                )
        return ""


@exercise(
    title="Read the lines of the watchdog",
    minutes=10,
    difficulty=1,
    test_cases=test_cases,
    program=program,
    targets=[Missing("for each group, the ranks that have not come, of jobs of 2 to 4 ranks", whole=True)],
    mistakes=[
        mistake(
            "So all ranks are missing, or none. A call that a rank has not completed it may have called all the same: "
            "it waits in it. Those are missing "
            "who have not even enqueued it",
            "[rank for rank, enqueued, _ in ranks if enqueued < waits]",
            "[rank for rank, _, completed in ranks if completed < waits]",
        ),
        mistake(
            "A program runs ahead of its GPU, and enqueues many calls before the first of them has ended. The "
            "group waits in the call after the last that anybody has completed, and not "
            "in the last that any has enqueued",
            "max(completed for _, _, completed in ranks) + 1",
            "max(enqueued for _, enqueued, _ in ranks)",
        ),
        mistake(
            "The group waits for the first call that none of its ranks has completed. This is the first that not all "
            "have completed: a rank that is ahead has been through it",
            "max(completed for _, _, completed in ranks) + 1",
            "min(completed for _, _, completed in ranks) + 1",
        ),
        mistake(
            "Numbers have several digits: take whole numbers, and not digits",
            'map(int, re.findall(r"\\d+", line))',
            'map(int, re.findall(r"\\d", line)[:4])',
        ),
        mistake(
            "Where nobody has enqueued the next call, nobody waits for it, and nobody is missing",
            "if len(missing[group]) == len(ranks):",
            "if False:",
        ),
        mistake(
            "Each group counts its calls for itself: compare only numbers of the same group",
            "max(completed for _, _, completed in ranks)",
            "max(completed for others in groups.values() for _, _, completed in others)",
        ),
        mistake(
            "The lines come in any order: sort the ranks that are missing",
            "sorted([rank for rank, enqueued, _ in ranks if enqueued < waits])",
            "[rank for rank, enqueued, _ in ranks if enqueued < waits]",
        ),
        mistake(
            "These are the ranks that have come, where those are asked for that have not",
            "enqueued < waits]",
            "enqueued >= waits]",
        ),
    ],
    hints=[
        "A line has four numbers: of the group, of the rank, of its last enqueued call and of its last completed one. "
        're.findall(r"\\d+", line) finds them, as texts.',
        "Collect the lines of each group. Which call is the first that no rank of the group has completed?",
        "Who has enqueued that call waits in it, or will. Who has not is missing; but if nobody has enqueued it, "
        "nobody waits there.",
    ],
    why="A thousand ranks write a thousand lines, and most of them are of ranks that waited, while the ranks to look "
    "at are those that did not come. An empty list is an answer, too: all have come, so look for different "
    "sizes, a broken link, or a program that died in the call.",
)
def who_is_missing(lines):
    """Return a dict: for each group, by its number, the sorted list of the ranks that are
    missing in the call for which the group waits.

    ``lines`` are those of the watchdog, one of each rank of each group, in any order:
    "[PG 0 Rank 2] last enqueued NCCL work: 3, last completed NCCL work: 3." A group waits
    for the first call that none of its ranks has completed. Missing are the ranks that
    have not enqueued it. If no rank has enqueued it, nobody waits: the list is empty.
    """
    groups, missing = {}, {}
    # ? Which numbers has each group? Which call does it wait for, and who has not come?
    for line in lines:
        group, rank, enqueued, completed = map(int, re.findall(r"\d+", line))
        groups.setdefault(group, []).append((rank, enqueued, completed))
    for group, ranks in groups.items():
        waits = max(completed for _, _, completed in ranks) + 1
        missing[group] = sorted([rank for rank, enqueued, _ in ranks if enqueued < waits])
        if len(missing[group]) == len(ranks):
            missing[group] = []  # nobody has called it yet
    # .
    return missing
