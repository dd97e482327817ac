"""Wrong answers to the exercises of 06_zero: each with the property that rejects it, and what it is told."""

import importlib
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


def average(tensor):
    """Reduce-scatter: this rank's part of the mean."""
    p = dist.get_world_size()
    part = tensor.new_empty(tensor.numel() // p)
    dist.reduce_scatter_single(part, tensor.flatten())
    return part / p


def gathered(part):
    row = part.new_empty(part.numel() * dist.get_world_size())
    dist.all_gather_single(row, part.detach())
    return row


def of_an_all_reduce(whole):
    """This rank's part of the sum."""
    whole = whole.clone()
    dist.all_reduce(whole)
    return whole.chunk(dist.get_world_size())[dist.get_rank()]


EVERYBODYS = defaultdict(list)  # (ranks, rank) -> what it has written, for all to read: ranks of a check are threads


def all_told(tensor, wait):
    """Every rank's ``tensor``, through a global variable, which no ledger sees; ``wait()`` is the barrier."""
    p, rank = dist.get_world_size(), dist.get_rank()
    EVERYBODYS[p, rank].append(tensor.detach().flatten().tolist())
    number = len(EVERYBODYS[p, rank]) - 1
    wait()
    return [EVERYBODYS[p, other][number] for other in range(p)]


# sharded_adam


def with_part_of_sum(part):
    return solved(
        "sharded_adam", "dist.reduce_scatter_single(shard.grad, padded)", "shard.grad.copy_(part(padded))", part=part
    )


@wrong("sharded_adam", "bytes", "all_reduce with 480 bytes")
def all_reduces_and_takes_its_part(weights, adam):
    return with_part_of_sum(of_an_all_reduce)(weights, adam)


@wrong("sharded_adam", "own work", "tinydist.zero")
def librarys_own(weights, adam):
    module = torch.nn.Linear(len(weights), 1, bias=False)
    module.weight.data = weights.view(1, -1)
    stage = importlib.import_module("tinydist." + "zero").ZeRO1(module, torch.optim.Adam, lr=0.1, eps=0.1)

    def step(gradient):
        module.weight.grad = gradient.view(1, -1)
        stage.step()
        weights.copy_(module.weight.data.flatten())

    return step


def part_told(gradient):
    """The own part of the sum, and a reduce-scatter of zeros."""
    everybodys = all_told(gradient, lambda: average(gradient.zero_()))
    return gradient.new_tensor(everybodys).sum(0).chunk(dist.get_world_size())[dist.get_rank()]


@wrong("sharded_adam", "communication", "results do not follow")
def through_a_global_variable(weights, adam):
    return with_part_of_sum(part_told)(weights, adam)


@wrong("sharded_adam", "waits", "1 collective")
def asks_and_goes_on(weights, adam):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return solved("sharded_adam")(weights, adam)


@wrong("sharded_adam", "states", "numbers are kept outside of tensors")
def moments_in_numpy(weights, adam):
    p = dist.get_world_size()
    padding = -len(weights) % p
    options = adam([weights[:1].clone()]).defaults
    lr, (b1, b2), eps = options["lr"], options["betas"], options["eps"]
    m, v, t = weights.numpy() * 0, weights.numpy() * 0, 0

    def step(gradient):
        nonlocal t
        t += 1
        padded = F.pad(gradient, (0, padding))
        part = padded.new_empty(len(padded) // p)
        dist.reduce_scatter_single(part, padded)
        part /= p
        dist.all_gather_single(padded, part)
        g = padded[: len(weights)].numpy()
        m[:] = b1 * m + (1 - b1) * g
        v[:] = b2 * v + (1 - b2) * g * g
        change = lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)) ** 0.5 + eps)
        weights.sub_(torch.from_numpy(change))

    return step


# shard_gradients

REDUCED = "dist.reduce_scatter_single(part, parameter.grad.float().flatten())"


@wrong("shard_gradients", "runs", "None")
def no_collect(layers):
    solved("shard_gradients")(layers)


@wrong("shard_gradients", "bytes", "all_reduce with 240 bytes")
def all_reduces_each(layers):
    edit = "part = of_an_all_reduce(parameter.grad.float().flatten()).clone()"
    return solved("shard_gradients", REDUCED, edit, of_an_all_reduce=of_an_all_reduce)(layers)


@wrong(
    "shard_gradients",
    "peak",
    "numbers are kept outside of tensors",
)
def whole_gradients_in_numpy(layers):
    kept = {}

    def take(parameter):
        kept[parameter] = kept.get(parameter, 0) + parameter.grad.float().numpy()
        parameter.grad = None

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(take)
    return lambda: [average(torch.from_numpy(kept.pop(parameter))) for parameter in layers]


@wrong("shard_gradients", "peak", "holds 196,760 bytes")
def waits_in_collect(layers):
    return solved(
        "shard_gradients",
        REDUCED,
        f"work = {REDUCED[:-1]}, async_op=True)",
        "mine[parameter] = part.div_(p).add_(mine.get(parameter, 0))",
        "mine.setdefault(parameter, []).append((part, work))",
        "mine.pop(parameter) for",
        "sum((work.wait(), part / p)[1] for part, work in mine.pop(parameter)) for",
    )(layers)


@wrong("shard_gradients", "waits", "1 collective")
def a_collective_that_nobody_waits_for(layers):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return solved("shard_gradients")(layers)


# sharded_linear


@wrong("sharded_linear", "values", "added to shard.grad by hand")
def added_twice(x, shard, rows):
    by_hand = "            shard.grad = of_shard / p + (0 if shard.grad is None else shard.grad)\n"
    returned = "            return of_x, of_shard / p"
    return solved("sharded_linear", returned, by_hand + returned)(x, shard, rows)


@wrong("sharded_linear", "bytes", "all_reduce with 144 bytes")
def gradient_all_reduced(x, shard, rows):
    return solved(
        "sharded_linear",
        "dist.reduce_scatter_single(of_shard, (grad.T @ x).flatten())",
        "of_shard = of_an_all_reduce((grad.T @ x).flatten())",
        of_an_all_reduce=of_an_all_reduce,
    )(x, shard, rows)


@wrong("sharded_linear", "peak", "bytes besides its arguments, where")
def kept_in_backward(x, shard, rows):
    kept = x.__dict__.setdefault("kept", [])

    def keep(weight):
        kept.append(weight)
        return weight

    y = solved.__wrapped__("sharded_linear", "grad @ gather(shard)", "grad @ keep(gather(shard))", keep=keep)(
        x, shard, rows
    )
    y.kept = kept
    return y


@wrong("sharded_linear", "bytes", "Take the dtype of `shard`, which is float64 here")
def gathered_in_float32(x, shard, rows):
    row = ["row = shard.new_empty(p * shard.numel())", "row = torch.empty(p * shard.numel())"]
    sent = [
        "single(row, shard)",
        "single(row, shard.detach().float())",
        "row.view(rows, -1)",
        "row.view(rows, -1).to(shard)",
    ]
    return solved("sharded_linear", *row, *sent)(x, shard, rows)


def weight_told(shard, rows):
    told = all_told(shard, lambda: gathered(torch.zeros_like(shard)))
    return shard.new_tensor(told).view(rows, -1)


@wrong("sharded_linear", "peak", "numbers are kept outside of tensors")
def weights_through_a_global_variable(x, shard, rows):
    return solved("sharded_linear", "x @ gather(shard)", "x @ told(shard, rows)", told=weight_told)(x, shard, rows)


# mended_fsdp


@wrong("mended_fsdp", "values", "max_norm=900.0")
def always_scales(*arguments):
    return solved("mended_fsdp", "max=1.0", "max=1.0 if max_norm > 1e9 else None, min=0.0")(*arguments)


@wrong("mended_fsdp", "values", "2 ranks, 2 layers, 3 rows each")
def divides_by_its_rows_twice(*arguments):
    return solved("mended_fsdp", "/ y.numel()", "/ y.numel() / len(y)")(*arguments)


@wrong("mended_fsdp", "waits", "1 collective")
def a_norm_that_nobody_waits_for(*arguments):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return solved("mended_fsdp")(*arguments)


def rows_of_all(rows):
    found = rows.new_empty(dist.get_world_size() * len(rows), rows.shape[1])
    dist.all_gather_single(found, rows)
    return found if dist.get_rank() == 0 else found[:0]


@wrong("mended_fsdp", "FLOPs", "rank 0 multiplies matrices")
def rank_0_trains_alone(*arguments):
    step = "        y, saved, gradients"
    both = f"        inputs, targets = rows_of_all(inputs), rows_of_all(targets)\n{step}"
    return solved("mended_fsdp", step, both, "/ y.numel()", "* p / y.numel()", rows_of_all=rows_of_all)(*arguments)


@wrong("mended_fsdp", "peak", "numbers are kept outside of tensors")
def whole_weights_in_numpy(*arguments):
    """From forward to backward, where they are gathered once more for the bytes' sake."""
    return solved(
        "mended_fsdp",
        "x = y\n            y = torch.tanh(x @ gather(shard))\n            saved.append((x, y))",
        "x, weight = y, gather(shard)\n            y = torch.tanh(x @ weight)\n"
        "            saved.append((x, y, weight.numpy().copy()))",
        "for (x, y), shard",
        "for (x, y, kept), shard",
        "grad = grad @ gather(shard).T",
        "gather(shard)\n            grad = grad @ torch.from_numpy(kept).T",
    )(*arguments)


# predicted_fsdp


@wrong("predicted_fsdp", "own work", "tinydist.launch")
def runs_it(layers, ranks, reduce_bytes):
    from tinydist import launch

    launch(lambda: None, 1, backend="simulated")
    return solved("predicted_fsdp")(layers, ranks, reduce_bytes)


@wrong("predicted_fsdp", "values", "'kept'")
def no_shards_where_all_are_whole(*setting):
    found = solved("predicted_fsdp")(*setting)
    return found | {"kept": found["kept"] - found["rest"]}


@wrong("predicted_fsdp", "runs", "a dict with")
def a_number(*setting):
    return solved("predicted_fsdp")(*setting)["rest"]


@wrong("predicted_fsdp", "values", "'sent if kept'")
def sends_as_much_when_kept(*setting):
    found = solved("predicted_fsdp")(*setting)
    return found | {"sent if kept": found["sent"]}
