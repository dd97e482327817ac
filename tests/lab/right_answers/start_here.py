"""Other right answers to the exercises of 00_start_here: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others
from torch import nn
from torch.nn.utils import clip_grad_norm_

RIGHT_ANSWERS, right = others()


@right("average_uneven")
def divided_at_the_end(gradient, sequences):
    gradient *= sequences
    dist.all_reduce(gradient)
    count = torch.tensor([float(sequences)])
    dist.all_reduce(count)
    gradient /= count


@right("average_uneven")
def a_mean_of_both(gradient, sequences):
    mine = torch.tensor(float(sequences))
    mean = mine.clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    dist.all_reduce(gradient.mul_(mine / mean), op=dist.ReduceOp.AVG)


@right("average_uneven")
def a_whole_number_of_8_bytes(gradient, sequences):
    total = torch.tensor(sequences)
    dist.all_reduce(total)
    gradient *= sequences / total
    dist.all_reduce(gradient)


@right("mended_loop")
def first_weights_from_rank_0_and_no_call_alone(inputs, targets, steps):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Linear(3, 1)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.chunk(p)[rank]), targets.chunk(p)[rank]).backward()
        if p > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()


@right("mended_loop")
def sum_over_all_samples(inputs, targets, steps):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = len(inputs) // p
    mine = slice(rank * share, (rank + 1) * share)
    for _ in range(steps):
        model.zero_grad()
        ((model(inputs[mine]) - targets[mine]) ** 2).sum().backward()
        works = [dist.all_reduce(each.grad, async_op=True) for each in model.parameters()]
        for work, parameter in zip(works, model.parameters()):
            work.wait()
            parameter.grad /= len(inputs)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach().clone()


@right("settings_in_effect")
def case_by_case(optimizer, factor, learning_rate, clip, weight_decay, eps):
    if optimizer == "SGD":
        return learning_rate * factor, clip / factor, weight_decay / factor, eps
    if optimizer == "Adam":
        return learning_rate, clip / factor, weight_decay / factor, eps / factor
    return learning_rate, clip / factor, weight_decay, eps / factor


@right("settings_in_effect")
def as_a_list(optimizer, factor, learning_rate, clip, weight_decay, eps):
    less = 1 / factor
    factors = {"SGD": (factor, less, less, 1), "Adam": (1, less, less, less), "AdamW": (1, less, 1, less)}
    return [each * change for each, change in zip((learning_rate, clip, weight_decay, eps), factors[optimizer])]


@right("settings_in_effect")
def one_by_one(optimizer, factor, learning_rate, clip, weight_decay, eps):
    clip /= factor
    if optimizer.startswith("Adam"):
        eps /= factor
    else:
        learning_rate *= factor
    if not optimizer.endswith("W"):
        weight_decay /= factor
    return learning_rate, clip, weight_decay, eps


@right("mended_loop")
def all_gradients_in_one_row(inputs, targets, steps):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = inputs.view(p, -1, 3)[rank], targets.view(p, -1, 1)[rank]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        row = torch.cat([each.grad.flatten() for each in model.parameters()])
        dist.all_reduce(row, op=dist.ReduceOp.AVG)
        for each, mean in zip(model.parameters(), row.split([3, 1])):
            each.grad.copy_(mean.view_as(each))
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()
