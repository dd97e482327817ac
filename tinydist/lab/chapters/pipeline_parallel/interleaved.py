"""Interleaved 1F1B: a microbatch comes by each rank v times, so the pipeline is filled in 1/v of the time."""

from itertools import groupby

from ....pipeline_parallel import Costs, analyze
from ....pipeline_parallel.actions import BACKWARD, FORWARD
from ...errors import Wrong
from ...exercise import exercise
from ...messages import many
from ...verdict import Property
from .order import ahead, not_in_turn
from .programs import Programs, drawn, first_properties, setting

SIZES = [(2, 4, 2), (3, 6, 2), (2, 4, 3), (4, 8, 2), (2, 2, 2), (3, 3, 2), (1, 2, 2)]  # ranks, microbatches, chunks
INSTANT = Costs(1, 1, 1)  # of a stage: of a rank's v stages F = v, B = 2v
SLOW = Costs(1, 1, 1, message=0.25)


def properties(answer):
    programs = Programs(answer, [setting(P, M, chunks=v) for P, M, v in SIZES])
    yield from first_properties(programs, advice)
    yield Property("bubble", "(P-1)(F+B)/v of idle time", programs.each_schedule(short_bubble))
    yield Property("hidden", "messages cost time on one way down and back alone", programs.each_schedule(hidden))
    yield Property("memory", "no more forwards ahead than that needs", programs.each_schedule(holds_few))


def advice(schedule, error, ranks, microbatches, chunks):
    if error.rule in ("deadlock", "order"):
        return what_is_odd(schedule, error.rank)
    kinds = [action.kind for action in schedule.programs[error.rank]]
    forwards, backwards = kinds.count(FORWARD), kinds.count(BACKWARD)
    if error.rule == "once" and backwards < forwards == chunks * microbatches:
        return (
            f"Rank {error.rank} has all v M = {forwards} forwards, and {many(backwards, 'backward')}. Is its warm_up "
            "more than v M?"
        )
    return ""


def short_bubble(schedule, ranks, microbatches, chunks):
    analysis = analyze(schedule, INSTANT)
    idle, right = analysis.makespan - 3 * microbatches * chunks, 3 * (ranks - 1)
    if idle > right + 1e-6:
        raise Wrong(
            f"with F = {chunks} s and B = {2 * chunks} s of a rank's {chunks} stages together, a rank is idle for "
            f"{idle:g} s, where (P-1)(F+B)/v = {right} s are enough. {what_is_odd(schedule)}",
            drawn(schedule, INSTANT),
        )


def hidden(schedule, ranks, microbatches, chunks):
    makespan, way = analyze(schedule, SLOW).makespan, 2 * (chunks * ranks - 1)
    right = 3 * (microbatches * chunks + ranks - 1) + (way * SLOW.message if ranks > 1 else 0)
    if makespan > right + 1e-6:
        raise Wrong(
            f"with F = {chunks} s, B = {2 * chunks} s and {SLOW.message} s for a message it takes {makespan:g} s, "
            f"where {right:g} s are enough: the 2 (v P - 1) = {way} messages of one way down and back cost time, and "
            f"all others can travel while a rank does another pass. {what_is_odd(schedule)}",
            drawn(schedule, SLOW),
        )


def holds_few(schedule, ranks, microbatches, chunks):
    """No rank holds more than the warm-up and the forward that follows."""
    for rank, peak in enumerate(analyze(schedule).peak):
        most = forwards_ahead(schedule, rank) + 1
        if peak > most:
            raise Wrong(
                f"rank {rank} holds {peak:g} activations of a stage at once, where {most} are enough. "
                f"{what_is_odd(schedule)}",
                drawn(schedule),
            )


def forwards_ahead(schedule, rank):
    """The last rank's first backward needs the first microbatch in its last stage; a rank that is k before it has k
    more on their way down, and k on their way back."""
    ranks, chunks = schedule.ranks, schedule.stages // schedule.ranks
    return min((chunks - 1) * ranks + 2 * (ranks - 1 - rank), chunks * schedule.microbatches - 1)


def what_is_odd(schedule, first=0):
    """The first thing about the order of stages or the warm-up that is not as it should be, from rank ``first`` on."""
    ranks = sorted(range(schedule.ranks), key=lambda rank: (rank < first, rank))
    for rank in ranks:
        program = schedule.programs[rank]
        for kind, name in ((FORWARD, "forwards"), (BACKWARD, "backwards")):
            if text := odd_order(schedule, rank, [action for action in program if action.kind == kind], name):
                return text
    if text := not_in_turn(schedule):
        return text
    texts = (odd_warm_up(schedule, rank, ahead(schedule.programs[rank]) - 1) for rank in ranks)
    return next(filter(None, texts), "")


def odd_order(schedule, rank, passes, name):
    """Stages take turns, each with P microbatches."""
    runs = [(stage, len(list(run))) for stage, run in groupby(passes, key=lambda action: action.stage)]
    mine = schedule.stages_of(rank)
    first = mine[0] if name == "forwards" else mine[-1]
    if runs[0][0] != first:
        back = "" if name == "forwards" else ": backward comes from the other end"
        return f"Rank {rank}'s {name} begin with stage {runs[0][0]}, where stage {first} is right{back}"
    group = min(schedule.ranks, schedule.microbatches)
    stage, length = next(((stage, length) for stage, length in runs[:-1] if length % group), runs[0])
    if length % group or (length > group and len(mine) > 1):
        return (
            f"Rank {rank}'s {name} take {length} of stage {stage} in a row. Stages take turns, each with a group of "
            f"P = {schedule.ranks} microbatches"
        )
    return ""


def odd_warm_up(schedule, rank, count):
    right, below = forwards_ahead(schedule, rank), schedule.ranks - 1 - rank
    chunks = schedule.stages // schedule.ranks
    total = chunks * schedule.microbatches
    if count == right:
        return ""
    if count == total - 1:
        return f"Rank {rank} does all v M = {total} forwards before its first backward, which could begin sooner"
    said = f"The warm-up of rank {rank} has {many(count, 'forward')}"
    if count > right:
        return f"{said}: the first backward could begin sooner"
    if count == below > 0:
        return f"{said}, as in 1F1B with one stage a rank: here a microbatch comes by {chunks} times"
    if count == (chunks - 1) * schedule.ranks + below:
        return (
            f"{said}: what is on its way down to the last rank is counted, and what is on its way back is not. So the "
            "rank has nothing to do while a message travels"
        )
    if count < (chunks - 1) * schedule.ranks:
        return f"{said}: microbatch 0 must pass all {chunks} stages of the rank before its backward"
    return f"{said}: too few, the rank waits although it could do another"


@exercise(
    chapter="08_pipeline_parallel",
    title="The warm-up of interleaved 1F1B",
    minutes=25,
    difficulty=4,
    targets={
        "verified": f"every rule of the verifier, for (P, M, v) = {', '.join(map(str, SIZES))}",
        "bubble": "(P-1)(F+B)/v of idle time a rank: 1/v of 1F1B's",
        "hidden": "with messages of 0.25 s, only 2 (v P - 1) of them cost time, whatever M is",
        "memory": "at most one activation more than there are forwards in the warm-up; P v + P - 1 on the first rank",
    },
    hints=[
        "Go round the loop with the first microbatches: rank 0 does P of them on its first stage. By then microbatch 0 "
        "has come back from the last rank: so it does the same P on its second stage, and so on.",
        "Forwards: for each group of P microbatches, for each of the rank's stages, for each microbatch of the group. "
        "Backwards: the same with the stages from the last to the first.",
        "The last rank can begin with backward when it has done P microbatches of each of its stages but the last: "
        "(v-1) P forwards ahead, and one more that is paired with the backward.",
        "A rank that is k further from the last has k more on their way down and k on their way back, so that there is "
        "a pass to do while messages travel: (v-1) P + 2 (P-1-rank) forwards, but never more than v M.",
    ],
    why="Megatron-LM calls v the virtual pipeline stages; with 4 of them the bubble is a quarter. It pays with v times "
    "as many messages and a few more activations, so it is for fast links.",
    check=properties,
)
def interleaved(rank, ranks, microbatches, chunks):
    """Write interleaved 1F1B: each rank has ``chunks`` stages; rank r has r, r + ranks, r + 2 ranks, ...

    ``ranks`` divides ``microbatches``. What you find: the order in which the stages of a rank take turns, and how many
    forwards are ahead of the first backward.
    """
    stages = range(rank, chunks * ranks, ranks)
    # All forwards of this rank in their order, f"{stage}F{microbatch}"; all backwards in theirs.
    forwards = []
    backwards = []
    # How many forwards, before forward and backward take turns?
    warm_up = 0
    raise NotImplementedError
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards):
        yield from (forward, backward)
    yield from backwards[len(forwards) - warm_up :]
