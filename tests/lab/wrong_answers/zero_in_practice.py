"""Wrong answers to the exercises of 06b_zero_in_practice: each with what rejects it, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()

# read_shard


@wrong("read_shard", "read", "you read 8 numbers")
def twice(files, total, rank, readers):
    solved("read_shard")(files, total, rank, readers)
    return solved("read_shard")(files, total, rank, readers)[:]


@wrong("read_shard", "values", "shape")
def without_padding(files, total, rank, readers):
    part = -(-total // readers)
    return solved("read_shard")(files, total, rank, readers)[: max(0, min(part, total - rank * part))]


@wrong("read_shard", "runs", "start must be an int below stop")
def reads_nothing_from_files_that_do_not_overlap(files, total, rank, readers):
    return solved("read_shard", "if first < last:", "if True:")(files, total, rank, readers)


@wrong("read_shard", "own work", "tinydist.zero")
def by_the_librarys_sharding(files, total, rank, readers):
    from tinydist.zero import FlatSharding

    FlatSharding([(total,)], readers)
    return solved("read_shard")(files, total, rank, readers)


# hybrid_gradient


@wrong("hybrid_gradient", "to other nodes", "reduce inside of the node first")
def between_nodes_first(gradient, inside, across):
    whole = gradient.float()
    dist.all_reduce(whole, group=across)
    return solved("hybrid_gradient", "dist.all_reduce(shard, group=across)", "pass")(whole, inside, across)


@wrong("hybrid_gradient", "to other nodes", "rank 2 sends")
def norm_over_all_nodes(gradient, inside, across):
    """Divided by the nodes, so that it is right."""
    edit = "dist.all_reduce(square)\n    square /= dist.get_world_size(across)"
    return solved("hybrid_gradient", "dist.all_reduce(square, group=inside)", edit)(gradient, inside, across)


@wrong("hybrid_gradient", "runs", "(shard, norm)")
def shard_alone(gradient, inside, across):
    return solved("hybrid_gradient")(gradient, inside, across)[0]


@wrong("hybrid_gradient", "waits", "1 collective")
def nobody_waits(gradient, inside, across):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return solved("hybrid_gradient")(gradient, inside, across)


@wrong("hybrid_gradient", "bytes", "rank 0 sends")
def gathers_all_shards_for_the_norm(gradient, inside, across):
    shard, _ = solved("hybrid_gradient")(gradient, inside, across)
    whole = torch.empty(len(shard) * dist.get_world_size(inside))
    dist.all_gather_single(whole, shard, group=inside)
    return shard, whole.norm()


# fastest_stage


@wrong("fastest_stage", "choice", "another plan that fits is faster")
def never_recomputes(*setting):
    return solved("fastest_stage", "for recompute in (False, True):", "for recompute in (True,):")(*setting)


@wrong("fastest_stage", "choice", "no plan that fits")
def nothing_fits(*setting):
    return None


@wrong("fastest_stage", "choice", "parameters=1000000000, ranks=8")
def less_than_the_device(*setting):
    return solved("fastest_stage", "<= device_gb", "< device_gb")(*setting)


@wrong("fastest_stage", "own work", "tinydist.zero")
def estimators_of_the_library(*setting):
    from tinydist.zero.estimators import model_states

    model_states(setting[0], 1, setting[1])
    return solved("fastest_stage")(*setting)


@wrong("fastest_stage", "held, sent, seconds", "parameters=4608, ranks=2")
def right_for_large_models_only(*setting):
    found = solved("fastest_stage")(*setting)
    return found if setting[0] > 1e8 else found | {"held": found["held"] + 4}
