"""Wrong answers to the exercises of 08_pipeline_parallel: each with the property that rejects it, and what it says."""

import importlib
from itertools import count

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


@wrong("gpipe", "executed", "takes 22 s")
def every_forward_again_from_the_first(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, again(rank, range(microbatches)))


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


# mended_pipeline


@wrong("mended_pipeline", "memory", "holds 26,112 bytes")
def all_forwards_so_that_nothing_crosses(stage, microbatches, like):
    return solved("mended_pipeline", "min(ranks - 1 - rank, M)", "M")(stage, microbatches, like)


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


# least_bubble


def h1(rank, ranks, microbatches, held, owed=None):
    """ZB-H1 with ``held`` activations on every rank."""
    ahead = min(ranks - 1 - rank, held - 1, microbatches)
    owed = min(held - 1 - ahead if owed is None else owed, microbatches - ahead)
    passes = "F" * ahead + "FI" * owed + "FIW" * (microbatches - ahead - owed) + "IW" * ahead + "W" * owed
    turn = {kind: count() for kind in "FIW"}
    return [f"{rank}{kind}{next(turn[kind])}" for kind in passes]


@wrong("least_bubble", "runs", "nothing (None)")
def no_design(rank, ranks, microbatches, budget):
    pass


@wrong("least_bubble", "budget", "where the budget is 2")
def zb_h1_in_any_memory(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, ranks)


@wrong("least_bubble", "tight", "ranks=4, microbatches=12, budget=2")
def zb_h1_cut_to_the_budget(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, min(ranks, budget))


@wrong("least_bubble", "own work", "schedules")
def librarys_zb_h1(rank, ranks, microbatches, budget):
    return make_schedule("ZB-H1", ranks, microbatches).programs[rank]


@wrong("least_bubble", "least", "ranks=4, microbatches=8, budget=4")
def right_for_three_ranks_at_most(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, min(ranks, budget, 3))
