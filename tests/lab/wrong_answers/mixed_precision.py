"""Wrong answers to the exercises of 04_mixed_precision: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

from tinydist import precision
from tinydist.syllabus.registry import find

WRONG_ANSWERS, wrong = collection()


# round_to_bfloat16


@wrong("round_to_bfloat16", "by hand", "makes bfloat16 numbers")
def a_cast_that_hides(x):
    return torch.empty(x.shape, dtype=torch.bfloat16).copy_(x).float()


@wrong("round_to_bfloat16", "own work", "tinydist.precision")
def librarys_own(x):
    return precision.round_to(x, "bf16")


@wrong("round_to_bfloat16", "values", "subnormals and zeros")
def zeros_without_sign(x):
    return solved("round_to_bfloat16")(x) + 0.0


@wrong("round_to_bfloat16", "runs", "view()")
def changes_its_input(x):
    bits = x.view(torch.int32)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits & -0x10000).view(torch.float32)


@wrong("round_to_bfloat16", "values", "where any NaN is right")
def nan_becomes_zero(x):
    return solved("round_to_bfloat16")(x).nan_to_num(0.0, torch.inf, -torch.inf)


# lost_updates


@wrong("lost_updates", "runs", "nothing (None)")
def predicts_nothing(weights, updates, format):
    pass


@wrong("lost_updates", "own work", "tinydist.precision")
def tries_by_the_library(weights, updates, format):
    lost = precision.round_to(weights + updates, format) == weights
    return lost, lost + 1


@wrong("lost_updates", "predicted", "makes float16 numbers")
def tries_by_a_cast(weights, updates, format):
    lost = (weights + updates).to(format.dtype or torch.float32).float() == weights
    return lost, solved("lost_updates")(weights, updates, format)[1]


@wrong("lost_updates", "steps", "60 steps")
def tried_sixty_times(weights, updates, format):
    lost, steps = solved("lost_updates")(weights, updates, format)
    return lost, steps.clamp(max=60)


@wrong("lost_updates", "steps", "One fewer is enough")
def one_step_more(weights, updates, format):
    lost, steps = solved("lost_updates")(weights, updates, format)
    return lost, steps + lost.long()


# kahan_step


@wrong("kahan_step", "runs", "nothing (None)")
def steps_nowhere(weights, rests, x, targets, lr):
    pass


@wrong("kahan_step", "own work", "torch.autocast")
def casts_by_torch(*arguments):
    with torch.autocast("cpu", torch.bfloat16):
        return solved("kahan_step")(*arguments)


@wrong("kahan_step", "Kahan", "the weights are what they were")
def returns_the_loss_alone(weights, rests, x, targets, lr):
    copies = [[each.detach().clone().requires_grad_(each.requires_grad) for each in both] for both in (weights, rests)]
    return solved("kahan_step")(*copies, x, targets, lr)


@wrong("kahan_step", "loss", "the first loss")
def adds_up_the_loss(*arguments):
    return solved("kahan_step", ", targets)\n", ', targets, reduction="sum")\n')(*arguments)


@wrong("kahan_step", "Kahan", "most updates below half a spacing")
def keeps_half_of_the_rest(*arguments):
    return solved("kahan_step", "rest.copy_(exact - weight)", "rest.copy_((exact - weight) / 2)")(*arguments)


# scaled_step


@wrong("scaled_step", "runs", "returned (None, 0)")
def a_pair_of_no_numbers(optimizer, scale, good_steps, window, max_norm):
    return None, 0


@wrong("scaled_step", "own work", "GradScaler")
def torchs_scaler(optimizer, scale, good_steps, window, max_norm):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=window)
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), good_steps + 1


def with_squares(share):
    return solved("scaled_step", "dist.all_reduce(squares)", "squares = share(squares)", share=share)


def in_two_calls(squares):
    overflow = (~squares.isfinite()).float()
    dist.all_reduce(overflow, dist.ReduceOp.MAX)
    dist.all_reduce(squares)
    return torch.where(overflow > 0, torch.inf, squares)


@wrong("scaled_step", "bytes", "48 calls")
def decides_and_then_clips(*arguments):
    return with_squares(in_two_calls)(*arguments)


def in_one_call(squares):
    """Two fp32 numbers have 8 bytes, as one of fp64 has."""
    both = torch.stack([squares.sum(), (~squares.isfinite()).float().sum()])
    dist.all_reduce(both)
    return torch.where(both[1] > 0, torch.inf, both[0])


@wrong("scaled_step", "bytes", "2 numbers into one all_reduce")
def a_flag_beside_the_sum(*arguments):
    return with_squares(in_one_call)(*arguments)


IN_COMMON, TURNS = {}, {}  # the squares of each rank, which are threads here; two halves of the memory take turns


def by_memory(squares):
    rank, p = dist.get_rank(), dist.get_world_size()
    turn = TURNS[rank] = 1 - TURNS.get(rank, 0)
    IN_COMMON[turn, rank] = squares
    dist.barrier()
    return sum(IN_COMMON[turn, other] for other in range(p))


@wrong("scaled_step", "steps", "what it did in step 3")
def says_nothing(*arguments):
    return with_squares(by_memory)(*arguments)


# mended_fp16_step


@wrong("mended_fp16_step", "runs", "nothing (None)")
def mends_nothing(model, masters, microbatches, scale, lr, max_norm):
    pass


@wrong("mended_fp16_step", "own work", "tinydist.precision")
def librarys_masters(model, masters, microbatches, scale, lr, max_norm):
    optimizer = precision.MasterWeights(model.parameters(), torch.optim.SGD, lr=lr)
    optimizer.step()
    return not any((y > 1e4).any() for _, y in microbatches)


@wrong("mended_fp16_step", "overflow", "3 ranks, overflow on rank 2")
def remembers_an_overflow(model, *arguments):
    made = solved("mended_fp16_step")(model, *arguments)
    model.overflowed = getattr(model, "overflowed", False) or not made
    return not model.overflowed


OF_ALL = {}  # the gradients of each rank, by the step


def average_in_memory(model, gradients):
    """The gradients travel, and what is used is read from a global variable."""
    p, model.step = dist.get_world_size(), getattr(model, "step", 0) + 1
    OF_ALL[dist.get_rank(), model.step] = [each.clone() for each in gradients]
    for each in gradients:
        dist.all_reduce(each)
    for place, each in enumerate(gradients):
        each.copy_(sum(OF_ALL[rank, model.step][place] for rank in range(p)))


@wrong("mended_fp16_step", "communication", "results do not follow")
def averages_in_memory(*arguments):
    edit = "    average(model, gradients)\n    for g in gradients:\n        g /="
    return solved(
        "mended_fp16_step",
        "    for g in gradients:\n        dist.all_reduce(g)\n        g /=",
        edit,
        average=average_in_memory,
    )(*arguments)


@wrong("mended_fp16_step", "bytes", "Add up the microbatches first")
def averages_each(*arguments):
    every = "(scale * loss).backward()\n        for p in weights:\n            dist.all_reduce(p.grad.clone())"
    return solved("mended_fp16_step", "(scale * loss).backward()", every)(*arguments)


# training_bytes


@wrong("training_bytes", "runs", "nothing (None)")
def counts_nothing(recipe, n):
    pass


@wrong("training_bytes", "own work", "the solution of training_bytes")
def the_solution_itself(recipe, n):
    return find("training_bytes").reference(recipe, n)


@wrong("training_bytes", "parameters", "n = 7,500,000,000")
def ends_at_two_billion(recipe, n):
    """As an int32 would."""
    return solved("training_bytes")(recipe, min(n, 2**31))
