"""1F1B: as soon as a backward can be done it is done, so that less is held. The bubble stays."""

from ....pipeline_parallel import Costs, analyze
from ...errors import Wrong
from ...exercise import exercise
from ...messages import many
from ...verdict import Property
from .order import another_order, each_ahead, in_flight, not_in_turn
from .programs import Programs, drawn, first_properties, setting

SIZES = [(3, 5), (2, 4), (4, 2), (4, 8), (5, 5), (1, 3)]
COSTS = [Costs(1, 1, 1), Costs(2, 1, 1)]  # B = 2 F, B = F


def properties(answer):
    programs = Programs(answer, [setting(*size) for size in SIZES])
    yield from first_properties(programs, advice)
    yield Property("memory", "min(P - rank, M) activations at most", programs.each_schedule(holds_few))
    yield Property("bubble", "no larger than GPipe's", programs.each_schedule(as_short_as_gpipe))


def advice(schedule, error, *size):
    if error.rule == "once" and "B" in str(error) and "missing" in str(error):
        return "As many backwards are still to come as there were forwards ahead of them: the cooldown."
    return ""


def holds_few(schedule, ranks, microbatches):
    analysis = analyze(schedule)
    for rank, (live, most) in enumerate(zip(analysis.live, in_flight(schedule))):
        step = next((step for step, held in enumerate(live) if held > most), None)
        if step is not None:
            raise Wrong(
                f"rank {rank} holds {many(int(live[step]), 'activation')} in {schedule.programs[rank][step]} (step "
                f"{step}), of min(P - rank, M) = {most} at most. {too_many(schedule, rank)}",
                drawn(schedule),
            )


def too_many(schedule, rank):
    counts, right = each_ahead(schedule), in_flight(schedule)
    if set(counts) == {schedule.microbatches} and schedule.microbatches > right[-1]:
        return "Every rank does all forwards first: that is GPipe"
    if len(set(counts)) == 1 and schedule.ranks > 1:
        return (
            f"Every rank does {many(counts[0], 'forward')} before its first backward. But the later a rank, the sooner "
            "the first microbatch is back from the last"
        )
    if counts[rank] > right[rank]:
        return f"It does {many(counts[rank], 'forward')} before its first backward"
    return not_in_turn(schedule)


def as_short_as_gpipe(schedule, ranks, microbatches):
    for costs in COSTS:
        analysis = analyze(schedule, costs)
        each = costs.forward + costs.backward_input + costs.backward_weight
        gpipe = (microbatches + ranks - 1) * each
        if analysis.makespan > gpipe + 1e-6:
            raise Wrong(
                f"with F = {costs.forward} s and B = {each - costs.forward} s it takes {analysis.makespan:g} s, where "
                f"GPipe takes (M+P-1)(F+B) = {gpipe} s. {too_few(schedule)}",
                drawn(schedule, costs),
            )


def too_few(schedule):
    counts, right = each_ahead(schedule), in_flight(schedule)
    for rank, (count, most) in enumerate(zip(counts, right)):
        if count < most:
            return (
                f"Rank {rank} does {many(count, 'forward')} before its first backward, and waits for that, where it "
                f"may hold {most}: it could do another meanwhile"
            )
    return another_order(schedule) or not_in_turn(schedule)


@exercise(
    chapter="08_pipeline_parallel",
    title="1F1B under a memory bound",
    minutes=15,
    difficulty=2,
    targets={
        "verified": f"every rule of the verifier, for (P, M) = {', '.join(map(str, SIZES))}",
        "memory": "rank r holds the activations of at most min(P - r, M) microbatches at once",
        "bubble": "the step takes no longer than GPipe's (M+P-1)(F+B), for B = 2F and for B = F",
    },
    hints=[
        "A microbatch is held from its forward to its backward. The last rank can do the backward right after the "
        "forward. How many more forwards can rank r do before its first backward can begin?",
        "Three parts: a warm-up of forwards alone; then a forward and a backward in turn; then the backwards that are "
        "left, as many as there were forwards in the warm-up.",
        "The warm-up of rank r has P - 1 - r forwards, but never more than M.",
        "With w = min(P-1-r, M): forwards 0 to w-1; then for each i of range(M-w), forward w+i and backward i; then "
        "the backwards M-w to M-1.",
    ],
    why="Most people expect a smaller bubble of 1F1B, and it has the same. What it changes is memory, P microbatches "
    "instead of M: so M can grow, and it is a larger M that makes the bubble small.",
    check=properties,
)
def one_f_one_b(rank, ranks, microbatches):
    """Write 1F1B: yield what ``rank`` does, holding few microbatches, in no more time than GPipe.

    A rank holds a microbatch from its forward, f"{rank}F{microbatch}", to its backward, f"{rank}B{microbatch}": at most
    min(ranks - rank, microbatches) of them at once. There may be fewer microbatches than ranks.
    """
    # 1. The warm-up: how many forwards, before the first backward can begin?
    # 2. One forward, one backward, in turn.
    # 3. The backwards that are left.
    raise NotImplementedError
