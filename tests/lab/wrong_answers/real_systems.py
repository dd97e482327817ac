"""Wrong answers to the exercises of 12_real_systems: the property that rejects each, and what it is told."""

import os
from collections import defaultdict
from itertools import product

import torch
import torch.distributed as dist
from lab.registered import collection

from tinydist.diagnose.command import together
from tinydist.planner import find_model

WRONG_ANSWERS, wrong = collection()


# train_under_torchrun


def trained(x, targets, epochs, size, use_gpu, augment, save, **how):
    """``how``: gpu, batches, share, loss, seeds, sums, told, saves, prints, end, begin."""
    backend = how.get("begin", lambda: dist.init_process_group("gloo"))
    backend()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    use_gpu(how.get("gpu", lambda: int(os.environ["LOCAL_RANK"]))())
    own, everybodys = how.get("seeds", lambda rank: (7 + rank, 7))(rank)
    torch.manual_seed(7)
    model = torch.nn.Linear(3, 1, bias=False)
    torch.manual_seed(own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffled = torch.Generator().manual_seed(everybodys)
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=shuffled)
        for batch in how.get("batches", lambda order, rank, ranks: order.split(size))(order, rank, ranks):
            mine = how.get("share", lambda batch, rank, ranks: batch[rank::ranks])(batch, rank, ranks)
            errors = model(augment(x[mine])) - targets[mine]
            loss = how.get("loss", lambda errors, rows, ranks: errors.square().sum() / rows)(errors, len(batch), ranks)
            optimizer.zero_grad()
            loss.backward()
            how.get("sums", dist.all_reduce)(model.weight.grad)
            optimizer.step()
        told = loss.detach().clone()
        how.get("told", dist.all_reduce)(told)
        if how.get("prints", lambda rank: rank == 0)(rank):
            print(f"epoch {epoch}: loss {told.item():.4f}")
        if how.get("saves", lambda rank: rank == 0)(rank):
            save(epoch, model.weight.detach().clone())
    how.get("end", dist.destroy_process_group)()
    return model.weight


@wrong("train_under_torchrun", "values", "Nobody adds up the gradients")
def each_for_itself(*arguments):
    return trained(*arguments, sums=lambda gradient: None)


@wrong("train_under_torchrun", "values", "Divide each sum by the rows of the whole batch")
def mean_of_means(*arguments):
    return trained(*arguments, loss=lambda errors, rows, ranks: errors.square().mean() / ranks)


@wrong("train_under_torchrun", "values", "as many times too large as there are ranks")
def sum_of_means(*arguments):
    return trained(*arguments, loss=lambda errors, rows, ranks: errors.square().mean())


@wrong("train_under_torchrun", "values", "Every rank works on the whole batch")
def nothing_dealt_out(*arguments):
    return trained(
        *arguments,
        share=lambda batch, rank, ranks: batch,
        loss=lambda errors, rows, ranks: errors.square().mean() / ranks,
    )


@wrong("train_under_torchrun", "values", "Rows that are left over")
def what_does_not_divide_is_dropped(*arguments):
    return trained(*arguments, share=lambda batch, rank, ranks: batch[: len(batch) // ranks * ranks][rank::ranks])


@wrong("train_under_torchrun", "values", "Ranks shuffle in orders of their own")
def orders_of_their_own(*arguments):
    return trained(*arguments, seeds=lambda rank: (7 + rank, 7 + rank))


@wrong("train_under_torchrun", "values", "All ranks augment with the same random numbers")
def one_seed_for_all(*arguments):
    return trained(*arguments, seeds=lambda rank: (7, 7))


@wrong("train_under_torchrun", "values", "so the second tells which one is its own")
def by_rank(*arguments):
    return trained(*arguments, gpu=lambda: int(os.environ["RANK"]))


@wrong("train_under_torchrun", "values", "All processes of a node use its first GPU")
def first_gpu(*arguments):
    return trained(*arguments, gpu=lambda: 0)


@wrong("train_under_torchrun", "values", "one is enough, as all have the same weight")
def all_save(*arguments):
    return trained(*arguments, saves=lambda rank: True)


@wrong("train_under_torchrun", "values", "The process group is still open")
def never_ended(*arguments):
    return trained(*arguments, end=lambda: None)


@wrong("train_under_torchrun", "printed", "rank 1 prints, too")
def all_print(*arguments):
    return trained(*arguments, prints=lambda rank: True)


@wrong("train_under_torchrun", "printed", "rank 0 prints 0 lines with numbers")
def nobody_prints(*arguments):
    return trained(*arguments, prints=lambda rank: False)


@wrong("train_under_torchrun", "runs", "Default process group has not been initialized")
def never_begun(*arguments):
    return trained(*arguments, begin=lambda: None)


@wrong("train_under_torchrun", "runs", "where the weight is right, of 1 x 3 numbers")
def returns_nothing(*arguments):
    trained(*arguments)


@wrong("train_under_torchrun", "runs", "two ranks do not agree on what passes between them")
def only_rank_0_adds_up(x, targets, epochs, size, use_gpu, augment, save):
    def sums(tensor):
        if dist.get_rank() == 0:
            dist.all_reduce(tensor)

    return trained(x, targets, epochs, size, use_gpu, augment, save, sums=sums)


@wrong("train_under_torchrun", "values", "Rows come twice, until all ranks have as many")
def dealt_out_as_distributed_sampler_does(*arguments):
    return trained(
        *arguments,
        share=lambda batch, rank, ranks: torch.cat([batch, batch[: -len(batch) % ranks]])[rank::ranks],
    )


@wrong("train_under_torchrun", "values", "The last batch is left out where it is short")
def a_short_batch_is_left_out(*arguments):
    size = arguments[3]
    return trained(
        *arguments, batches=lambda order, rank, ranks: [each for each in order.split(size) if len(each) == size]
    )


@wrong("train_under_torchrun", "values", "its largest share is 'more rows than needed'")
def batches_of_its_own(*arguments):
    """``size`` rows for each rank."""
    return trained(
        *arguments,
        batches=lambda order, rank, ranks: order[rank::ranks].split(arguments[3]),
        share=lambda batch, rank, ranks: batch,
    )


@wrong("train_under_torchrun", "values", "its largest share is 'more rows than needed'")
def the_last_takes_the_rest(*arguments):
    def share(batch, rank, ranks):
        each = len(batch) // ranks
        return batch[rank * each :] if rank == ranks - 1 else batch[rank * each : (rank + 1) * each]

    return trained(*arguments, share=share)


@wrong("train_under_torchrun", "values", "to be added up, and not to be averaged")
def divided_twice(*arguments):
    def sums(gradient):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()

    return trained(*arguments, sums=sums)


@wrong("train_under_torchrun", "values", "divide by the number of its own")
def divided_by_the_size(*arguments):
    return trained(*arguments, loss=lambda errors, rows, ranks: errors.square().sum() / arguments[3])


@wrong("train_under_torchrun", "values", "or the rate grows")
def a_rate_that_grows(*arguments):
    """As the linear scaling rule says, which is for batches that grow with the ranks."""

    def sums(gradient):
        dist.all_reduce(gradient)
        gradient *= dist.get_world_size()

    return trained(*arguments, sums=sums)


@wrong("train_under_torchrun", "values", "or waits for their sum")
def never_waited(*arguments):
    return trained(*arguments, sums=lambda gradient: dist.all_reduce(gradient, async_op=True))


@wrong("train_under_torchrun", "values", "ranks that augment with these random numbers is 2, where 1 is right")
def seeds_of_a_node(*arguments):
    return trained(*arguments, seeds=lambda rank: (7 + int(os.environ["LOCAL_RANK"]), 7))


@wrong("train_under_torchrun", "printed", "This is the loss of rank 0's own share")
def the_loss_of_its_share(*arguments):
    return trained(*arguments, told=lambda loss: None)


@wrong("train_under_torchrun", "printed", "rank 0 prints [0.0, nan]")
def a_mean_of_no_rows(*arguments):
    return trained(*arguments, loss=lambda errors, rows, ranks: errors.square().mean() * len(errors) / rows)


@wrong("train_under_torchrun", "bytes", "bytes in all, where")
def rows_are_sent(x, targets, *others):
    def share(batch, rank, ranks):
        dist.broadcast(x, 0)
        dist.broadcast(targets, 0)
        return batch[rank::ranks]

    return trained(x, targets, *others, share=share)


# choose_flags


def chosen(price, gpus, room, goal, limit, *, tps=(1, 2, 4, 8), rows=(1, 2, 4), more=None, fits=None, costs=None):
    best = None
    for count, tp, pp, row, words in product(gpus, tps, (1, 2, 4, 8), rows, more or MORE):
        flags = (
            f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} --micro-batch-size {row} {words}"
        )
        try:
            seconds, nbytes = price(count, flags)
        except ValueError:
            continue
        if not (fits(seconds, nbytes) if fits else nbytes <= room and seconds <= limit):
            continue
        cost = (costs or COSTS)[goal](count, seconds, nbytes)
        if best is None or cost < best[0]:
            best = cost, count, flags
    return best[1:] if best else None


MORE = ["", "--use-distributed-optimizer", "--recompute-granularity full"]
MORE += ["--use-distributed-optimizer --recompute-granularity full"]
COSTS = {
    "fastest": lambda count, seconds, nbytes: seconds,
    "smallest": lambda count, seconds, nbytes: nbytes,
    "cheapest": lambda count, seconds, nbytes: count * seconds,
}


@wrong("choose_flags", "goal", "It has to fit: nbytes <= room")
def whatever_it_holds(price, gpus, room, goal, limit):
    return chosen(price, gpus, room, goal, limit, fits=lambda seconds, nbytes: seconds <= limit)


@wrong("choose_flags", "goal", "A step may take `limit` seconds at most")
def whenever_it_ends(price, gpus, room, goal, limit):
    return chosen(price, gpus, room, goal, limit, fits=lambda seconds, nbytes: nbytes <= room)


@wrong("choose_flags", "goal", "What takes all the room fits, too")
def with_some_room_left(price, gpus, room, goal, limit):
    return chosen(price, gpus, room, goal, limit, fits=lambda seconds, nbytes: nbytes < room and seconds <= limit)


@wrong("choose_flags", "goal", "A step that takes just `limit` is in time")
def with_some_time_left(price, gpus, room, goal, limit):
    return chosen(price, gpus, room, goal, limit, fits=lambda seconds, nbytes: nbytes <= room and seconds < limit)


@wrong("choose_flags", "goal", "This is the fastest that fits, whatever the goal is")
def always_the_fastest(*arguments):
    return chosen(*arguments, costs=dict.fromkeys(COSTS, COSTS["fastest"]))


@wrong("choose_flags", "goal", "This has the fewest GPUs")
def as_few_as_possible(*arguments):
    return chosen(*arguments, costs=COSTS | {"cheapest": lambda count, seconds, nbytes: (count, seconds)})


@wrong("choose_flags", "goal", "Recomputation is never tried")
def nothing_twice(*arguments):
    return chosen(*arguments, more=MORE[:2])


@wrong("choose_flags", "goal", "The distributed optimizer, which is ZeRO-1, is never tried")
def nothing_sharded(*arguments):
    return chosen(*arguments, more=MORE[::2])


@wrong("choose_flags", "goal", "Layers are never cut")
def whole_layers(*arguments):
    return chosen(*arguments, tps=(1,))


@wrong("choose_flags", "goal", "Microbatches are always of one sequence")
def one_by_one(*arguments):
    return chosen(*arguments, rows=(1,))


@wrong("choose_flags", "goal", "it says that there is nothing, but there is")
def gives_up(*arguments):
    return None


@wrong("choose_flags", "flags", "GPUs are not for rent")
def as_many_as_nobody_has(*arguments):
    return 12, "--micro-batch-size 1"


@wrong("choose_flags", "flags", "unrecognized arguments: --zero 1")
def flags_of_another_system(price, gpus, *others):
    return gpus[0], "--micro-batch-size 1 --zero 1"


@wrong("choose_flags", "flags", "where (GPUs, flags) is right, or None")
def flags_alone(*arguments):
    found = chosen(*arguments)
    return found and found[1]


@wrong("choose_flags", "runs", "heads (25) must be divisible by tp (")
def all_must_go_together(price, gpus, *others):
    return min((price(count, f"--tensor-model-parallel-size {tp}"), count) for count in gpus for tp in (1, 2, 4, 8))


@wrong("choose_flags", "own work", "you call tinydist.planner, where this is solved")
def asks_the_planner(*arguments):
    find_model("Llama 3 8B").flops(1)
    return chosen(*arguments)


@wrong("choose_flags", "goal", "The most GPUs are not the cheapest")
def all_gpus_that_there_are(price, gpus, *others):
    return chosen(price, [max(gpus)], *others)


@wrong("choose_flags", "goal", "Only the first number of GPUs is tried")
def the_fewest_gpus(price, gpus, *others):
    return chosen(price, [min(gpus)], *others)


@wrong("choose_flags", "goal", "The smallest holds the fewest bytes on each GPU")
def bytes_of_all(*arguments):
    return chosen(*arguments, costs=COSTS | {"smallest": lambda count, seconds, nbytes: count * nbytes})


@wrong("choose_flags", "goal", "There is a way that is")
def a_gigabyte_is_2_to_the_30(price, gpus, room, *others):
    return chosen(price, gpus, room / 2**30 * 1e9, *others)


@wrong("choose_flags", "goal", "There is never a pipeline")
def within_eight(price, gpus, *others):
    """Tensor and pipeline groups together stay in a node."""

    def within(count, flags):
        _, tp, _, pp, *_ = flags.split()
        if int(tp) * int(pp) > 8:
            raise ValueError("not in a node")
        return price(count, flags)

    return chosen(within, gpus, *others)


@wrong("choose_flags", "goal", "Recomputation is never tried")
def recomputed_where_nothing_else_fits(*arguments):
    return chosen(*arguments, more=MORE[:2]) or chosen(*arguments, more=MORE[2:])


@wrong("choose_flags", "flags", "where (GPUs, flags) is right, or None")
def the_wrong_way_round(*arguments):
    found = chosen(*arguments)
    return found and found[::-1]


@wrong("choose_flags", "flags", "0 GPUs are not for rent")
def no_gpus_where_nothing_will_do(*arguments):
    return chosen(*arguments) or (0, "")


@wrong("choose_flags", "runs", "ValueError: nothing will do")
def raises_where_nothing_will_do(*arguments):
    found = chosen(*arguments)
    if not found:
        raise ValueError("nothing will do")
    return found


# mended_elastic


def elastic(group, files, batch_of, steps, every, **how):
    """``how``: share, after, seed, since, save, rows, sums, saves, kept."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    first, weight, momentum = 0, 0.0, 0.0
    if "checkpoint" in files and how.get("kept", 2):
        first, weight, momentum = files.read("checkpoint")
    momentum = momentum if how.get("kept", 2) > 1 else 0.0
    for step in range(first, steps):
        rows, targets = batch_of(step)
        seed = how.get("seed", lambda step, rank: step)(step, rank)
        noise = 0.1 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed), dtype=rows.dtype)
        mine = how.get("share", lambda rank, ranks: slice(rank, None, ranks))(rank, ranks)
        x, rate = (rows + noise)[mine], 0.1 * (1 - (step - first * how.get("since", 0)) / steps)
        gradient = 2 * x.T @ ((x * weight).sum(1) - targets[mine]) / how.get("rows", lambda x, rows: len(rows))(x, rows)
        how.get("sums", lambda gradient: dist.all_reduce(gradient, group=group))(gradient)
        momentum = 0.9 * momentum + gradient
        weight = weight - rate * momentum
        if (step + 1) % every == 0 and how.get("saves", rank == 0):
            how.get("save", renamed)(files, (step + how.get("after", 1), weight, momentum))
    return weight


def renamed(files, state):
    files.write("new", state)
    files.rename("new", "checkpoint")


@wrong("mended_elastic", "values", "This deals a batch out to four processes")
def for_four(*arguments):
    return elastic(*arguments, share=lambda rank, ranks: slice(2 * rank, 2 * rank + 2))


@wrong("mended_elastic", "values", "this start takes a step that is in the checkpoint already")
def once_more(*arguments):
    return elastic(*arguments, after=0)


@wrong("mended_elastic", "values", "The noise depends on which rank draws")
def noise_of_a_rank(*arguments):
    return elastic(*arguments, seed=lambda step, rank: rank)


@wrong("mended_elastic", "values", "The learning rate begins anew at each start")
def rate_of_a_start(*arguments):
    return elastic(*arguments, since=1)


@wrong("mended_elastic", "runs", "A save that was cut has destroyed the checkpoint before it")
def written_over(*arguments):
    return elastic(*arguments, save=lambda files, state: files.write("checkpoint", state))


@wrong("mended_elastic", "values", "The momentum is lost at each start")
def without_momentum(*arguments):
    return elastic(*arguments, kept=1)


@wrong("mended_elastic", "values", "Each start begins from nothing")
def from_nothing(*arguments):
    return elastic(*arguments, kept=0)


@wrong("mended_elastic", "values", "Nobody adds up the gradients")
def alone(*arguments):
    return elastic(*arguments, sums=lambda gradient: None)


@wrong("mended_elastic", "values", "divide by all of its rows")
def mean_of_a_share(*arguments):
    return elastic(*arguments, rows=lambda x, rows: len(x))


@wrong("mended_elastic", "values", "one is enough, as all have the same")
def by_all(*arguments):
    return elastic(*arguments, saves=True)


@wrong("mended_elastic", "bytes", "nobody sent anything")
def all_rows_on_all_ranks(*arguments):
    return elastic(*arguments, share=lambda rank, ranks: slice(None), sums=lambda gradient: None)


@wrong("mended_elastic", "values", "its part is 'does not save', where 'saves' is right")
def saved_only_at_the_end(*arguments):
    return elastic(*arguments, saves=False)


@wrong("mended_elastic", "values", "Rows that are left over, where the batch does not divide")
def rows_that_divide(*arguments):
    return elastic(*arguments, share=lambda rank, ranks: slice(8 // ranks * rank, 8 // ranks * (rank + 1)))


@wrong("mended_elastic", "values", "it has to follow from the step alone")
def noise_of_step_and_rank(*arguments):
    return elastic(*arguments, seed=lambda step, rank: step + rank)


@wrong("mended_elastic", "values", "Draw it for the whole batch, and take your rows of it")
def noise_of_a_share(group, files, batch_of, steps, every):
    """The batches already have it: what ``elastic`` adds is taken away."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)

    def noisy(step):
        rows, targets = batch_of(step)
        whole, own = (0.1 * torch.randn_like(each, generator=seeded(step)) for each in (rows, rows[rank::ranks]))
        rows[rank::ranks] += own
        return rows - whole, targets

    return elastic(group, files, noisy, steps, every)


def seeded(step):
    return torch.Generator().manual_seed(step)


@wrong("mended_elastic", "values", "are divided by the rows of all ranks, so add them up")
def mean_of_ranks(*arguments):
    return elastic(*arguments, sums=lambda gradient: dist.all_reduce(gradient, dist.ReduceOp.AVG, group=arguments[0]))


@wrong("mended_elastic", "runs", "Only rank 0 goes on from the checkpoint")
def read_by_rank_0(*arguments):
    return elastic(*arguments, kept=2 * (dist.get_rank(arguments[0]) == 0))


@wrong("mended_elastic", "runs", "A save that was cut has destroyed the checkpoint before it")
def written_twice(*arguments):
    def save(files, state):
        files.write("new", state)
        files.write("checkpoint", state)

    return elastic(*arguments, save=save)


@wrong("mended_elastic", "runs", "two ranks do not agree on what passes between them")
def in_the_whole_world(*arguments):
    return elastic(*arguments, sums=dist.all_reduce)


@wrong("mended_elastic", "values", "steps that it takes is '0 to 4; then 5 to 8'")
def after_each_step(group, files, batch_of, steps, every):
    return elastic(group, files, batch_of, steps, 1)


@wrong("mended_elastic", "values", "Each start begins from nothing")
def anew_if_it_cannot_be_read(group, files, *others):
    try:
        if "checkpoint" in files:
            files.read("checkpoint")
        return elastic(group, files, *others, save=lambda files, state: files.write("checkpoint", state))
    except EOFError:
        return elastic(group, files, *others, kept=0)


# culprit


def named(
    records,
    groups,
    *,
    root=True,
    last=True,
    sizes=True,
    most=True,
    key=sum,
    within=None,
    other=0,
    since=min,
    each=False,
):
    made, reached = defaultdict(dict), {}
    for rank, entries in enumerate(records):
        for entry in entries:
            made[entry["process_group"], entry["collective_seq_id"]][rank] = entry
            reached[rank, entry["process_group"]] = entry["collective_seq_id"]
    waiting, missing, costs = set(), [], defaultdict(list)
    for (group, call), there in sorted(made.items()):
        kinds = {rank: (each["profiling_name"], sizes and each["input_sizes"]) for rank, each in there.items()}
        right = max(kinds.values(), key=list(kinds.values()).count) if most else kinds[min(kinds)]
        for rank, kind in kinds.items():
            if kind != right:
                return "mismatch", rank, group, call
        absent = [r for r in groups[group] if (reached.get((r, group), 0) < call if last else r not in there)]
        times = sorted((each["time_created_ns"], rank) for rank, each in there.items())
        if absent:
            waiting |= there.keys()
            missing += [(since(times)[0], rank, group, call + other) for rank in absent]
        elif len(there) == len(groups[group]) > 1:
            cost = (times[-1][0] - times[-2 if within is None else within][0]) * (len(there) if each else 1)
            costs[times[-1][1]].append((cost, group, call))
    for _, rank, group, call in sorted(missing):
        if rank not in waiting or not root:
            return "missing", rank, group, call
    rank = max(costs, key=lambda rank: key(cost for cost, *_ in costs[rank]))
    return "late", rank, *max(costs[rank])[1:]


@wrong("culprit", "values", "This rank has not come, but it is a victim")
def whoever_has_not_come(*arguments):
    return named(*arguments, root=False)


@wrong("culprit", "values", "its last call in the group tells how far it is")
def dropped_is_missing(*arguments):
    return named(*arguments, last=False)


@wrong("culprit", "values", "Tensors of other sizes do not fit either")
def names_alone(*arguments):
    return named(*arguments, sizes=False)


@wrong("culprit", "values", "compare with what most of the group call")
def not_as_the_first(*arguments):
    return named(*arguments, most=False)


@wrong("culprit", "values", "It is missing from the next one")
def its_last_call(*arguments):
    return named(*arguments, other=-1)


@wrong("culprit", "values", "This one comes last most often")
def most_often(*arguments):
    return named(*arguments, key=lambda costs: len(list(costs)))


@wrong("culprit", "values", "This one costs most in a single call")
def in_a_single_call(*arguments):
    return named(*arguments, key=max)


@wrong("culprit", "values", "without the last one it would have waited for the others")
def what_the_first_waits(*arguments):
    return named(*arguments, within=0)


@wrong("culprit", "values", "This rank waits: others have not come to its call")
def who_waits(records, groups):
    return "missing", 3, "tp 0", 8


@wrong("culprit", "values", "where 4 things are right: the verdict, the rank, the group, the call")
def the_rank_alone(*arguments):
    return named(*arguments)[1]


@wrong("culprit", "values", "the verdict is 'late', where 'missing' is right")
def always_late(*arguments):
    return "late", *named(*arguments)[1:]


@wrong("culprit", "runs", "StopIteration")
def only_what_hangs(records, groups):
    what, *where = named(records, groups)
    return next((what, *where) for _ in range(what != "late"))


@wrong("culprit", "own work", "you call tinydist.diagnose, where this is solved")
def as_the_library_tells(*arguments):
    together({})
    return named(*arguments)


def found_by(records, groups, **changes):
    """The right verdict, with some of its four parts changed."""
    parts = dict(zip(("what", "rank", "group", "call"), named(records, groups)))
    return tuple((parts | {name: change(parts) for name, change in changes.items()}).values())


@wrong("culprit", "values", "In this call the last of those who wait came first")
def where_the_last_came_first(records, groups):
    return named(records, groups, since=max)


@wrong("culprit", "values", "What the last one costs counts once, however many wait")
def for_each_that_waits(records, groups):
    return named(records, groups, each=True)


@wrong("culprit", "values", "the rank is 1, where 4 is right")
def its_place_in_the_group(records, groups):
    return found_by(records, groups, rank=lambda parts: groups[parts["group"]].index(parts["rank"]))


@wrong("culprit", "values", "where a number is right")
def a_list_of_ranks(records, groups):
    return found_by(records, groups, rank=lambda parts: [parts["rank"]])


@wrong("culprit", "values", "It is missing from the next one")
def counted_from_0(records, groups):
    return found_by(records, groups, call=lambda parts: parts["call"] - 1)


@wrong("culprit", "values", "the verdict is 'straggler', where 'late' is right")
def in_other_words(records, groups):
    return found_by(records, groups, what=lambda parts: {"late": "straggler"}.get(parts["what"], parts["what"]))


@wrong("culprit", "runs", "IndexError: list index out of range")
def the_last_entry_of_each(records, groups):
    assert all(entries[-1] for entries in records)
    return named(records, groups)


@wrong("culprit", "values", "Several calls wait for this rank")
def the_first_group_by_name(records, groups):
    what, rank, group, call = named(records, groups)
    if what != "missing":
        return what, rank, group, call
    calls = {(each["process_group"], each["collective_seq_id"]) for entries in records for each in entries}
    own = {(each["process_group"], each["collective_seq_id"]) for each in records[rank]}
    return what, rank, *min(each for each in calls - own if rank in groups[each[0]])
