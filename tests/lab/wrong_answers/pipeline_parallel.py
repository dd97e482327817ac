"""Wrong answers to the exercises of 08_pipeline_parallel: each with the property that rejects it, and what it says."""

import importlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection, solved

from tinydist.pipeline_parallel import Action, Schedule, Worker, make_schedule

WRONG_ANSWERS, wrong = collection()


def in_turn(rank, warm_up, microbatches, cooldown=True):
    """``warm_up`` forwards, then one forward and one backward in turn, then the backwards that are left."""
    warm_up = max(0, min(warm_up, microbatches))
    forwards = [f"{rank}F{microbatch}" for microbatch in range(microbatches)]
    backwards = [f"{rank}B{microbatch}" for microbatch in range(microbatches)]
    yield from forwards[:warm_up]
    for pair in zip(forwards[warm_up:], backwards):
        yield from pair
    if cooldown:
        yield from backwards[microbatches - warm_up :]


def forwards_then(rank, microbatches, backwards):
    return [*(f"{rank}F{microbatch}" for microbatch in range(microbatches)), *backwards]


# gpipe


def again(rank, order, kept=None):
    """R and B of each, but for what is kept: B alone."""
    for microbatch in order:
        if microbatch != kept:
            yield f"{rank}R{microbatch}"
        yield f"{rank}B{microbatch}"


@wrong("gpipe", "runs", "nothing (None)")
def returns_nothing(rank, ranks, microbatches):
    pass


@wrong("gpipe", "own work", "schedules")
def librarys_own(rank, ranks, microbatches):
    return (
        importlib.import_module("tinydist.pipeline" + "_parallel")
        .make_schedule("GPipe", ranks, microbatches)
        .programs[rank]
    )


@wrong("gpipe", "memory", "No forward is run again")
def without_recomputation(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, [f"{rank}B{each}" for each in range(microbatches)])


@wrong("gpipe", "verified", "rank 0 waits in 0B0 for 1B0")
def two_ranks_wait_for_each_other(rank, ranks, microbatches):
    yield from in_turn(rank, microbatches - 2 if rank == 0 else microbatches, microbatches)


@wrong("gpipe", "flush", "rank 2 does 2B0 at step 1")
def one_f_one_b_instead(rank, ranks, microbatches):
    return in_turn(rank, ranks - 1 - rank, microbatches)


# one_f_one_b


@wrong("one_f_one_b", "runs", "nothing (None)")
def does_nothing(rank, ranks, microbatches, message):
    pass


@wrong("one_f_one_b", "memory", "message=1.5")
def counted_in_forwards(rank, ranks, microbatches, message):
    return solved("one_f_one_b", "message / 3", "message")(rank, ranks, microbatches, message)


@wrong("one_f_one_b", "verified", "0B0 needs 0F0")
def backward_first(rank, ranks, microbatches, message):
    for microbatch in range(microbatches):
        yield from (f"{rank}B{microbatch}", f"{rank}F{microbatch}")


@wrong("one_f_one_b", "time", "[0, 1, 2, 3, 4, 5]")
def another_order_on_one_rank(rank, ranks, microbatches, message):
    actions = list(solved("one_f_one_b")(rank, ranks, microbatches, message))
    if (rank, ranks) == (1, 3):
        actions[-2:] = actions[:-3:-1]
    return actions


@wrong("one_f_one_b", "own work", "schedules")
def the_librarys_schedule(rank, ranks, microbatches, message):
    return make_schedule("1F1B", ranks, microbatches).programs[rank]


# mended_pipeline


@wrong("mended_pipeline", "values", "the loss of microbatch 4 alone")
def returns_the_last_loss(stage, microbatches, like):
    return solved("mended_pipeline", "return sum(losses)", "return losses[-1] * M if losses else 0.0")(
        stage, microbatches, like
    )


@wrong("mended_pipeline", "waits", "call wait()")
def never_waits(stage, microbatches, like):
    return solved("mended_pipeline", "send.wait()", "pass")(stage, microbatches, like)


@wrong("mended_pipeline", "messages", "sends 0 messages to rank 1")
def everything_alone(stage, microbatches, like):
    losses = [F.mse_loss(stage(inputs), targets) / len(microbatches) for inputs, targets in microbatches]
    sum(losses).backward()
    return sum(losses).detach()


@wrong("mended_pipeline", "own work", "tinydist.pipeline_parallel.worker")
def the_librarys_worker(stage, microbatches, like):
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    programs = tuple(tuple(Action(r, kind, m) for kind in "FB" for m in range(M)) for r in range(ranks))
    worker = Worker(Schedule("mine", programs, ranks, M), {rank: stage}, like, F.mse_loss)
    return worker.step(*[torch.cat(each) for each in zip(*microbatches)])


SHARED = {}


@wrong("mended_pipeline", "communication", "results do not follow")
def outputs_through_a_global(stage, microbatches, like):
    """What has arrived is overwritten with what memory has that ranks of a cluster do not share."""
    rank, count = dist.get_rank(), iter(range(len(microbatches)))

    class Through(torch.nn.Module):
        def forward(self, x):
            number = next(count)
            if rank > 0:
                x.data.copy_(SHARED[rank - 1, number])
            y = stage(x)
            SHARED[rank, number] = y.detach().clone()
            return y

    return solved("mended_pipeline")(Through(), microbatches, like)


# best_pipeline


@wrong("best_pipeline", "values", "stages")
def as_many_stages_as_gpus(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    return gpus, max(size for size in seconds if sequences % size == 0), 2 * sequences * tokens * width * 2, 0.0


@wrong("best_pipeline", "values", "Of pairs that are equally fast fewer stages")
def more_stages_where_two_are_equally_fast(
    gpus, sequences, seconds, parameters, width, tokens, activations, room, speed
):
    answer = solved("best_pipeline", "step < best[0]", "step <= best[0]")
    return answer(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed)


@wrong("best_pipeline", "values", "needs 112 GB for parameters and 32 GB for activations, and has 80 GB")
def whatever_is_fastest_fits(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    answer = solved("best_pipeline", "> room", "> 1e30")
    return answer(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed)


@wrong("best_pipeline", "values", "to the byte, fits, too")
def what_just_fits_does_not(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    answer = solved("best_pipeline", "> room", ">= room")
    return answer(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed)


@wrong("best_pipeline", "runs", "sequences")
def the_first_that_divides(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    stages = next(each for each in range(1, gpus + 1) if 16 * parameters / each < room)
    return stages, sequences[0], 0, 0
