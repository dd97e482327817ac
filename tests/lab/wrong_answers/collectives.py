"""Wrong answers to the exercises of 02_collectives: each with the property that rejects it, and what it is told."""

import importlib

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


def neighbors():
    rank, p = dist.get_rank(), dist.get_world_size()
    return rank, p, (rank + 1) % p, (rank - 1) % p


def in_turn(messages):
    """In the place of a batch: one pair of ranks after another."""
    rank = dist.get_rank()
    for each in sorted(messages, key=lambda each: (each.peer, (each.op is dist.isend) == (rank > each.peer))):
        each.op(each.tensor, each.peer).wait()
    return []


# left_reduce_scatter


@wrong("left_reduce_scatter", "own work", "torch.distributed.all_reduce")
def all_reduces_and_cuts(tensor, shift):
    dist.all_reduce(tensor)
    p = dist.get_world_size()
    return tensor.tensor_split(p)[(dist.get_rank() + shift) % p]


@wrong("left_reduce_scatter", "bytes", "sends 504 bytes")
def whole_tensors_to_the_left(tensor, shift):
    rank, p, right, left = neighbors()
    total, outgoing = tensor.clone(), tensor
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, outgoing, left), dist.P2POp(dist.irecv, arrived, right)]
        ):
            work.wait()
        total += arrived
        outgoing = arrived
    return total.tensor_split(p)[(rank + shift) % p]


@wrong("left_reduce_scatter", "values", "returns part 1 of the sum, where part 2 is asked for")
def one_part_too_low(tensor, shift):
    return solved("left_reduce_scatter")(tensor, shift - 1)


@wrong("left_reduce_scatter", "memory", "holds 24,576 bytes")
def left_on_a_copy(tensor, shift):
    return solved("left_reduce_scatter")(tensor.clone(), shift)


@wrong("left_reduce_scatter", "time", "2.33 times as long")
def left_one_after_another(*arguments):
    return solved("left_reduce_scatter", "dist.batch_isend_irecv(", "in_turn(", in_turn=in_turn)(*arguments)


# broadcast_in_parts


@wrong("broadcast_in_parts", "values", "its own numbers")
def broadcasts_nothing(tensor, src):
    pass


@wrong("broadcast_in_parts", "own work", "tinydist.collectives")
def the_librarys_broadcast(tensor, src):
    importlib.import_module("tinydist.collectives.tree").broadcast(tensor, src)


@wrong("broadcast_in_parts", "messages", "every message carries the whole tensor, 32 bytes: send parts of it")
def a_chain_of_whole_tensors(tensor, src):
    rank, _p, right, left = neighbors()
    if rank != src:
        dist.recv(tensor, left)
    if right != src:
        dist.send(tensor, right)


@wrong("broadcast_in_parts", "messages", "sends to rank 3")
def gathers_the_other_way_round(*arguments):
    return solved(
        "broadcast_in_parts", "right, left", "left, right", "(rank - step)", "(rank + step)", "- 1 - step", "+ 1 + step"
    )(*arguments)


@wrong("broadcast_in_parts", "time", "times as long")
def parts_one_after_another(*arguments):
    return solved("broadcast_in_parts", "dist.batch_isend_irecv(", "in_turn(", in_turn=in_turn)(*arguments)


# mended_all_reduce

SENDS = "dist.isend(parts[(i - 1) % p], left)"


@wrong("mended_all_reduce", "time", "4.00 times as long")
def even_ranks_send_first(tensor):
    send = "dist.send(parts[(i - 1) % p], left)"
    return solved(
        "mended_all_reduce",
        f"sending = {SENDS}",
        f"if rank == 0:\n            {send}",
        "sending.wait()",
        f"if rank:\n            {send}",
    )(tensor)


@wrong("mended_all_reduce", "memory", "holds 16,384 bytes besides")
def a_buffer_for_the_whole_tensor(tensor):
    return solved("mended_all_reduce", "torch.empty_like(parts[0])", "torch.empty_like(tensor)")(tensor)


@wrong("mended_all_reduce", "own work", "torch.distributed.all_reduce")
def gives_up(tensor):
    dist.all_reduce(tensor)


@wrong("mended_all_reduce", "waits", "2 messages")
def sends_without_waiting(tensor):
    return solved("mended_all_reduce", "sending.wait()", "pass")(tensor)


@wrong("mended_all_reduce", "values", "With 2 ranks this is right.")
def right_on_two_ranks(tensor):
    if dist.get_world_size() == 2:
        solved("mended_all_reduce")(tensor)


# all_to_all_uneven


@wrong("all_to_all_uneven", "own work", "torch.distributed.all_to_all")
def all_to_all_single(tensor, rows):
    counts = torch.empty(len(rows), dtype=torch.int64)
    dist.all_to_all_single(counts, torch.tensor(rows))
    result = tensor.new_empty(int(counts.sum()), *tensor.shape[1:])
    dist.all_to_all_single(result, tensor, counts.tolist(), rows)
    return result


@wrong("all_to_all_uneven", "bytes", "sends 40 bytes")
def all_counts_to_all(tensor, rows):
    return solved(
        "all_to_all_uneven",
        "exchange(torch.tensor(rows).split(1), counts.split(1))",
        "table = torch.empty(p, p, dtype=torch.int64)\n    exchange([torch.tensor(rows)] * p, table)\n"
        "    counts = table[:, rank]",
    )(tensor, rows)


@wrong("all_to_all_uneven", "messages", "sends 3 messages to rank 1")
def row_by_row(tensor, rows):
    return solved(
        "all_to_all_uneven",
        "isend, outgoing[other], other) for other in others",
        "isend, row, other) for other in others for row in outgoing[other]",
        "irecv, arriving[other], other) for other in others",
        "irecv, row, other) for other in others for row in arriving[other]",
    )(tensor, rows)


@wrong("all_to_all_uneven", "memory", "once more put together")
def three_copies(tensor, rows):
    result = solved("all_to_all_uneven")(tensor, rows)
    copies = [result.clone(), result.clone()]
    return copies[-1]


@wrong("all_to_all_uneven", "time", "times as long")
def pair_after_pair(tensor, rows):
    return solved("all_to_all_uneven", "dist.batch_isend_irecv(", "in_turn(", in_turn=in_turn)(tensor, rows)


# mean_of_all


@wrong("mean_of_all", "runs", "has no backward")
def a_mean_without_backward(x, shared):
    both = torch.cat([x.detach().sum(0), x.new_tensor([len(x)])])
    dist.all_reduce(both)
    return both[:-1] / both[-1]


@wrong("mean_of_all", "own work", "tinydist.collectives")
def the_librarys_all_reduce(x, shared):
    from tinydist.collectives import autograd

    count = torch.tensor(float(len(x)))
    dist.all_reduce(count)
    return autograd.all_reduce(x.sum(0)) / count


@wrong("mean_of_all", "bytes", "sends")
def a_mean_from_all_rows(x, shared):
    """Right numbers, but a second all-reduce of as many."""
    return solved(
        "mean_of_all", "dist.all_reduce(both)", "dist.all_reduce(both)\n            dist.all_reduce(both + 0)"
    )(x, shared)


@wrong("mean_of_all", "values", "the gradient of x")
def a_gradient_of_the_first_row(x, shared):
    return solved(
        "mean_of_all", "expand(ctx.rows, -1)", "expand(ctx.rows, -1) * (torch.arange(ctx.rows) == 0)[:, None]"
    )(x, shared)


@wrong("mean_of_all", "runs", "3 ranks")
def a_mean_of_four_features(x, shared):
    return solved("mean_of_all", "both[:-1] / ctx.count", "both[:4] / ctx.count")(x, shared)


# gather_columns


@wrong("gather_columns", "runs", "has no backward")
def columns_without_backward(x, shared):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach())
    return torch.cat(parts, dim=1)


@wrong("gather_columns", "own work", "tinydist.collectives")
def the_librarys_all_gather(x, shared):
    from tinydist.collectives import autograd

    return autograd.all_gather(x, dim=1)


@wrong("gather_columns", "values", "the gradient of x")
def the_neighbors_columns(x, shared):
    return solved("gather_columns", "return parts[rank]", "return parts[rank - 1]")(x, shared)


@wrong("gather_columns", "runs", "where a tensor of shape [2, 6] is right")
def rows_below_one_another(x, shared):
    return solved("gather_columns", "torch.cat(parts, dim=1)", "torch.cat(parts, dim=0)")(x, shared)
