"""Adds the end of a training step to a schedule: gradient reduction, norm check, optimizer step; then the next step.

    REDUCE_GRAD       starts an all-reduce of the stage's gradients over its replicas, right after its last backward
    WAIT_REDUCE_GRAD  waits for it
    NORM              adds this rank's squared gradients to the sum of the previous ranks, and sends it to the next
    CHECK             the global norm comes back from the last rank: is it finite, and below the clipping threshold?
    STEP              the optimizer's, on all stages of the rank

    checked     a rank's program                           the next step begins
    None        ... REDUCE_GRAD ... STEP                   on each rank as it ends; the norm is not checked
    before      ... NORM CHECK STEP                        after a synchronization of all ranks over NORM
    after       ... NORM STEP, F F F CHECK B ...           on each rank as it ends; a wrong step is rolled back

``after`` is the optimizer post-validation of Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 4. A rank steps
speculatively with the partial norm of the ranks before it, and CHECK is deferred into the warmup of the next step. Only
so is a zero-bubble schedule free of bubbles across steps: each further step takes the longest span of a rank, not the
time from the first rank's start to the last one's end. Each rank sends and receives two more scalars.
"""

from dataclasses import replace
from itertools import accumulate, product, takewhile

from ..rules import one_of, validate, within
from .schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHECK,
    ENDING,
    FORWARD,
    NORM,
    RECV_F,
    REDUCE,
    SEND_F,
    STEP,
    WAIT_REDUCE,
    Action,
    Overlap,
    Schedule,
)

BEFORE, AFTER = CHECKED = ("before", "after")


@validate(schedule=Schedule, steps=within(1, 2**16), checked=one_of(CHECKED))
def with_steps(schedule, steps=1, checked=None):
    """A verified schedule of one step, ended, and as many times as there are ``steps``, each of as many microbatches.

    Raises ``ValueError`` if it has messages, or ends already.
    """
    if schedule.has_messages or schedule.steps > 1 or any(part.kind in ENDING for _, _, part in schedule.all_parts()):
        raise ValueError(f"with_steps: {schedule!r} must have one step, no send or recv, and no optimizer step")
    ahead = accumulate([forwards_ahead(schedule, rank) for rank in range(schedule.ranks)], min)
    programs = [tuple(several(schedule, rank, steps, checked, begun)) for rank, begun in enumerate(ahead)]
    return replace(schedule, programs=tuple(programs), microbatches=steps * schedule.microbatches, steps=steps)


def forwards_ahead(schedule, rank):
    """Of the rank's first stage, before all else. What CHECK undoes has gone no further than to the next rank."""
    first = schedule.stages_of(rank)[0]
    return len(list(takewhile(lambda each: each.parts[0][:2] == (first, FORWARD), schedule.programs[rank])))


def several(schedule, rank, steps, checked, begun):
    """``begun``: passes of the next step before CHECK."""
    first = schedule.stages_of(rank)[0]
    owed = []  # CHECK of the step before
    for step in range(steps):
        passes = [moved(each, step * schedule.microbatches) for each in reduced(schedule.programs[rank], step)]
        yield from [*passes[:begun], *owed, *passes[begun:]]
        yield from [each._replace(kind=WAIT_REDUCE) for each in passes if each.parts[0].kind == REDUCE]
        norm, check, last = (Action(first, kind, step) for kind in (NORM, CHECK, STEP))
        yield from {None: [last], BEFORE: [norm, check, last], AFTER: [norm, last]}[checked]
        owed = [check] if checked == AFTER else []
    yield from owed


def reduced(program, step):
    """With the reduction of each stage, right after its last backward."""
    last = {part.stage: each for each in program for part in each.parts if part.kind in (BACKWARD, BACKWARD_WEIGHT)}
    for each in program:
        yield each
        yield from [Action(stage, REDUCE, step) for stage, end in last.items() if end is each]


def moved(each, microbatches):
    if isinstance(each, Overlap):
        return Overlap(*[moved(part, microbatches) for part in each])
    return each._replace(microbatch=each.microbatch + microbatches) if each.kind not in ENDING else each


def under_way(schedule, rank, check):
    """Receives of what the rank before has sent between STEP and CHECK, and ``rank`` receives only later."""
    before = (rank - 1) % schedule.ranks  # the last sends to the first in a loop
    sent = since_step(schedule, before, check._replace(stage=schedule.stages_of(before)[0]))
    receives = [Action(each.stage + 1, RECV_F, each.microbatch) for each in sent if each.parts[0].kind == SEND_F]
    done = since_step(schedule, rank, check)
    return [each for each in receives if schedule.rank_of[each.stage] == rank and each not in done]


def since_step(schedule, rank, check):
    program = schedule.programs[rank]
    return program[place_of_step(program, check) : program.index(check)]


def place_of_step(program, check):
    """With the receives that are posted ahead of it: what they bring is done again, too."""
    place = program.index(check._replace(kind=STEP))
    while program[place - 1].parts[0].kind.startswith("RECV"):
        place -= 1
    return place


# What verify asks.


def expected(schedule):
    """All that must be there, of a kind of which one is: for each step of each stage, or of each rank's first stage."""
    there = {part.kind for _, _, part in schedule.all_parts()} & set(ENDING)
    for some, others in (({NORM, CHECK}, {NORM, CHECK}), ({WAIT_REDUCE}, {REDUCE})):
        there |= others if there & some else set()
    if REDUCE in there and there & {NORM, STEP}:
        there.add(WAIT_REDUCE)
    of_ranks = [schedule.stages_of(rank)[0] for rank in range(schedule.ranks)]
    stages = {kind: range(schedule.stages) if kind in (REDUCE, WAIT_REDUCE) else of_ranks for kind in there}
    return {Action(stage, kind, step) for kind in there for stage, step in product(stages[kind], range(schedule.steps))}


def comes_after(part, schedule):
    """What must come before it on its rank, as far as it is there."""
    stage, kind, number = part
    mine = schedule.stages_of(schedule.rank_of[stage])
    if kind not in ENDING:
        first = kind == FORWARD and stage == mine[0]
        before = {FORWARD: [STEP] if first else [STEP, CHECK], BACKWARD: [CHECK], BACKWARD_INPUT: [CHECK]}.get(kind, [])
        return [Action(mine[0], each, schedule.step_of(number) - 1) for each in before]
    if kind in (WAIT_REDUCE, CHECK):
        return [Action(stage, {WAIT_REDUCE: REDUCE, CHECK: NORM}[kind], number)]
    size = schedule.microbatches // schedule.steps
    passes = product([stage] if kind == REDUCE else mine, (BACKWARD, BACKWARD_WEIGHT), range(size))
    gradients = [Action(each, half, number * size + microbatch) for each, half, microbatch in passes]
    means = [Action(each, half, number) for each in mine for half in (REDUCE, WAIT_REDUCE)] if kind != REDUCE else []
    return [*gradients, *means, *([Action(stage, NORM, number)] if kind == STEP else [])]
