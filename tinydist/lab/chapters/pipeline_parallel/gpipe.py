"""GPipe, written as what each rank does: all forwards, then all backwards."""

from ....pipeline_parallel import Costs
from ...errors import Wrong
from ...exercise import exercise
from ...messages import many
from ...values import close
from ...verdict import Property
from .execution import executed, in_one_process
from .order import another_order, each_ahead, in_flight
from .programs import Programs, drawn, first_properties, setting

SIZES = [(3, 4), (2, 3), (4, 2), (4, 6), (1, 3)]  # ranks, microbatches
ANOTHER = (5, 3)  # of which the task says nothing
COSTS = Costs(1, 1, 1)


def properties(answer):
    programs = Programs(answer, [setting(*size) for size in [*SIZES, ANOTHER]])
    yield from first_properties(programs)
    yield Property("flush", "on every rank, all forwards come first", programs.each_schedule(all_forwards_first))
    yield Property(
        "executed",
        "loss and gradients of one process, in (M+P-1)(F+B)",
        programs.each_schedule(as_one_process),
    )


def all_forwards_first(schedule, ranks, microbatches):
    counts = each_ahead(schedule)
    early = [rank for rank, count in enumerate(counts) if count < microbatches]
    if early:
        rank = early[-1]
        program, step = schedule.programs[rank], counts[rank]
        raise Wrong(
            f"rank {rank} does {program[step]} at step {step}, after {many(step, 'forward')}, where all "
            f"{microbatches} come first{known(counts, schedule)}",
            drawn(schedule),
        )


def known(counts, schedule):
    if set(counts) == {1}:
        return ". One microbatch goes down and back before the next begins: this is the naive schedule"
    if counts == in_flight(schedule):
        return ". This is 1F1B, the next exercise: it has the same bubble, and holds less"
    return ""


def as_one_process(schedule, ranks, microbatches):
    run = executed(schedule)
    right, loss = in_one_process(ranks, microbatches)
    for rank, (found, its_loss) in enumerate(run.results):
        if not all(map(close, found[rank], right[rank])) or (its_loss is not None and not close(its_loss, loss)):
            raise Wrong(f"executed, rank {rank} has other numbers than one process")
    seconds = 3 * (microbatches + ranks - 1)
    if run.seconds > seconds + 1e-6:
        raise Wrong(
            f"executed with F = 1 s and B = 2 s, a step takes {run.seconds:.0f} s of virtual time, where (M+P-1)(F+B) "
            f"= {seconds} s is right. {another_order(schedule)}",
            drawn(schedule, COSTS),
        )


@exercise(
    chapter="08_pipeline_parallel",
    title="GPipe, as a generator of actions",
    minutes=10,
    difficulty=1,
    targets={
        "verified": f"every rule of the verifier, for (P, M) = {', '.join(map(str, SIZES))} and one more",
        "flush": "on every rank, all M forwards come before the first backward",
        "executed": "with real tensors, the loss and gradients of one process; in (M+P-1)(F+B) of virtual time",
    },
    hints=[
        "There is one stage on each rank, of the same number. A rank does not send or receive here, and does not wait: "
        "its program only says what comes after what.",
        "Two loops, one after the other: over the forwards of all microbatches, then over their backwards.",
        "All ranks take the microbatches in the same order, forwards and backwards. Else one waits for a microbatch "
        "that its neighbor does last.",
        'yield f"{rank}F{microbatch}" for each of range(microbatches), then yield f"{rank}B{microbatch}" for each.',
    ],
    why="A few lines of order decide how long P machines are idle: (P-1)/(M+P-1) of the step, whatever the model. The "
    "worker that executes them need not know the schedule's name, as in torch.distributed.pipelining.",
    check=properties,
)
def gpipe(rank, ranks, microbatches):
    """Write GPipe: yield what ``rank`` does, one action after another.

    An action is text, "2F0": stage 2, forward, microbatch 0; "2B0" is its backward. Rank r has stage r. Every rank does
    all its forwards before its first backward. Sends and receives are added to what you write.
    """
    # Which actions, in which order? yield f"{rank}F{microbatch}" is a forward.
    raise NotImplementedError
