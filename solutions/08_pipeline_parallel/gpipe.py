"""GPipe as its authors have it: all forwards, then all backwards, and most forwards are run once more in between."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tinydist.lab.author import Wrong, exercise, many, mistake
from tinydist.launching.launch import launch
from tinydist.pipeline_parallel import Costs, Worker

from .order import warm_up
from .schedules import OWN, Held, Makespan, OfSchedule, Verified, asked, drawn, setting

SIZES = [(3, 4), (2, 3), (4, 2), (2, 7), (3, 1), (1, 3)]  # ranks, microbatches
ANOTHER = (5, 3)  # of which the task says nothing
WIDTH, ROWS = 4, 2


def test_cases():
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
EXCEPT = "        if microbatch < microbatches - 1:  # the last forward has just been: what it made is still there\n"
AGAIN = f'{EXCEPT}            yield f"{{rank}}R{{microbatch}}"\n'
BACKWARD = '        yield f"{rank}B{microbatch}"'
LOOP = f"    for microbatch in reversed(range(microbatches)):\n{AGAIN}{BACKWARD}"


@exercise(
    title="GPipe, in the memory of one microbatch",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=asked("FRB"),
    targets=[
        OWN,
        Verified(f"every rule of the verifier, for (P, M) = {', '.join(map(str, SIZES))} and one more"),
        Flush("on every rank, all M forwards come before the first R or B"),
        Held("no rank holds more than one microbatch whole; of the others their inputs"),
        Executed(
            "executed",
            "with real tensors, the loss and gradients of one process; in (M+P-1)(F+B) + (M-1) F of virtual time",
            Costs(1, 1, 1),
            advice=": (M+P-1)(F+B) + (M-1) F",
        ),
    ],
    mistakes=[
        mistake("No forward is run again: so all M microbatches are held whole, from F to B", AGAIN, ""),
        mistake(
            "Every forward is run again. One need not be: when the backwards begin, what the forward just before has "
            "made is still there",
            EXCEPT,
            "        if True:\n",
        ),
        mistake(
            "A microbatch without R is held whole from F to B, while others are run again: so its backward comes first",
            "reversed(range(microbatches))",
            "range(microbatches)",
        ),
        mistake(
            "All R come before the first B: so all M microbatches are held whole once more",
            LOOP,
            "    for microbatch in reversed(range(microbatches - 1)):\n"
            '        yield f"{rank}R{microbatch}"\n'
            "    for microbatch in reversed(range(microbatches)):\n"
            f"{BACKWARD}",
        ),
        mistake(
            "Backwards begin with the first microbatch, and every forward is run again. The last forward has just "
            "been, and what it made is still there: begin with its backward, and it needs no R",
            EXCEPT,
            "        if True:\n",
            "reversed(range(microbatches))",
            "range(microbatches)",
        ),
        mistake(
            "R comes right after F, and what F made is held at once: it is for later, right before B",
            FORWARDS,
            f'{FORWARDS}        yield from [f"{{rank}}R{{microbatch}}"] * (microbatch < microbatches - 1)\n',
            AGAIN,
            "",
        ),
        mistake(
            "One microbatch goes down and back before the next begins: this is the naive schedule",
            f"{FORWARDS}{LOOP}",
            f"{FORWARDS}{BACKWARD}",
        ),
        mistake(
            "This is 1F1B: here all forwards come first",
            f"{FORWARDS}{LOOP}",
            "    ahead = min(ranks - 1 - rank, microbatches)\n"
            '    yield from [f"{rank}F{each}" for each in range(ahead)]\n'
            "    for microbatch in range(ahead, microbatches + ahead):\n"
            '        yield from [f"{rank}F{microbatch}"] * (microbatch < microbatches)\n'
            '        yield from [f"{rank}R{microbatch - ahead}"] * (ahead > 0)\n'
            '        yield f"{rank}B{microbatch - ahead}"',
        ),
    ],
    hints=[
        "A rank does not send, receive or wait here: its program only says what comes after what. All forwards come "
        "first. What is held after them, if each of these microbatches has an R later?",
        "A microbatch without R is held whole from F to B; one with R from R to B. At most one of them at any time: so "
        "R and B of the same microbatch stand side by side.",
        "One forward need not be run again. Of which microbatch has nothing else been done between F and B?",
        "Backwards go from the last microbatch to the first, on all ranks. Before each but one of them is its R.",
    ],
    why="GPipe's memory for M microbatches becomes memory for one, and M inputs. And R stands before B, not inside of "
    "it: so a rank runs forward again while the gradient is still on its way. torchgpipe does it like this: its "
    "default, checkpoint='except_last', leaves out the last microbatch, whose forward has just been.",
)
def gpipe(rank, ranks, microbatches):
    """Write GPipe with recomputation: yield what ``rank`` does, one action after another.

    An action is text, "2F0": stage 2, forward, microbatch 0; "2B0" is its backward. Rank r has stage r. Every rank does
    all its forwards before its first backward. "2R0" runs the forward once more, and comes before "2B0". A microbatch
    that has an R is held whole from R to B, and before that only its input is; one that has none is held whole from F
    to B. No rank may hold more than one microbatch whole, and no forward may be run again without need.
    """
    # ? All forwards. Then which backwards, in which order, and before which of them is an R?
    for microbatch in range(microbatches):
        yield f"{rank}F{microbatch}"
    for microbatch in reversed(range(microbatches)):
        if microbatch < microbatches - 1:  # the last forward has just been: what it made is still there
            yield f"{rank}R{microbatch}"
        yield f"{rank}B{microbatch}"
