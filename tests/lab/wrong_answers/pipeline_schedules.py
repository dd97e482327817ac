"""Wrong answers to the exercises of 08b_pipeline_schedules: each with the property that rejects it, and its words."""

from itertools import count

from lab.registered import collection, solved

from tinydist.pipeline_parallel import Costs, analyze, make_schedule, with_steps

WRONG_ANSWERS, wrong = collection()


# interleaved


@wrong("interleaved", "runs", "no actions")
def nothing_at_all(rank, ranks, microbatches, chunks):
    yield from ()


@wrong("interleaved", "verified", "rank 0 does 1F0 at step 2")
def stages_side_by_side(rank, ranks, microbatches, chunks):
    for each in solved("interleaved")(rank, ranks, microbatches, chunks):
        stage, kind, microbatch = (int(each[0]), each[1], each[2:])
        yield f"{rank * chunks + stage // ranks}{kind}{microbatch}"


@wrong(
    "interleaved",
    "memory",
    "4 of stage 0 in a row",
)
def breadth_first(rank, ranks, microbatches, chunks):
    forwards = [f"{stage}F{each}" for stage in range(rank, chunks * ranks, ranks) for each in range(microbatches)]
    return forwards + [action.replace("F", "B") for action in forwards[::-1]]


@wrong("interleaved", "own work", "schedules")
def librarys_interleaved(rank, ranks, microbatches, chunks):
    return make_schedule("interleaved 1F1B", ranks, microbatches, chunks).programs[rank]


@wrong("interleaved", "verified", "ranks=2, microbatches=4, chunks=3")
def two_stages_only(rank, ranks, microbatches, chunks):
    return solved("interleaved")(rank, ranks, microbatches, 2)


# least_bubble


def h1(rank, ranks, microbatches, held, owed=None):
    """ZB-H1 with ``held`` activations on every rank."""
    ahead = min(ranks - 1 - rank, held - 1, microbatches)
    owed = min(held - 1 - ahead if owed is None else owed, microbatches - ahead)
    passes = "F" * ahead + "FI" * owed + "FIW" * (microbatches - ahead - owed) + "IW" * ahead + "W" * owed
    turn = {kind: count() for kind in "FIW"}
    return [f"{rank}{kind}{next(turn[kind])}" for kind in passes]


def listed(rank, ranks, microbatches, budget, step):
    """As the notebook's scheduler, which knows of no messages: a stage is ``step`` ahead of each that follows."""
    free, held, done = [0] * ranks, [0] * ranks, {(-1, "F", each): 0 for each in range(microbatches)}
    turn, programs = {(stage, kind): 0 for stage in range(ranks) for kind in "FIW"}, [[] for _ in range(ranks)]

    def source(stage, kind, microbatch):
        last = {"F": (stage - 1, "F"), "W": (stage, "I"), "I": (stage, "F") if stage == ranks - 1 else (stage + 1, "I")}
        return *last[kind], microbatch

    def may(stage, kind):
        ahead = turn[stage, "F"] - turn[stage, "I"]
        return kind != "F" or (held[stage] < budget and ahead < 1 + step * (ranks - 1 - stage))

    while ready := [
        (max(free[stage], done[source(stage, kind, each)]), "FIW".index(kind), -stage, (stage, kind, each))
        for (stage, kind), each in turn.items()
        if each < microbatches and source(stage, kind, each) in done and may(stage, kind)
    ]:
        begin, *_, (stage, kind, each) = min(ready)
        free[stage] = done[stage, kind, each] = begin + 1
        programs[stage].append(f"{stage}{kind}{each}")
        turn[stage, kind] += 1
        held[stage] += (kind == "F") - (kind == "W")
    return programs[rank]


@wrong("least_bubble", "runs", "nothing (None)")
def no_design(rank, ranks, microbatches, budget, message):
    pass


@wrong("least_bubble", "budget", "where the budget is 4")
def zb_h1_in_more_memory(rank, ranks, microbatches, budget, message):
    return h1(rank, ranks, microbatches, budget + 1)


@wrong("least_bubble", "time", "1 s for a message it takes 40 s")
def the_notebooks_scheduler(rank, ranks, microbatches, budget, message):
    return listed(rank, ranks, microbatches, budget, 1)


@wrong("least_bubble", "own work", "schedules")
def librarys_zb_h1(rank, ranks, microbatches, budget, message):
    return make_schedule("ZB-H1", ranks, microbatches).programs[rank]


@wrong("least_bubble", "time", "3 s for a message it takes 33 s")
def every_message_takes_a_second(rank, ranks, microbatches, budget, message):
    return solved("least_bubble", "(1 + message) * (ranks", "2 * (ranks")(rank, ranks, microbatches, budget, message)


# end_of_step


@wrong("end_of_step", "values", "nothing (None)")
def no_times(begins, ends, optimizer, redo):
    pass


@wrong("end_of_step", "values", "checked after is 29")
def the_mean_of_all_ranks(begins, ends, optimizer, redo):
    before = max(ends) - min(begins) + optimizer
    after = (sum(ends) - sum(begins)) / len(ends) + optimizer
    return before, after, min(1.0, (before - after) / redo)


@wrong("end_of_step", "values", "checked before is 27")
def without_the_optimizer(begins, ends, optimizer, redo):
    before, after = max(ends) - min(begins), max(end - begin for begin, end in zip(begins, ends))
    return before, after, min(1.0, (before - after) / redo)


@wrong("end_of_step", "values", "checked after is 30.5")
def the_bubble_of_the_last_rank(begins, ends, optimizer, redo):
    before = max(ends) - min(begins) + optimizer
    after = before - (max(begins) - min(begins))
    return before, after, min(1.0, (before - after) / redo)


@wrong("end_of_step", "own work", "tinydist.pipeline_parallel")
def librarys_steps(begins, ends, optimizer, redo):
    def seconds(checked):
        two, three = (
            analyze(with_steps(make_schedule("ZB-H2", 4, 8), steps, checked), Costs(step=1)).makespan
            for steps in (2, 3)
        )
        return three - two

    return seconds("before"), seconds("after"), 0.075


# missing_seconds


@wrong("missing_seconds", "values", "nothing (None)")
def no_causes(steps, ranks, sequences):
    pass


@wrong("missing_seconds", "values", "slower is 1.12265, and that is not right")
def all_of_it_is_slow_passes(steps, ranks, sequences):
    ratios = []
    for microbatches, _, busy, bubble, samples in steps:
        ratios.append(microbatches * sequences / ranks / samples / (microbatches * busy / (1 - bubble)))
    slower = sum(ratios) / len(ratios)
    return slower, 0.0, 0.0, max((slower / each - 1 for each in ratios), key=abs)


@wrong("missing_seconds", "values", "once is")
def without_what_is_paid_once(steps, ranks, sequences):
    return solved("missing_seconds", "microbatches, 1.0]", "microbatches, 1e-9]")(steps, ranks, sequences)


@wrong("missing_seconds", "values", "the worst error is")
def the_mean_error(steps, ranks, sequences):
    return solved("missing_seconds", "max(errors, key=abs)", "sum(errors) / len(errors)")(steps, ranks, sequences)
