"""GPipe, written as what each rank does: all forwards, then all backwards."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tinydist.lab.author import Wrong, exercise, many, mistake
from tinydist.launch import launch
from tinydist.pipeline_parallel import Costs, Worker

from .order import warm_up
from .schedules import OWN, Makespan, OfSchedule, Verified, asked, drawn, setting

SIZES = [(3, 4), (2, 3), (4, 2), (2, 7), (4, 6), (1, 3)]  # ranks, microbatches
ANOTHER = (5, 3)  # of which the task says nothing
WIDTH, ROWS = 4, 2


def worlds():
    for size in [*SIZES, ANOTHER]:
        yield setting(*size)


class Flush(OfSchedule):
    name = "flush"

    def look(self, mine, its, ranks, microbatches):
        early = [rank for rank, program in enumerate(mine.programs) if len(warm_up(program)) < microbatches]
        if early:
            rank = early[-1]
            step = len(warm_up(mine.programs[rank]))
            raise Wrong(
                f"rank {rank} does {mine.programs[rank][step]} at step {step}, after {many(step, 'forward')}, where "
                f"all {microbatches} come first",
                drawn(mine),
            )

    def general(self, trial, right):
        return ""


def executed(schedule):
    """A step with real tensors: of each rank its gradients and the loss, which the last one has."""

    def program():
        stage = nn.Linear(WIDTH, WIDTH)  # the same on all ranks, as their random numbers begin alike
        worker = Worker(schedule, {dist.get_rank(): stage}, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss)
        loss = worker.step(*torch.randn(2, ROWS * schedule.microbatches, WIDTH))
        return [*(each.grad for each in stage.parameters()), torch.zeros(()) if loss is None else loss]

    return launch(program, schedule.ranks, backend="simulated", observe=False).results


class Executed(Makespan):
    """And its numbers."""

    def look(self, mine, its, *size):
        super().look(mine, its, *size)
        for rank, results in enumerate(zip(executed(mine), executed(its))):
            if not all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(*results)):
                raise Wrong(f"executed, rank {rank} has other numbers than one process")


FORWARDS = '    for microbatch in range(microbatches):\n        yield f"{rank}F{microbatch}"\n'
BACKWARDS = '    for microbatch in range(microbatches):\n        yield f"{rank}B{microbatch}"'


@exercise(
    title="GPipe, as a generator of actions",
    minutes=10,
    difficulty=1,
    worlds=worlds,
    program=asked(),
    targets=[
        OWN,
        Verified(f"every rule of the verifier, for (P, M) = {', '.join(map(str, SIZES))} and one more"),
        Flush("on every rank, all M forwards come before the first backward"),
        Executed(
            "executed",
            "with real tensors, the loss and gradients of one process; in (M+P-1)(F+B) of virtual time",
            Costs(1, 1, 1),
            advice=": (M+P-1)(F+B)",
        ),
    ],
    mistakes=[
        mistake(
            "One microbatch goes down and back before the next begins: this is the naive schedule",
            FORWARDS,
            "",
            BACKWARDS,
            FORWARDS + '        yield f"{rank}B{microbatch}"',
        ),
        mistake(
            "This is 1F1B, the next exercise: it has the same bubble, and holds less",
            FORWARDS,
            "    ahead = min(ranks - 1 - rank, microbatches)\n"
            '    yield from [f"{rank}F{each}" for each in range(ahead)]\n',
            BACKWARDS,
            "    for microbatch in range(ahead, microbatches + ahead):\n"
            '        yield from [f"{rank}F{microbatch}"] * (microbatch < microbatches)\n'
            '        yield f"{rank}B{microbatch - ahead}"',
        ),
        mistake("A rank has one stage, that of its number", '"{rank}F', '"{0}F', '"{rank}B', '"{0}B'),
        mistake(
            "A backward needs what its forward made, so it comes after",
            '"{rank}F',
            '"{rank}?',
            '"{rank}B',
            '"{rank}F',
            '"{rank}?',
            '"{rank}B',
        ),
        mistake("Every forward has a backward, on every rank", BACKWARDS, ""),
        mistake(
            "The last microbatch is missing: range(microbatches) goes up to it",
            "range(microbatches)",
            "range(max(1, microbatches - 1))",
        ),
    ],
    hints=[
        "There is one stage on each rank, of the same number. A rank does not send or receive here, and does not wait: "
        "its program only says what comes after what.",
        "Two loops, one after the other: over the forwards of all microbatches, then over their backwards.",
        "All ranks take the microbatches in the same order, forwards and backwards. Else one waits for a microbatch "
        "that its neighbor does last.",
        'A forward is f"{rank}F{microbatch}". The backward of the same microbatch has a B in its place.',
    ],
    why="A few lines of order decide how long P machines are idle: (P-1)/(M+P-1) of the step, whatever the model. The "
    "worker that executes them need not know the schedule's name, as in torch.distributed.pipelining.",
)
def gpipe(rank, ranks, microbatches):
    """Write GPipe: yield what ``rank`` does, one action after another.

    An action is text, "2F0": stage 2, forward, microbatch 0; "2B0" is its backward. Rank r has stage r. Every rank does
    all its forwards before its first backward. Sends and receives are added to what you write.
    """
    # ? Which actions, in which order? yield f"{rank}F{microbatch}" is a forward.
    for microbatch in range(microbatches):
        yield f"{rank}F{microbatch}"
    for microbatch in range(microbatches):
        yield f"{rank}B{microbatch}"
