"""What Flight Recorders have of a run on a mesh, in which a rank may stop, be slow, or call something else."""

MILLISECOND = 10**6
FEW, MANY = [[16]], [[4096]]


def mesh(outer, inner):
    """Groups of neighbors, and those across."""
    rows = [[row * inner + place for place in range(inner)] for row in range(outer)]
    return {f"tp {row}": each for row, each in enumerate(rows)} | {
        f"dp {place}": [row[place] for row in rows] for place in range(inner)
    }


def step(tp, dp):
    """What a rank calls in a step: (axis, operation, sizes)."""
    forward = [("tp", "all_gather", MANY), ("tp", "reduce_scatter", MANY)] if tp > 1 else []
    return forward * 2 + [("dp", "all_reduce", MANY), ("dp", "all_reduce", FEW)] * (dp > 1)


def run(outer, inner, steps, changed=None, slow=None, kept=None):
    """Records by rank: a rank makes its next call when all have come to the one before, and fit. ``changed``: rank ->
    its calls, from those of the others. ``slow``: (rank, place of its call) -> milliseconds before it. ``kept``:
    entries of a record; some have a few less."""
    groups, ranks = mesh(outer, inner), range(outer * inner)
    calls = {rank: step(inner, outer) * steps for rank in ranks}
    for rank, change in (changed or {}).items():
        calls[rank] = change(calls[rank])
    records, clock, counts, meetings = [[] for _ in ranks], dict.fromkeys(ranks, 5.0), {}, {}
    goes_on = set(ranks)
    while goes_on:
        for rank in sorted(goes_on):
            goes_on.discard(rank)
            if len(records[rank]) == len(calls[rank]):
                continue
            axis, operation, sizes = calls[rank][len(records[rank])]
            group = f"tp {rank // inner}" if axis == "tp" else f"dp {rank % inner}"
            clock[rank] += (slow or {}).get((rank, len(records[rank])), 0) + 0.25 + 0.01 * (5 * rank % 7)
            number = counts[rank, group] = counts.get((rank, group), 0) + 1
            records[rank].append(entry(group, number, operation, sizes, clock[rank]))
            there = meetings.setdefault((group, number), {})
            there[rank] = operation, sizes
            if len(there) == len(groups[group]) and all(each == there[rank] for each in there.values()):
                latest = max(clock[each] for each in there)
                clock |= dict.fromkeys(there, latest)
                goes_on |= there.keys()
    return [each[3 * (rank % 3) - kept :] if kept else each for rank, each in enumerate(records)], groups


def entry(group, number, operation, sizes, milliseconds):
    return {
        "process_group": group,
        "collective_seq_id": number,
        "profiling_name": operation,
        "input_sizes": sizes,
        "time_created_ns": round(milliseconds * MILLISECOND),
    }
