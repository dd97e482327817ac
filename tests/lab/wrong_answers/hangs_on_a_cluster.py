"""Wrong answers to the exercises of 01b_hangs_on_a_cluster: each with the property that rejects it, and its words."""

import re

from lab.registered import collection

WRONG_ANSWERS, wrong = collection()

# who_is_missing


@wrong("who_is_missing", "runs", "make them numbers, with int")
def texts(lines):
    groups = {}
    for line in lines:
        group, rank, enqueued, _ = re.findall("[0-9]+", line)
        groups.setdefault(group, []).append((int(enqueued), rank))
    return {group: [rank for last, rank in ranks if last < max(ranks)[0]] for group, ranks in groups.items()}


@wrong("who_is_missing", "runs", "from the number of a group to a list of ranks")
def only_one_group(lines):
    numbers = [list(map(int, re.findall("[0-9]+", line))) for line in lines]
    return [rank for _, rank, enqueued, _ in numbers if enqueued < max(each[2] for each in numbers)]


@wrong("who_is_missing", "values", "rank 0 has called once too often")
def nobody_ever(lines):
    return {int(re.findall("[0-9]+", line)[0]): [] for line in lines}


@wrong("who_is_missing", "values", "sort the ranks that are missing")
def in_the_order_of_the_lines(lines):
    groups = {}
    for line in lines:
        group, rank, enqueued, completed = map(int, re.findall("[0-9]+", line))
        groups.setdefault(group, []).append((rank, enqueued, completed))
    missing = {}
    for group, ranks in groups.items():
        waits = 1 + max(completed for _, _, completed in ranks)
        late = [rank for rank, enqueued, _ in ranks if enqueued < waits]
        missing[group] = late if len(late) < len(ranks) else []
    return missing


# first_difference


@wrong("first_difference", "runs", "IndexError")
def no_such_call(records):
    for number in range(max(map(len, records))):
        calls = [record[number] for record in records]
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number + 1, rank


@wrong("first_difference", "runs", "zip(*records) ends")
def only_while_all_go_on(records):
    for number, calls in enumerate(zip(*records), start=1):
        most = max(calls, key=calls.count)
        for rank, call in enumerate(calls):
            if call != most:
                return number, rank


@wrong("first_difference", "values", "the rank is 0, where 2 is right")
def unlike_the_rank_before(records):
    for number in range(max(map(len, records))):
        calls = [record[number] if number < len(record) else None for record in records]
        for rank, call in enumerate(calls):
            if call != calls[rank - 1]:
                return number + 1, rank


@wrong("first_difference", "runs", "take None for the call that it does not make")
def the_last_call_again(records):
    longest = max(len(record) for record in records)
    for number in range(longest):
        calls = [record[number] if number < len(record) else record[-1] for record in records]
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number + 1, rank


@wrong("first_difference", "runs", "records in which rank 3 stops")
def up_to_the_shortest(records):
    for number, calls in enumerate(zip(*records), start=1):
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number, rank
    shortest = min(records, key=len)
    return len(shortest), records.index(shortest)


# where_it_began


@wrong("where_it_began", "values", "the hang of notebook 01b")
def the_rank_for_which_most_wait(members, records):
    votes = [0] * len(records)
    for calls in filter(None, records):
        for other in members[calls[-1]]:
            votes[other] += records[other].count(calls[-1]) < calls.count(calls[-1])
    return [votes.index(max(votes))]


@wrong("where_it_began", "values", "It waits for rank 1, and nobody waits for it")
def who_has_called_least(members, records):
    fewest = min(map(len, records))
    return [rank for rank, calls in enumerate(records) if len(calls) == fewest]


@wrong("where_it_began", "runs", "RecursionError")
def walks_in_circles(members, records):
    def ends(rank):
        group = records[rank][-1] if records[rank] else "world"
        number = records[rank].count(group)
        missing = [other for other in members[group] if records[other].count(group) < number]
        return set().union(*map(ends, missing)) if missing else {rank}

    return sorted(set().union(*map(ends, range(len(records)))))
