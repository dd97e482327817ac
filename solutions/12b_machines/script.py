"""What a training script does besides training: the functions that it is given take it down; and what it prints."""

import os
import re
from dataclasses import replace

import torch
import torch.distributed as dist

from tinydist.hardware import default_cluster
from tinydist.lab.author import Case, Target, Wrong


def world(ranks, rows=12, size=4, epochs=2, per_node=8):
    def arguments(rank):
        numbers = torch.Generator().manual_seed(rows)
        return torch.randn(rows, 3, generator=numbers), torch.randn(rows, 1, generator=numbers), epochs, size

    about = f"{rows} rows, batches of {size}" + f", nodes of {per_node} GPUs" * (per_node < ranks)
    nodes = replace(default_cluster(9), devices_per_node=per_node)
    return Case(ranks, arguments, about, how={"cluster": nodes})


def program(answer, x, targets, epochs, size):
    """torchrun makes no process group."""
    dist.destroy_process_group()
    rank, ranks = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    gpus, drawn, shares, saved = [], [torch.zeros(3)], [x[:0]], []

    def augment(rows):
        drawn.append(torch.rand(3))
        shares.append(rows.detach())
        return rows.clone()

    def save(epoch, weight):
        saved.append((epoch, weight.detach().clone()))

    weight = answer(x, targets, epochs, size, gpus.append, augment, save)
    if not isinstance(weight, torch.Tensor) or weight.shape != (1, 3):
        raise Wrong(f"on rank {rank} it returned {weight!r}, where the weight is right, of 1 x 3 numbers")
    left = dist.is_initialized()
    if not left:
        dist.init_process_group("gloo")
    everybodys = [torch.zeros(3) for _ in range(ranks)]
    dist.all_gather(everybodys, drawn[:2][-1])
    taken = (torch.cat(shares) == x[:, None]).all(2).sum(1).float()
    dist.all_reduce(taken)
    more = max(map(len, shares)) > -(-size // ranks)
    return {
        "how often each row is taken": taken,
        "its largest share": "more rows than needed" if more else "no more rows than needed",
        "the weight": weight.detach(),
        "GPUs that it uses": str(gpus),
        "ranks that augment with these random numbers": sum(torch.equal(each, everybodys[rank]) for each in everybodys),
        "epochs that it saves": str([epoch for epoch, _ in saved]),
        "the sum of all that it saves": torch.stack([each.sum() for _, each in saved] or [torch.zeros(())]).sum(),
        "process groups that it leaves open": int(left),
    }


class Printed(Target):
    """By rank 0 alone, once an epoch; in which words, is free."""

    name = "printed"

    def seen(self, trial):
        return None if trial.error else list(lines(trial))

    def judge(self, exercise, trial, right):
        losses = [told[-1] for _, told in lines(right)]
        for rank, told in lines(trial):
            if rank and told:
                raise Wrong(f"rank {rank} prints, too: once is enough, by rank 0")
        mine = [told for _, told in lines(trial) if told]
        if len(mine) != len(losses):
            raise Wrong(
                f"rank 0 prints {len(mine)} lines with numbers, where one for each of {len(losses)} epochs is right"
            )
        for epoch, (told, loss) in enumerate(zip(mine, losses)):
            if not any(abs(each - loss) < 0.0051 for each in told):  # two digits are enough
                raise Wrong(f"of epoch {epoch} rank 0 prints {told}, where the loss of its last batch is {loss:.4f}")


def lines(trial):
    """(rank, numbers) of each line."""
    for line in trial.printed:
        rank, text = re.match(r"(?:\[rank (\d+)\] )?(.*)", line).groups()
        numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\bnan\b|\binf\b", text)
        yield int(rank or 0), [float(each) for each in numbers]
