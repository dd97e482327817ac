"""Wrong answers to the exercises of 15_your_own_program: the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


# catches_wrong_sums


@wrong("catches_wrong_sums", "verdict", "the test passes")
def tests_nothing(all_reduce):
    all_reduce(torch.ones(3))


@wrong("catches_wrong_sums", "verdict", "puts right sums in another part's place")
def compares_sums_of_whole_tensors(all_reduce):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    draws = [torch.Generator().manual_seed(each) for each in range(ranks)]
    numbers = [100 * torch.randn(91, generator=draw) for draw in draws]
    tensor = numbers[rank].clone()
    all_reduce(tensor)
    assert torch.allclose(tensor.sum(), sum(numbers).sum())


@wrong("catches_wrong_sums", "verdict", "which its buffer holds")
def short_tensors(all_reduce):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in (1, 7, 19, 60):
        draws = [torch.Generator().manual_seed(10 * size + each) for each in range(ranks)]
        numbers = [100 * torch.randn(size, generator=draw) for draw in draws]
        tensor = numbers[rank].clone()
        all_reduce(tensor)
        assert torch.allclose(tensor, sum(numbers), atol=1e-4)


@wrong("catches_wrong_sums", "verdict", "the last numbers")
def a_single_number(all_reduce):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((ranks,), rank + 0.5)
    all_reduce(tensor)
    assert torch.allclose(tensor, torch.tensor(ranks * ranks / 2).expand(ranks))


@wrong("catches_wrong_sums", "runs", "ZeroDivisionError")
def raises_another_error(all_reduce):
    raise ZeroDivisionError("division by zero")


# mended_epoch


@wrong("mended_epoch", "values", "None")
def does_nothing(batches, weight, limit):
    pass


@wrong("mended_epoch", "values", "the weight")
def trains_alone(batches, weight, limit):
    for rows in batches:
        weight = weight - 0.2 * (rows @ weight) @ rows / len(rows)
    return weight, len(batches)


@wrong("mended_epoch", "bytes", "bytes")
def asks_again_in_each_step(*arguments):
    asked = "        most = most.clone()\n        [dist.all_reduce(most, dist.ReduceOp.MAX) for _ in range(2)]\n"
    return solved("mended_epoch", "        sums = own.clone()\n", f"{asked}        sums = own.clone()\n")(*arguments)


@wrong("mended_epoch", "values", "the steps")
def counts_its_own_steps(batches, weight, limit):
    weight, steps = solved("mended_epoch")(batches, weight, limit)
    return weight, min(steps, len(batches))


# loss_in_parts


@wrong("loss_in_parts", "memory", "bytes")
def as_it_was(hidden, weight, targets, parts):
    return solved("loss_in_parts")(hidden, weight, targets, 1)


@wrong("loss_in_parts", "values", "the gradient of weight")
def forgets_the_weight(*arguments):
    total, hidden, weight = solved("loss_in_parts")(*arguments)
    return total, hidden, torch.zeros_like(weight)


@wrong("loss_in_parts", "FLOPs", "FLOPs")
def for_each_gradient_anew(hidden, weight, targets, parts):
    total, _, by_weight = solved("loss_in_parts")(hidden, weight, targets, parts)
    return total, solved("loss_in_parts")(hidden, weight, targets, parts)[1], by_weight


@wrong("loss_in_parts", "values", "the loss")
def of_the_last_part(hidden, weight, targets, parts):
    total, *gradients = solved("loss_in_parts")(hidden, weight, targets, parts)
    size = -(-len(targets) // parts)
    return (total * 0 + 1 if size < len(targets) else total, *gradients)


@wrong("loss_in_parts", "runs", "TypeError")
def needs_no_parts(hidden, weight, targets):
    return F.cross_entropy(hidden @ weight.T, targets)
