"""Other right answers to the exercises of 01b_hangs_on_a_cluster: they must pass."""

import re
from collections import Counter, defaultdict
from itertools import zip_longest

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("who_is_missing")
def by_a_table(lines):
    table = defaultdict(dict)
    for line in lines:
        found = re.search(r"PG (\d+) Rank (\d+)\D+(\d+)\D+(\d+)", line)
        group, rank, enqueued, completed = map(int, found.groups())
        table[group][rank] = enqueued, completed
    missing = {}
    for group, ranks in table.items():
        ended = max(completed for _, completed in ranks.values())
        called = {rank for rank, (enqueued, _) in ranks.items() if enqueued > ended}
        missing[group] = [rank for rank in sorted(ranks) if called and rank not in called]
    return missing


@right("who_is_missing")
def by_the_last_word(lines):
    numbers = [[int(each) for each in re.findall("[0-9]+", line)] for line in lines]
    missing = {group: [] for group, *_ in numbers}
    for group, rank, enqueued, _ in numbers:
        of_group = [each for each in numbers if each[0] == group]
        ended = max(each[3] for each in of_group)
        if enqueued <= ended < max(each[2] for each in of_group):
            missing[group].append(rank)
    return {group: sorted(ranks) for group, ranks in missing.items()}


@right("first_difference")
def by_counting(records):
    for number, calls in enumerate(zip_longest(*records), start=1):
        counts = Counter(calls)
        if len(counts) > 1:
            return number, calls.index(min(counts, key=counts.get))


@right("first_difference")
def the_odd_one_first(records):
    odd = next(rank for rank, record in enumerate(records) if records.count(record) == 1)
    other = records[odd - 1]
    number = 0
    while number < min(len(records[odd]), len(other)) and records[odd][number] == other[number]:
        number += 1
    return number + 1, odd


@right("first_difference")
def with_ends_marked(records):
    longest = max(map(len, records))
    filled = [record + ["stopped"] * (longest - len(record)) for record in records]
    for number in range(longest):
        for rank in range(len(filled)):
            differing = sum(other[number] != filled[rank][number] for other in filled)
            if differing == len(filled) - 1:
                return [number + 1, rank]


def missing_for(rank, members, records):
    if not records[rank]:
        return set()
    group = records[rank][-1]
    come = {other: records[other].count(group) for other in members[group]}
    return {other for other in come if come[other] < come[rank]}


@right("where_it_began")
def by_rounds(members, records):
    """So many rounds that the longest way ends in them."""
    ranks = range(len(records))
    direct = [missing_for(rank, members, records) for rank in ranks]
    reached = direct
    for _ in ranks:
        reached = [direct[rank].union(*(reached[other] for other in direct[rank])) for rank in ranks]
    ends = set().union(*reached)
    return sorted(rank for rank in ends if rank in reached[rank] or not direct[rank])


@right("where_it_began")
def by_recursion(members, records):
    direct = [missing_for(rank, members, records) for rank in range(len(records))]

    def visit(rank, seen):
        for other in direct[rank]:
            if other not in seen:
                seen.add(other)
                visit(other, seen)
        return seen

    began = set()
    for rank in range(len(records)):
        for end in visit(rank, set()):
            if not direct[end] or end in visit(end, set()):
                began.add(end)
    return sorted(began)
