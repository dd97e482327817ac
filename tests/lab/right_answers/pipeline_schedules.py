"""Other right answers to the exercises of 08b_pipeline_schedules: they must pass."""

from collections import deque

import torch
from lab.registered import others

from tinydist.pipeline_parallel import Action

RIGHT_ANSWERS, right = others()


# interleaved


@right("interleaved")
def numbered_as_by_megatron(rank, ranks, microbatches, chunks):
    """The k-th forward and the k-th backward, by arithmetic."""

    def action(kind, k):
        group, place = divmod(k, ranks * chunks)
        chunk, within = divmod(place, ranks)
        chunk = chunk if kind == "F" else chunks - 1 - chunk
        return f"{chunk * ranks + rank}{kind}{group * ranks + within}"

    total = microbatches * chunks
    ahead = min(total, 2 * (ranks - rank - 1) + (chunks - 1) * ranks)
    for k in range(total + ahead):
        if k < total:
            yield action("F", k)
        if k >= ahead:
            yield action("B", k - ahead)


@right("interleaved")
def sorted_by_group_and_stage(rank, ranks, microbatches, chunks):
    passes = [(m // ranks, chunk, m) for m in range(microbatches) for chunk in range(chunks)]
    forwards = [f"{chunk * ranks + rank}F{m}" for _, chunk, m in sorted(passes)]
    backwards = [f"{chunk * ranks + rank}B{m}" for _, chunk, m in sorted(passes, key=lambda p: (p[0], -p[1], p[2]))]
    ahead = (chunks - 1) * ranks + 2 * (ranks - 1 - rank)
    actions = forwards[:ahead]
    for forward in forwards[ahead:]:
        actions += [forward, backwards.pop(0)]
    return actions + backwards


@right("interleaved")
def two_queues(rank, ranks, microbatches, chunks):
    def order(chunks_in_turn):
        for first in range(0, microbatches, ranks):
            for chunk in chunks_in_turn:
                for each in range(ranks):
                    yield chunk * ranks + rank, first + each

    forwards, backwards = deque(order(range(chunks))), deque(order(range(chunks)[::-1]))
    held, room = 0, (chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1
    while backwards:
        if forwards and held < room:
            yield Action(forwards[0][0], "F", forwards.popleft()[1])
            held += 1
        else:
            yield Action(backwards[0][0], "B", backwards.popleft()[1])
            held -= 1


# least_bubble


@right("least_bubble")
def all_programs_at_once(rank, ranks, microbatches, budget, message):
    """Second by second, of all ranks, and then one of them."""
    ends, programs, counts = {}, [[] for _ in range(ranks)], [dict.fromkeys("FIW", 0) for _ in range(ranks)]
    now = 0
    while len(programs[rank]) < 3 * microbatches:
        for r, count in enumerate(counts):
            away = (ranks - 1 - r) * (1 + message)
            room = min(microbatches, count["I"] + 1 + away, count["W"] + budget)
            late = now - message
            can = {
                "F": count["F"] < room and (r == 0 or ends.get((r - 1, "F", count["F"]), now) < late),
                "I": count["I"] < count["F"] and (r == ranks - 1 or ends.get((r + 1, "I", count["I"]), now) < late),
                "W": count["W"] < count["I"],
            }
            for kind in [kind for kind in "FIW" if can[kind]][:1]:
                programs[r].append(f"{r}{kind}{count[kind]}")
                ends[r, kind, count[kind]] = now
                count[kind] += 1
        now += 1
    return programs[rank]


@right("least_bubble")
def whole_backwards_where_nobody_waits(rank, ranks, microbatches, budget, message):
    """No rank waits for the gradient of the first stage's input: I and W in a row are as well one B."""
    actions = list(all_programs_at_once(rank, ranks, microbatches, budget, message))
    merged = []
    for action in actions:
        if rank == 0 and merged and merged[-1] == action.replace("W", "I") != action:
            merged[-1] = action.replace("W", "B")
        else:
            merged.append(action)
    return merged


# end_of_step


@right("end_of_step")
def each_rank_asks_when_it_may_begin_again(begins, ends, optimizer, redo):
    last = max(ends)
    before = max(last + optimizer - begin for begin in begins)
    after = max(ends[rank] + optimizer - begins[rank] for rank in range(len(begins)))
    gained = before - after
    return before, after, 1.0 if gained > redo else gained / redo


# missing_seconds


@right("missing_seconds")
def by_the_normal_equations(steps, ranks, sequences):
    rows, measured = [], []
    for microbatches, stages, busy, bubble, samples in steps:
        rows.append([busy * microbatches / (1 - bubble), microbatches * stages * 2, 1])
        measured.append(microbatches * sequences / (ranks * samples))
    rows, measured = torch.tensor(rows, dtype=torch.float64), torch.tensor(measured, dtype=torch.float64)
    causes = torch.linalg.solve(rows.T @ rows, rows.T @ measured)
    errors = (rows @ causes / measured - 1).tolist()
    return (*causes.tolist(), sorted(errors, key=abs)[-1])
