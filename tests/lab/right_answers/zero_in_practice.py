"""Other right answers to the exercises of 06b_zero_in_practice: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("read_shard")
def number_by_number(files, total, rank, readers):
    part = (total + readers - 1) // readers
    where = [(file, place) for file in files for place in range(len(file))]
    mine = [file.read(place, place + 1) for file, place in where[rank * part : (rank + 1) * part]]
    return torch.cat([*mine, torch.zeros(part - len(mine))])


@right("hybrid_gradient")
def by_an_all_to_all(gradient, inside, across):
    """And norms of shards, gathered."""
    n = dist.get_world_size(inside)
    sent = (gradient.float() / dist.get_world_size()).contiguous()
    arrived = torch.empty_like(sent)
    dist.all_to_all_single(arrived, sent, group=inside)
    shard = arrived.view(n, -1).sum(0)
    dist.all_reduce(shard, group=across)
    square = (shard**2).sum().view(1)
    dist.all_reduce(square, group=inside)
    return shard, square**0.5


def key(plan):
    return round(plan["seconds"], 9), round(plan["held"], 3)


@right("fastest_stage")
def from_a_table(parameters, ranks, device_gb, kept_gb, recomputed_gb, tokens, microbatches, teraflops, gigabits):
    share = 1 / ranks
    table = {1: (6 + 12 * share, 6), 2: (2 + 16 * share, 4 * microbatches + 2), 3: (18 * share, 8 * microbatches)}
    best = None
    for stage, (of_one, passes) in table.items():
        for recompute in (False, True):
            held = of_one * parameters + (recomputed_gb if recompute else kept_gb) * 1e9
            sent = passes * parameters * (1 - share)
            flops = (8 if recompute else 6) * parameters * tokens * microbatches
            seconds = max(flops / teraflops / 1e12, sent / gigabits / 125e6)
            plan = dict(stage=stage, recompute=recompute, held=held, sent=sent, seconds=seconds)
            if held > device_gb * 1e9 * (1 + 1e-12):
                continue
            if best is None or key(plan) < key(best):
                best = plan
    return best
