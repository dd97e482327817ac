"""The shortest schedule there is, by trying every order of a few passes. Microbatches are alike, so they go in turn."""

from math import inf


def shortest(problem):
    """Seconds. Of states with the same passes done, one that is nowhere earlier than another is dropped."""
    stages, kinds = len(problem.placement), 3 if problem.halves else 2
    states = {((0,) * stages,) * 3: [((0.0,) * problem.ranks, ((),) * stages, ((),) * stages)]}
    for _ in range(kinds * stages * problem.microbatches):
        following = {}
        for done, times in states.items():
            for time in times:
                for key, new in after(problem, done, time):
                    keep(following.setdefault(key, []), new)
        states = following
    return min((max(free) for times in states.values() for free, _, _ in times), default=inf)


def keep(times, new):
    if not any(no_later(old, new) for old in times):
        times[:] = [old for old in times if not no_later(new, old)] + [new]


def no_later(one, other):
    return all(a <= b + 1e-12 for a, b in zip(flat(one), flat(other)))


def flat(time):
    free, inputs, gradients = time
    return [*free, *[moment for each in inputs + gradients for moment in each]]


def after(problem, done, time):
    """What can come next: how many F, B or I, W of each stage are done; when ranks are free, results there."""
    forwards, backwards, weights = done
    free, inputs, gradients = time
    released = weights if problem.halves else backwards
    for stage, rank in enumerate(problem.placement):
        held = sum(forwards[s] - released[s] for s, there in enumerate(problem.placement) if there == rank)
        begun = inputs[stage] or ((0.0,) if stage == 0 else ())
        if forwards[stage] < problem.microbatches and begun and held + 1 <= problem.room[rank]:
            end = max(free[rank], begun[0]) + problem.seconds["F"][stage]
            left = inputs if stage == 0 else put(inputs, stage, inputs[stage][1:])
            last = stage == len(problem.placement) - 1
            to = stage if last else stage + 1
            results = hand_on(problem, gradients if last else left, rank, to, end)
            new = (left, results) if last else (results, gradients)
            yield (add(forwards, stage), backwards, weights), (put(free, rank, end), *new)
        if gradients[stage]:
            end = max(free[rank], gradients[stage][0]) + problem.seconds[problem.backward][stage]
            left = put(gradients, stage, gradients[stage][1:])
            left = hand_on(problem, left, rank, stage - 1, end) if stage else left
            yield (forwards, add(backwards, stage), weights), (put(free, rank, end), inputs, left)
        if problem.halves and weights[stage] < backwards[stage]:
            end = free[rank] + problem.seconds["W"][stage]
            yield (forwards, backwards, add(weights, stage)), (put(free, rank, end), inputs, gradients)


def hand_on(problem, results, rank, stage, end):
    moment = end + problem.costs.message * (problem.placement[stage] != rank)
    return put(results, stage, (*results[stage], moment))


def put(values, at, value):
    return values[:at] + (value,) + values[at + 1 :]


def add(counts, at):
    return put(counts, at, counts[at] + 1)
