"""Wrong answers to the exercises of 08_pipeline_parallel: each with the property that rejects it, and what it says."""

import importlib
from itertools import count
from math import ceil

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection

from tinydist.pipeline_parallel import Action, Costs, Schedule, Worker, find_schedule, make_schedule, one_each
from tinydist.pipeline_parallel.list_scheduler import ListScheduler, Policy, Problem

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


@wrong("gpipe", "runs", "for rank 0 it returned nothing (None), where actions are right: yield '0F0'")
def returns_nothing(rank, ranks, microbatches):
    pass


@wrong("gpipe", "runs", "for rank 0 it gives no actions")
def gives_no_actions(rank, ranks, microbatches):
    return []


@wrong("gpipe", "runs", "an action is written [stage][kind][microbatch], as in '0F0'")
def plain_tuples(rank, ranks, microbatches):
    yield from ((rank, "F", microbatch) for microbatch in range(microbatches))


@wrong("gpipe", "runs", "for rank 0, action 1 is '0SEND_F0': write the passes alone. Sends and receives are added")
def with_sends(rank, ranks, microbatches):
    for microbatch in range(microbatches):
        yield from (f"{rank}F{microbatch}", f"{rank}SEND_F{microbatch}")


@wrong("gpipe", "runs", "for rank 0 it gives more than 48 actions: does it ever end?")
def without_end(rank, ranks, microbatches):
    return (f"{rank}F{microbatch}" for microbatch in count())


@wrong("gpipe", "runs", "IndexError: list index out of range\nrank 2, at")
def fails_on_the_last_rank(rank, ranks, microbatches):
    return [list(in_turn(each, microbatches, microbatches)) for each in range(ranks - 1)][rank]


@wrong("gpipe", "own work", "you call the library's schedules, where this is solved")
def librarys_own(rank, ranks, microbatches):
    return (
        importlib.import_module("tinydist.pipeline" + "_parallel")
        .make_schedule("GPipe", ranks, microbatches)
        .programs[rank]
    )


@wrong("gpipe", "memory", "This is GPipe without recomputation, as in the notebook: all M microbatches are held")
def as_in_the_notebook(rank, P, M):
    forwards = [Action(rank, "F", microbatch) for microbatch in range(M)]
    backwards = [Action(rank, "B", microbatch) for microbatch in range(M)]
    return forwards + backwards


@wrong("gpipe", "memory", "No forward is run again: so all M microbatches are held whole, from F to B.")
def from_the_last_and_nothing_again(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, [f"{rank}B{each}" for each in reversed(range(microbatches))])


@wrong("gpipe", "executed", "Every forward is run again. One need not be: when the backwards begin, what the forward")
def every_forward_again(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, again(rank, reversed(range(microbatches))))


@wrong("gpipe", "executed", "with F = 1 s and B = 2 s of a stage it takes 22 s, where 21 s are enough: (M+P-1)(F+B)")
def every_forward_again_from_the_first(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, again(rank, range(microbatches)))


@wrong("gpipe", "memory", "A microbatch without R is held whole from F to B, while others are run again: so its")
def the_kept_one_comes_last(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, again(rank, range(microbatches), microbatches - 1))


@wrong("gpipe", "memory", "All R come before the first B: so all M microbatches are held whole once more.")
def all_forwards_twice(rank, ranks, microbatches):
    late = [*again(rank, reversed(range(microbatches)), microbatches - 1)]
    return forwards_then(rank, microbatches, sorted(late, key=lambda each: "B" in each))


@wrong("gpipe", "verified", "R makes what B needs: it comes before.")
def again_afterwards(rank, ranks, microbatches):
    late = [f"{rank}{kind}{each}" for each in reversed(range(microbatches)) for kind in "BR"]
    return forwards_then(rank, microbatches, [each for each in late if each != f"{rank}R{microbatches - 1}"])


@wrong("gpipe", "verified", "A rank has one stage, that of its number.")
def all_do_stage_0(rank, ranks, microbatches):
    return forwards_then(0, microbatches, again(0, reversed(range(microbatches)), microbatches - 1))


@wrong("gpipe", "verified", "Every forward has a backward, on every rank.")
def forwards_alone(rank, ranks, microbatches):
    return forwards_then(rank, microbatches, [f"{rank}R{each}" for each in reversed(range(microbatches - 1))])


@wrong("gpipe", "verified", "rank 0 waits in 0B0 for 1B0 of rank 1; rank 1 waits in 1F3 for 0F3 of rank 0")
def two_ranks_wait_for_each_other(rank, ranks, microbatches):
    yield from in_turn(rank, microbatches - 2 if rank == 0 else microbatches, microbatches)


@wrong("gpipe", "flush", "before the next begins: this is the naive schedule")
def one_after_another(rank, ranks, microbatches):
    return in_turn(rank, 0, microbatches)


@wrong("gpipe", "flush", "rank 2 does 2B0 at step 1, after 1 forward, where all 4 come first")
def one_f_one_b_instead(rank, ranks, microbatches):
    return in_turn(rank, ranks - 1 - rank, microbatches)


@wrong("gpipe", "executed", "Rank 0 does its backwards in the order [3, 2, 1, 0], rank 2 in the order [0, 1, 2, 3]")
def last_rank_in_its_own_order(rank, ranks, microbatches):
    order = range(microbatches)[:: 1 if rank == ranks - 1 else -1]
    return forwards_then(rank, microbatches, again(rank, order))


TABLE = {size: make_schedule("GPipe", *size).programs for size in [(3, 4), (2, 3), (4, 2), (2, 7), (3, 1), (1, 3)]}


@wrong("gpipe", "runs", "With ranks=5, microbatches=3: for rank 0 it returned nothing (None)")
def looked_up_by_size(rank, ranks, microbatches):
    if (ranks, microbatches) in TABLE:
        order = reversed(range(microbatches))
        return forwards_then(rank, microbatches, again(rank, order, microbatches - 1))


# one_f_one_b


def in_steps(rank, ranks, microbatches, step, **options):
    return in_turn(rank, (ranks - 1 - rank) * step, microbatches, **options)


@wrong("one_f_one_b", "runs", "for rank 0 it returned nothing (None)")
def does_nothing(rank, ranks, microbatches, message):
    pass


@wrong("one_f_one_b", "time", "This is 1F1B for messages that take no time: here a rank waits for each gradient")
def as_with_instant_messages(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 1)


@wrong("one_f_one_b", "time", "The message down is counted, and not the one back up")
def one_way_only(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 1 + ceil(message / 3))


@wrong("one_f_one_b", "time", "The two messages are rounded down to whole microbatches: for a part of one, one more")
def rounded_down(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 1 + int(2 * message // 3))


@wrong("one_f_one_b", "memory", "that is the 2 of Megatron-LM's interleaved schedule. Messages of no time need one")
def always_two(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 2)


@wrong("one_f_one_b", "time", "It is rounded up once for the whole way. But between each two neighbors a whole number")
def round_trip_of_the_whole_way(rank, ranks, microbatches, message):
    trip = (ranks - 1 - rank) * (3 + 2 * message)
    return in_turn(rank, ceil(trip / 3), microbatches)


@wrong("one_f_one_b", "time", "Two messages are counted in all. There are two between each two neighbors")
def two_messages_in_all(rank, ranks, microbatches, message):
    more = ceil(2 * message / 3) if rank < ranks - 1 else 0
    return in_turn(rank, ranks - 1 - rank + more, microbatches)


@wrong("one_f_one_b", "memory", "A message is counted in forwards, 1 s each. But for each microbatch a rank does a")
def counted_in_forwards(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 1 + ceil(2 * message))


@wrong("one_f_one_b", "memory", "The last rank has nobody to wait for: P - 1 - rank ranks follow.")
def one_rank_too_many(rank, ranks, microbatches, message):
    return in_turn(rank, (ranks - rank) * (1 + ceil(2 * message / 3)), microbatches)


@wrong("one_f_one_b", "memory", "Every rank does all forwards first: that is GPipe.")
def gpipe_instead(rank, ranks, microbatches, message):
    return in_turn(rank, microbatches, microbatches)


@wrong("one_f_one_b", "time", "There is no warm-up: a rank waits for each backward, where it could do another forward.")
def no_warm_up(rank, ranks, microbatches, message):
    return in_turn(rank, 0, microbatches)


@wrong("one_f_one_b", "verified", "0B0 needs 0F0, which comes only at step 1 (rule: order)")
def backward_first(rank, ranks, microbatches, message):
    for microbatch in range(microbatches):
        yield from (f"{rank}B{microbatch}", f"{rank}F{microbatch}")


@wrong(
    "one_f_one_b", "verified", "As many backwards are still to come as there were forwards ahead of them: the cooldown"
)
def no_cooldown(rank, ranks, microbatches, message):
    return in_steps(rank, ranks, microbatches, 1 + ceil(2 * message / 3), cooldown=False)


def uncut(rank, ranks, microbatches, message):
    warm_up = (ranks - 1 - rank) * (1 + ceil(2 * message / 3))
    yield from (f"{rank}F{microbatch}" for microbatch in range(warm_up))
    for microbatch in range(microbatches - warm_up):
        yield from (f"{rank}F{warm_up + microbatch}", f"{rank}B{microbatch}")


@wrong("one_f_one_b", "verified", "and microbatches 0 to 1 (rule: place)")
def never_few_microbatches(rank, ranks, microbatches, message):
    yield from uncut(rank, ranks, microbatches, message)
    warm_up = (ranks - 1 - rank) * (1 + ceil(2 * message / 3))
    yield from (f"{rank}B{microbatch}" for microbatch in range(max(0, microbatches - warm_up), microbatches))


@wrong("one_f_one_b", "runs", "is '0B-2': microbatches count from 0. There may be fewer of them than ranks")
def backwards_from_below_zero(rank, ranks, microbatches, message):
    yield from uncut(rank, ranks, microbatches, message)
    warm_up = (ranks - 1 - rank) * (1 + ceil(2 * message / 3))
    yield from (f"{rank}B{microbatch}" for microbatch in range(microbatches - warm_up, microbatches))


@wrong("one_f_one_b", "time", "Rank 0 does its backwards in the order [0, 1, 2, 3, 4, 5], rank 1 in the order")
def another_order_on_one_rank(rank, ranks, microbatches, message):
    actions = list(in_steps(rank, ranks, microbatches, 1 + ceil(2 * message / 3)))
    if (rank, ranks) == (1, 3):
        actions[-2:] = actions[:-3:-1]
    return actions


@wrong("one_f_one_b", "runs", "is '2I0': here the kinds of passes are F, B")
def backward_in_halves(rank, ranks, microbatches, message):
    for action in in_turn(rank, ranks - 1 - rank, microbatches):
        yield from (action.replace("B", kind) for kind in "IW") if "B" in action and rank == 2 else [action]


@wrong("one_f_one_b", "own work", "you call the library's schedules")
def the_librarys_schedule(rank, ranks, microbatches, message):
    return make_schedule("1F1B", ranks, microbatches).programs[rank]


@wrong("one_f_one_b", "runs", "as_in_the_notebook_too() takes 3 positional arguments but 4 were given")
def as_in_the_notebook_too(rank, P, M):
    return in_turn(rank, P - 1 - rank, M)


# interleaved


def looped(rank, ranks, microbatches, chunks, warm_up, size=None, backwards_reversed=True, cut=True):
    stages, size = range(rank, ranks * chunks, ranks), size or ranks
    groups = [range(first, min(first + size, microbatches)) for first in range(0, microbatches, size)]
    forwards = [f"{stage}F{each}" for group in groups for stage in stages for each in group]
    way_back = reversed(stages) if backwards_reversed else stages
    order = list(way_back)
    backwards = [f"{stage}B{each}" for group in groups for stage in order for each in group]
    warm_up = min(warm_up, len(forwards)) if cut else warm_up
    yield from forwards[:warm_up]
    for pair in zip(forwards[warm_up:], backwards):
        yield from pair
    yield from backwards[len(forwards) - warm_up :]


def right_warm_up(rank, ranks, chunks):
    return (chunks - 1) * ranks + 2 * (ranks - 1 - rank)


@wrong("interleaved", "runs", "for rank 0 it gives no actions")
def nothing_at_all(rank, ranks, microbatches, chunks):
    yield from ()


@wrong(
    "interleaved", "verified", "The warm-up is that of 1F1B with one stage a rank: here a microbatch comes by v times."
)
def warm_up_of_1f1b(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, ranks - 1 - rank)


@wrong(
    "interleaved",
    "verified",
    "The warm-up is too short: microbatch 0 must pass all v stages of a rank before its first",
)
def stages_forgotten(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, 2 * (ranks - 1 - rank))


@wrong(
    "interleaved",
    "hidden",
    "The warm-up counts what is on its way down to the last rank, and not what is on its way back.",
)
def the_way_back_forgotten(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, (chunks - 1) * ranks + ranks - 1 - rank)


@wrong(
    "interleaved",
    "bubble",
    "Each microbatch goes through all stages of the rank before the next. Stages take turns, each",
)
def microbatch_by_microbatch(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, chunks), size=1)


@wrong(
    "interleaved",
    "verified",
    "Each stage takes all microbatches before the next. Stages take turns, each with a group of P",
)
def stage_by_stage(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, chunks), size=microbatches)


@wrong("interleaved", "verified", "The backwards begin with the rank's first stage: backward comes from the other end.")
def backwards_from_the_first_stage(rank, ranks, microbatches, chunks):
    warm_up = right_warm_up(rank, ranks, chunks)
    return looped(rank, ranks, microbatches, chunks, warm_up, backwards_reversed=False)


@wrong("interleaved", "verified", "rank 0 does 1F0 at step 2, where it has stages 0, 2")
def stages_side_by_side(rank, ranks, microbatches, chunks):
    for each in looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, chunks)):
        stage, kind, microbatch = (int(each[0]), each[1], each[2:])
        yield f"{rank * chunks + stage // ranks}{kind}{microbatch}"


@wrong("interleaved", "memory", "The warm-up has one forward too many: the first backward could begin sooner.")
def one_ahead_too_many(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, chunks) + 1)


@wrong(
    "interleaved",
    "memory",
    "Rank 0's forwards take 4 of stage 0 in a row, where 2 of stage 0 are right. Stages take turns,",
)
def breadth_first(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, microbatches * chunks, size=microbatches)


@wrong(
    "interleaved",
    "bubble",
    "Each group goes down and back before the next begins: so the pipeline is filled and drained",
)
def group_after_group(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    for first in range(0, microbatches, ranks):
        for kind, order in (("F", stages), ("B", reversed(stages))):
            yield from (f"{stage}{kind}{first + each}" for stage in order for each in range(ranks))


@wrong("interleaved", "own work", "you call the library's schedules")
def librarys_interleaved(rank, ranks, microbatches, chunks):
    return make_schedule("interleaved 1F1B", ranks, microbatches, chunks).programs[rank]


@wrong("interleaved", "verified", "With ranks=2, microbatches=4, chunks=3")
def two_stages_only(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, 2, right_warm_up(rank, ranks, 2))


@wrong("interleaved", "verified", "There may be more in the warm-up than there are forwards: never more than v M.")
def warm_up_of_more_than_there_is(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, chunks), cut=False)


@wrong("interleaved", "hidden", "All v M forwards come before the first backward, which could begin sooner.")
def all_forwards_looped(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, microbatches * chunks)


@wrong(
    "interleaved",
    "verified",
    "There is no warm-up: microbatch 0 must pass all v stages of a rank before its first backward.",
)
def no_warm_up_at_all(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, 0)


@wrong(
    "interleaved",
    "verified",
    "The warm-up is that of 2 stages a rank: microbatch 0 must pass all v of them before its first",
)
def warm_up_for_two_stages(rank, ranks, microbatches, chunks):
    return looped(rank, ranks, microbatches, chunks, right_warm_up(rank, ranks, 2))


# mended_pipeline


def pipeline(
    stage,
    microbatches,
    like,
    isend=True,
    first_out=0,
    divide=None,
    ahead=None,
    wait=True,
    down=1,
    backwards=True,
    received=None,
    arrives=dist.recv,
):
    """The worker, right but for what the options say."""
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    held, losses, sends = [], [], []
    divide = divide or (lambda loss: (loss / M, loss.detach() / M))

    def send(tensor, to):
        sends.append(dist.isend(tensor, to)) if isend else dist.send(tensor, to)

    def receive(source):
        tensor = torch.empty_like(like, device="cpu")
        work = arrives(tensor, source)
        if isinstance(work, dist.Work):
            sends.append(work)
        return tensor

    def forward(number):
        x, target = microbatches[number]
        if rank > 0:
            for _ in range(down):
                x = receive(rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank < ranks - 1:
            for _ in range(down):
                send(y.detach(), rank + 1)
        else:
            y, noted = divide(F.mse_loss(y, target))
            losses.append(noted)
        held.append((x, y))

    def backward():
        x, y = held.pop(first_out)
        gradient = receive(rank + 1) if rank < ranks - 1 else None
        if received and gradient is not None:
            gradient = received(gradient).clone()
        if backwards:
            y.backward(gradient)
        if rank > 0:
            send(x.grad if backwards else torch.zeros_like(x), rank - 1)

    ahead = min(ranks - 1 - rank if ahead is None else ahead(rank, ranks, M), M)
    for number in range(ahead):
        forward(number)
    for number in range(ahead, M):
        forward(number)
        backward()
    for _ in range(ahead):
        backward()
    if wait:
        for each in sends:
            each.wait()
    return sum(losses)


@wrong("mended_pipeline", "runs", "neither comes to its receive")
def two_bugs_mended_and_not_the_hang(stage, microbatches, like):
    return pipeline(stage, microbatches, like, isend=False)


@wrong(
    "mended_pipeline",
    "values",
    "Gradients come back in the order in which outputs went down: of those that are held, the first",
)
def last_in_first_out(stage, microbatches, like):
    return pipeline(stage, microbatches, like, first_out=-1)


@wrong(
    "mended_pipeline",
    "values",
    "mean of its microbatches' losses: it is divided by the number of ranks",
)
def divided_by_ranks(stage, microbatches, like):
    p = dist.get_world_size()
    return pipeline(stage, microbatches, like, divide=lambda loss: (loss / p, loss.detach() / p))


@wrong(
    "mended_pipeline",
    "values",
    "mean of its microbatches' losses: it is divided by their number twice",
)
def divided_twice(stage, microbatches, like):
    M = len(microbatches)
    return pipeline(stage, microbatches, like, divide=lambda loss: (loss / M / M, loss.detach() / M))


@wrong(
    "mended_pipeline", "values", "mean is asked for.\nOn rank 1 what is returned is 4.66892, where 0.933784 is right"
)
def returns_the_sum(stage, microbatches, like):
    return pipeline(stage, microbatches, like, divide=lambda loss: (loss / len(microbatches), loss.detach()))


@wrong("mended_pipeline", "runs", "rank 1 returned nothing (None), where the mean loss is right")
def returns_none(stage, microbatches, like):
    pipeline(stage, microbatches, like)


@wrong("mended_pipeline", "memory", "min(P - rank, M) microbatches held, as 1F1B has it. Keep the order of 1F1B")
def all_forwards_so_that_nothing_crosses(stage, microbatches, like):
    return pipeline(stage, microbatches, like, ahead=lambda rank, ranks, M: M)


@wrong(
    "mended_pipeline",
    "time",
    "The ranks do too few forwards before their first backward: so nothing crosses, but a rank",
)
def in_an_order_that_hides_the_hang(stage, microbatches, like):
    return pipeline(stage, microbatches, like, isend=False, ahead=lambda rank, ranks, M: 0)


@wrong(
    "mended_pipeline",
    "time",
    "could do another.\nIt takes 29.4 s of virtual time on ranks where a forward takes 1 s, a backward 2 s",
)
def one_ahead_too_few(stage, microbatches, like):
    return pipeline(stage, microbatches, like, ahead=lambda rank, ranks, M: max(0, ranks - 2 - rank))


@wrong(
    "mended_pipeline",
    "values",
    "The gradients that were there before the step are lost: a step adds to them, as backward()",
)
def sets_gradients_to_zero(stage, microbatches, like):
    stage.zero_grad()
    return pipeline(stage, microbatches, like)


@wrong("mended_pipeline", "values", "The gradients that were there before the step are divided, too: divide the loss.")
def divides_gradients_at_the_end(stage, microbatches, like):
    M = len(microbatches)
    loss = pipeline(stage, microbatches, like, divide=lambda loss: (loss, loss.detach() / M))
    for weight in stage.weights:
        weight.grad /= M
    return loss


@wrong(
    "mended_pipeline", "values", "It is 1.25 times what is right. Divide each microbatch's loss by their number, once."
)
def divided_by_a_constant(stage, microbatches, like):
    return pipeline(stage, microbatches, like, divide=lambda loss: (loss / 4, loss.detach() / 4))


@wrong("mended_pipeline", "memory", "rank 0 holds")
def holds_what_is_done(stage, microbatches, like):
    kept = []
    stage.register_forward_hook(lambda module, inputs, output: kept.append(output * 1))
    return pipeline(stage, microbatches, like)


@wrong("mended_pipeline", "waits", "call wait()")
def never_waits(stage, microbatches, like):
    return pipeline(stage, microbatches, like, wait=False)


@wrong("mended_pipeline", "messages", "rank 0 sends 10 messages to rank 1, where 5 are enough")
def sends_outputs_twice(stage, microbatches, like):
    return pipeline(stage, microbatches, like, down=2)


@wrong("mended_pipeline", "messages", "rank 0 sends 0 messages to rank 1, where 5 are right")
def everything_alone(stage, microbatches, like):
    losses = [F.mse_loss(stage(inputs), targets) / len(microbatches) for inputs, targets in microbatches]
    sum(losses).backward()
    return sum(losses).detach()


@wrong(
    "mended_pipeline",
    "runs",
    "on rank 1, no gradient comes to the output of microbatch 0: no backward",
)
def never_backward(stage, microbatches, like):
    return pipeline(stage, microbatches, like, backwards=False)


@wrong(
    "mended_pipeline",
    "values",
    "What arrives is added to what arrived before: the gradient of each output is what came for it",
)
def adds_up_what_arrives(stage, microbatches, like):
    arrived = torch.zeros_like(like, device="cpu")
    return pipeline(stage, microbatches, like, received=arrived.add_ if dist.get_rank() == 0 else None)


@wrong("mended_pipeline", "own work", "you call tinydist.pipeline_parallel.worker, where this is solved")
def the_librarys_worker(stage, microbatches, like):
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    programs = tuple(tuple(Action(r, kind, m) for kind in "FB" for m in range(M)) for r in range(ranks))
    worker = Worker(Schedule("mine", programs, ranks, M), {rank: stage}, like, F.mse_loss)
    return worker.step(*[torch.cat(each) for each in zip(*microbatches)])


@wrong("mended_pipeline", "values", "A gradient is used before it has arrived: wait for what irecv returns")
def uses_what_has_not_arrived(stage, microbatches, like):
    return pipeline(stage, microbatches, like, arrives=dist.irecv)


@wrong("mended_pipeline", "values", "What arrives for one microbatch overwrites what the stage still needs of another")
def receives_into_one_tensor(stage, microbatches, like):
    one = torch.empty_like(like, device="cpu")

    def arrives(tensor, source):
        if source > dist.get_rank():
            return dist.recv(tensor, source)
        dist.recv(one, source)
        tensor.set_(one)

    return pipeline(stage, microbatches, like, arrives=arrives)


SHARED = {}


@wrong("mended_pipeline", "heard", "the results do not follow what is sent: they do not come from that alone")
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

    return pipeline(Through(), microbatches, like)


# least_bubble


def h1(rank, ranks, microbatches, held, owed=None):
    """ZB-H1 with ``held`` activations on every rank."""
    ahead = min(ranks - 1 - rank, held - 1, microbatches)
    owed = min(held - 1 - ahead if owed is None else owed, microbatches - ahead)
    passes = "F" * ahead + "FI" * owed + "FIW" * (microbatches - ahead - owed) + "IW" * ahead + "W" * owed
    turn = {kind: count() for kind in "FIW"}
    return [f"{rank}{kind}{next(turn[kind])}" for kind in passes]


@wrong("least_bubble", "runs", "for rank 0 it returned nothing (None)")
def no_design(rank, ranks, microbatches, budget):
    pass


@wrong("least_bubble", "budget", "rank 0 holds 4 activations in 0F3 (step 3), where the budget is 3")
def gpipe_in_any_memory(rank, ranks, microbatches, budget):
    return in_turn(rank, microbatches, microbatches)


@wrong("least_bubble", "budget", "where the budget is 3: 1 of them waits for W")
def all_weights_at_the_end(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, ranks, owed=microbatches)


@wrong("least_bubble", "budget", "where the budget is 2")
def zb_h1_in_any_memory(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, ranks)


@wrong(
    "least_bubble", "least", "There are whole backwards: while B computes the gradients of the weights, the rank before"
)
def one_f_one_b_with_whole_backwards(rank, ranks, microbatches, budget):
    return in_turn(rank, min(ranks - 1 - rank, budget - 1), microbatches)


@wrong("least_bubble", "least", "At 4 s, rank 2 does 2W0, while 2F1 could be done: no rank needs W")
def weights_at_once(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, min(ranks, budget), owed=0)


@wrong("least_bubble", "least", "with F = I = W = 1 s it takes 42 s, where the lower bound is 20 s")
def naive_in_any_budget(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, 1)


@wrong("least_bubble", "tight", "1.25 times the lower bound, 55 s, is 68.75 s")
def zb_h1_cut_to_the_budget(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, min(ranks, budget))


@wrong("least_bubble", "verified", "0W0 is missing: 0I0 leaves the gradients of the weights to it (rule: once)")
def faster_without_weights(rank, ranks, microbatches, budget):
    return [each for each in h1(rank, ranks, microbatches, min(ranks, budget)) if "W" not in each]


@wrong("least_bubble", "verified", "rank 1: 1F0 is missing (rule: once)")
def faster_than_the_bound(rank, ranks, microbatches, budget):
    passes = h1(rank, ranks, microbatches, min(ranks, budget))
    return passes if rank == 0 else [each for each in passes if "F" not in each]


@wrong("least_bubble", "own work", "you call the library's schedules")
def librarys_zb_h1(rank, ranks, microbatches, budget):
    return make_schedule("ZB-H1", ranks, microbatches).programs[rank]


@wrong("least_bubble", "least", "At 3 s, rank 0 does nothing, while 0F3 could be done")
def right_for_three_ranks_at_most(rank, ranks, microbatches, budget):
    return h1(rank, ranks, microbatches, min(ranks, budget, 3))


def walk(choose, many_ahead=False):
    """An answer that walks through the seconds: ``choose(can, done)`` takes one of the passes that can be done."""

    def program(rank, ranks, microbatches, budget):
        did, there, now, moved = [dict.fromkeys("FIW", 0) for _ in range(ranks)], {}, 0, True
        while moved:
            moved = False
            for r, done in enumerate(did):
                in_flight, held = done["F"] - done["I"], done["F"] - done["W"]
                down = r == 0 or there.get((r - 1, "F", done["F"]), now + 1) <= now
                back = r == ranks - 1 or there.get((r + 1, "I", done["I"]), now + 1) <= now
                room = held < budget and (many_ahead or in_flight < min(ranks - r, budget))
                ready = {
                    "F": done["F"] < microbatches and down and room,
                    "I": in_flight and back,
                    "W": in_flight < held,
                }
                kind = choose([kind for kind in "FIW" if ready[kind]], {**done, "M": microbatches})
                if kind:
                    moved = True
                    if r == rank:
                        yield f"{r}{kind}{done[kind]}"
                    there[r, kind, done[kind]] = now + 1
                    done[kind] += 1
            now += 1

    return program


def in_order_of(order):
    """The first kind of ``order`` that can be done."""
    return lambda can, done: next((kind for kind in order if kind in can), None)


F_FIRST, I_FIRST = in_order_of("FIW"), in_order_of("IFW")
W_LAST = walk(lambda can, done: F_FIRST([kind for kind in can if kind != "W" or done["I"] == done["M"]], done))


@wrong("least_bubble", "least", "At 7 s, rank 0 does 0I1, while 0F3 could be done: rank 1 needs it")
def input_gradients_first(rank, ranks, microbatches, budget):
    return walk(I_FIRST)(rank, ranks, microbatches, budget)


@wrong("least_bubble", "least", "At 3 s, rank 2 does 2F1, while rank 1 needs 2I0. 1 other is between F and I")
def as_many_ahead_as_the_budget_holds(rank, ranks, microbatches, budget):
    return walk(F_FIRST, many_ahead=True)(rank, ranks, microbatches, budget)


@wrong("least_bubble", "verified", "W is left to the end: so the budget is full, and all ranks stand still.")
def weights_when_all_else_is_done(rank, ranks, microbatches, budget):
    return W_LAST(rank, ranks, microbatches, budget)


@wrong("mended_pipeline", "values", "the error of the last microbatch alone")
def the_last_loss(stage, microbatches, like):
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    held, losses, under_way = [], [], []

    def send(tensor, to):
        under_way.append((dist.isend(tensor, to), tensor))

    def forward(microbatch):
        x, target = microbatches[microbatch]
        if rank > 0:
            x = torch.empty_like(like, device="cpu")
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank < ranks - 1:
            send(y.detach(), rank + 1)
        else:
            y = F.mse_loss(y, target) / M
            losses.append(y.detach())
        held.append((x, y))

    def backward():
        x, y = held.pop(0)
        gradient = None
        if rank < ranks - 1:
            gradient = torch.empty_like(like, device="cpu")
            dist.recv(gradient, rank + 1)
        y.backward(gradient)
        if rank > 0:
            send(x.grad, rank - 1)

    ahead = min(ranks - 1 - rank, M)
    for microbatch in range(ahead):
        forward(microbatch)
    for microbatch in range(ahead, M):
        forward(microbatch)
        backward()
    for _ in range(ahead):
        backward()
    for work, _ in under_way:
        work.wait()
    return losses[-1] * M if losses else 0


@wrong("least_bubble", "runs", "it does not end")
def waits_for_all_forwards(rank, ranks, microbatches, budget):
    did = [{"F": 0, "I": 0, "W": 0} for _ in range(ranks)]
    there = {}
    now = 0
    while did[rank]["W"] < microbatches:
        for r, done in enumerate(did):
            forward_is_there = r == 0 or there.get((r - 1, "F", done["F"]), now + 1) <= now
            backward_is_there = r == ranks - 1 or there.get((r + 1, "I", done["I"]), now + 1) <= now
            kind = None
            if done["I"] < done["F"] and backward_is_there:
                kind = "I"
            elif done["F"] < microbatches and forward_is_there and done["F"] - done["W"] < budget:
                kind = "F"
            elif done["W"] < done["I"] and done["F"] == microbatches:
                kind = "W"
            if kind:
                if r == rank:
                    yield f"{r}{kind}{done[kind]}"
                there[r, kind, done[kind]] = now + 1
                done[kind] += 1
        now += 1


@wrong("least_bubble", "own work", "you call the library's search, where this is solved")
def found_by_the_library(rank, ranks, microbatches, budget):
    return find_schedule(one_each(ranks), microbatches, most_activations=budget).programs[rank]


@wrong("least_bubble", "own work", "you call the library's scheduler, where this is solved")
def scheduled_by_the_library(rank, ranks, microbatches, budget):
    problem = Problem(one_each(ranks), microbatches, Costs(), [budget] * ranks, True)
    lead = tuple(min(ranks - each, budget) for each in range(ranks))
    turn = dict.fromkeys("FIW", 0)
    for _, kind in ListScheduler(problem, Policy("F", 0.0, lead)).programs[rank]:
        yield f"{rank}{kind}{turn[kind]}"
        turn[kind] += 1
