"""A design: the least bubble that a memory budget allows, where backward may be split."""

from ....pipeline_parallel import Costs, analyze
from ....pipeline_parallel.actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from ...errors import Wrong
from ...exercise import exercise
from ...messages import many
from ...verdict import Property
from .choices import first_worse
from .lower_bound import lower_bound
from .programs import Programs, drawn, first_properties, setting

AMPLE = [(3, 6, 3), (2, 6, 2), (4, 8, 4), (5, 7, 6), (1, 3, 1), (6, 12, 6)]  # ranks, microbatches, budget
TIGHT = [(4, 12, 2), (4, 8, 1), (3, 12, 2)]
ROOM = 1.25  # times the lower bound, where the budget is tight
COSTS = Costs(1, 1, 1)


def properties(answer):
    programs = Programs(answer, [setting(P, M, budget=k) for P, M, k in AMPLE + TIGHT], kinds="FBIW")
    yield from first_properties(programs, advice)
    yield Property("budget", "no rank holds more than it may", programs.each_schedule(within))
    yield Property(
        "least", "the lower bound, where the budget is P or more", programs.each_schedule(shortest, is_ample)
    )
    yield Property(
        "tight",
        f"at most {ROOM} times the lower bound, where it is less",
        programs.each_schedule(short, lambda case: not is_ample(case)),
    )


def advice(schedule, error, ranks, microbatches, budget):
    """A walk through the seconds ends early if no rank can do anything."""
    kinds = [action.kind for action in schedule.programs[error.rank]]
    forwards = kinds.count(FORWARD)
    held = forwards - kinds.count(BACKWARD) - kinds.count(BACKWARD_WEIGHT)
    if error.rule == "once" and held == budget and forwards < microbatches:
        owed = owed_at(schedule.programs[error.rank])
        return (
            f"Rank {error.rank} stops after {many(forwards, 'forward')} of {microbatches}: its budget is full, "
            f"{waiting(owed)}, and so all ranks stand still"
        )
    return ""


def is_ample(case):
    return case.expected in AMPLE


def within(schedule, ranks, microbatches, budget):
    for rank, live in enumerate(analyze(schedule).live):
        step = next((step for step, held in enumerate(live) if held > budget), None)
        if step is not None:
            owed = owed_at(schedule.programs[rank][:step])
            raise Wrong(
                f"rank {rank} holds {live[step]:g} activations in {schedule.programs[rank][step]} (step {step}), where "
                f"the budget is {budget}{f': {waiting(owed)}' if owed else ''}",
                drawn(schedule),
            )


def waiting(owed):
    return "1 of them waits for W" if owed == 1 else f"{owed} of them wait for W"


def owed_at(program):
    """How many have done I, and not W."""
    kinds = [action.kind for action in program]
    return kinds.count(BACKWARD_INPUT) - kinds.count(BACKWARD_WEIGHT)


def shortest(schedule, ranks, microbatches, budget):
    shorter_than(lower_bound(ranks, microbatches, budget), "the lower bound is", schedule, budget)


def short(schedule, ranks, microbatches, budget):
    bound = lower_bound(ranks, microbatches, budget)
    shorter_than(ROOM * bound, f"{ROOM} times the lower bound, {bound} s, is", schedule, budget)


def shorter_than(seconds, what, schedule, budget):
    analysis = analyze(schedule, COSTS)
    if analysis.makespan > seconds + 1e-6:
        raise Wrong(
            f"with F = I = W = 1 s it takes {analysis.makespan:g} s, where {what} {seconds:g} s: "
            f"{100 * analysis.bubble:.0f} % of it is idle. {reason(schedule, analysis, budget)}",
            drawn(schedule, COSTS),
        )


def reason(schedule, analysis, budget):
    if any(action.kind == BACKWARD for program in schedule.programs for action in program):
        return (
            "There are whole backwards: while B computes the gradients of the weights, the rank before waits for that "
            "of its output. I and W are B in two halves, and W can wait"
        )
    if text := first_worse(schedule, analysis, budget):
        return text
    waits, rank, step = max(waits_of(schedule, analysis))
    return f"The longest wait within a rank's work: {waits:g} s on rank {rank}, before {schedule.programs[rank][step]}"


def waits_of(schedule, analysis):
    """(seconds, rank, step)."""
    for rank in range(schedule.ranks):
        pauses = analysis.start[rank][1:] - analysis.end[rank][:-1]
        yield from ((float(pause), rank, step) for step, pause in enumerate(pauses, start=1))


@exercise(
    chapter="08_pipeline_parallel",
    title="Design: the least bubble under a memory budget",
    minutes=40,
    difficulty=5,
    targets={
        "verified": "every rule of the verifier; one stage a rank",
        "budget": "no rank holds more than `budget` activations, each from F to W (or to a whole B)",
        "least": f"the lower bound (P-1) + 3M seconds, for (P, M, budget) = {', '.join(map(str, AMPLE))}",
        "tight": f"at most {ROOM} times the lower bound, for {', '.join(map(str, TIGHT))}: every `budget` microbatches "
        "take 2P + 1 seconds, down, back and W",
    },
    hints=[
        "The lower bound: the last rank cannot begin before P-1 s, and has 3M s of work. So it must never wait once it "
        "has begun: every forward must be there in time.",
        "Which of the three does another rank wait for? The next one for F, the one before for I, nobody for W. So W "
        "fills what would be idle.",
        "As many microbatches between F and I as in 1F1B, min(P - rank, budget), keep all later ranks busy; more only "
        "fill the memory. And between F and W there may be no more than the budget. As long as both hold, F goes "
        "before I: the next rank waits for it.",
        "Choose F if it can be done and fewer than min(P - r, budget) microbatches are between F and I, and fewer than "
        "budget between F and W; else I if it can be done; else W if there is one; else wait.",
    ],
    why="With a budget of P this does what ZB-H1 does: 1F1B's memory, and a third of its bubble. Zero bubble pipelines "
    "are planned like this, by trying orders out with measured seconds of F, I and W.",
    check=properties,
)
def least_bubble(rank, ranks, microbatches, budget):
    """Write a schedule with the least bubble, of which no rank holds more than ``budget`` activations.

    Rank r has stage r. Backward may be split: f"{rank}I{microbatch}" is the gradient of the input, for which the rank
    before waits, f"{rank}W{microbatch}" those of the weights. F, I and W take 1 s each, a whole B 2 s. A microbatch is
    held from F to W, or to B. The stub walks through the seconds and lets each rank choose; use it, or write the order
    down directly.
    """
    did = [{"F": 0, "I": 0, "W": 0} for _ in range(ranks)]  # how many of each, by rank
    there = {}  # (rank, kind, microbatch) -> the second from which on its result is there
    now = 0
    while did[rank]["W"] < microbatches:
        for r, done in enumerate(did):
            forward_is_there = r == 0 or there.get((r - 1, "F", done["F"]), now + 1) <= now
            # What else must hold for F, for I, for W? Which of those that can be done is best?
            kind = None
            raise NotImplementedError
            if kind:
                if r == rank:
                    yield f"{r}{kind}{done[kind]}"
                there[r, kind, done[kind]] = now + 1
                done[kind] += 1
        now += 1
