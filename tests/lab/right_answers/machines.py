"""Other right answers to the exercises of 12b_machines: they must pass."""

import os
from collections import defaultdict
from itertools import groupby

import torch
import torch.distributed as dist
from lab.registered import others
from torch.nn.parallel import DistributedDataParallel

RIGHT_ANSWERS, right = others()


# wire_time


@right("wire_time")
def line_by_line(log, ranks, per_node, nbytes, rates):
    sent, wires, channels = defaultdict(int), {""}, 0
    for line in log.splitlines():
        words = line.split()
        channels = max(channels, 1 + int(words[words.index("Channel") + 1][:2]))
        if "[send]" in words:
            sender, (_, wire, number) = words[words.index("->") - 1], words[-1].split("/")[:3]
            wires.add(wire)
            sent[int(sender.partition("[")[0]) // per_node, int(number)] += 1
    wire = max(wires)
    most = max([0, *sent.values()]) / channels * 2 * nbytes * (ranks - 1) / ranks
    return wire, most / rates.get(wire, 1)


# lost_time


@right("lost_time")
def by_states(log):
    spent, state, done = {"kill": 0.0, "start": 0.0, "again": 0.0, "new": 0.0}, "start", set()
    before = log[0][0]
    for seconds, what, step in log[1:]:
        kind = state
        if state == "step":
            kind = "again" if what == "kill" or (what == "step" and step in done) else "new"
        spent[kind] += seconds - before
        done.add(step)
        before, state = seconds, what
    return spent["kill"], spent["start"], spent["again"], spent["new"] / sum(spent.values())


# train_under_torchrun


@right("train_under_torchrun")
def with_ddp(x, targets, epochs, size, use_gpu, augment, save):
    """It averages, so each share's loss is that part of the batch's, times the number of ranks."""
    dist.init_process_group("gloo")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    use_gpu(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
    torch.manual_seed(1000 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffled = torch.Generator().manual_seed(7)
    for epoch in range(epochs):
        for batch in torch.randperm(len(x), generator=shuffled).split(size):
            mine = batch.tensor_split(ranks)[rank]
            loss = (model(augment(x[mine])) - targets[mine]).square().sum() * ranks / len(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach() / ranks
        dist.reduce(mean, 0)
        if rank == 0:
            print(f"{epoch=} loss={mean.item():.5f}")
            save(epoch, model.module.weight)
    weight = model.module.weight.detach()
    del model
    dist.destroy_process_group()
    return weight


def scripted(x, targets, epochs, size, use_gpu, augment, save, sums, after):
    """``sums`` comes before a step, ``after`` behind it."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    use_gpu(rank % int(os.environ["LOCAL_WORLD_SIZE"]))
    torch.manual_seed(7)
    model = torch.nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffled = torch.Generator().manual_seed(7)
    for epoch in range(epochs):
        torch.manual_seed(1000 * epoch + rank)
        for batch in torch.randperm(len(x), generator=shuffled).split(size):
            mine = batch[rank::ranks]
            optimizer.zero_grad()
            loss = (model(augment(x[mine])) - targets[mine]).square().sum() / len(batch)
            (loss * (1 if sums else ranks)).backward()
            sums and sums(model.weight)
            optimizer.step()
            after and after(model.weight.data)
        whole = loss.detach()
        dist.reduce(whole, 0)
        if rank == 0:
            print(f"epoch {epoch + 1}/{epochs}: {whole:.2f}")
            save(epoch, model.weight)
    dist.destroy_process_group()
    return model.weight


@right("train_under_torchrun")
def by_way_of_rank_0(*arguments):
    def sums(weight):
        dist.reduce(weight.grad, 0)
        dist.broadcast(weight.grad, 0)

    return scripted(*arguments, sums, None)


@right("train_under_torchrun")
def with_averaged_weights(*arguments):
    """With momentum alone, a mean of steps is a step by the mean."""

    def after(weight):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()

    return scripted(*arguments, None, after)


# mended_elastic


def noisy(step, rows):
    return rows + 0.1 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(step), dtype=rows.dtype)


@right("mended_elastic")
def blocks_of_rows(group, files, batch_of, steps, every):
    """A share is a run of rows, and some have one row more."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    step, weight, momentum = files.read("checkpoint") if "checkpoint" in files else (0, 0.0, 0.0)
    while step < steps:
        rows, targets = batch_of(step)
        x, mine = noisy(step, rows).tensor_split(ranks)[rank], targets.tensor_split(ranks)[rank]
        gradient = 2 * ((x * weight).sum(1) - mine) @ x / len(rows)
        dist.all_reduce(gradient, group=group)
        momentum = 0.9 * momentum + gradient
        weight = weight - 0.1 * (steps - step) / steps * momentum
        step += 1
        if step % every == 0 and rank == 0:
            files.write("checkpoint.part", (step, weight, momentum))
            files.rename("checkpoint.part", "checkpoint")
    return weight


@right("mended_elastic")
def a_file_for_each_save(group, files, batch_of, steps, every):
    """Whole ones are renamed to the number of the next step; the last of them is read."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    whole = [number for number in range(steps, 0, -1) if f"step {number}" in files]
    first = whole[0] if whole else 0
    state = files.read(f"step {first}") if whole else {"weight": 0.0, "momentum": 0.0}
    weight, momentum = state["weight"], state["momentum"]
    for step in range(first, steps):
        rows, targets = batch_of(step)
        x = noisy(step, rows)
        own = torch.arange(len(rows)) % ranks == rank
        gradient = (x[own] * (2 * ((x * weight).sum(1) - targets)[own, None])).sum(0) / len(rows)
        dist.all_reduce(gradient, group=group)
        momentum = 0.9 * momentum + gradient
        weight = weight - 0.1 * (1 - step / steps) * momentum
        if rank == 0 and (step + 1) % every == 0:
            files.write("under way", {"weight": weight, "momentum": momentum})
            files.rename("under way", f"step {step + 1}")
    return weight


@right("mended_elastic")
def what_is_cut_is_not_read(group, files, batch_of, steps, every):
    """Two names in turn: one of the two is always whole."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    states = [{"step": 0, "weight": 0.0, "momentum": 0.0}]
    for name in ("even", "odd"):
        try:
            states.append(files.read(name))
        except (EOFError, FileNotFoundError):
            continue
    state = max(states, key=lambda each: each["step"])
    weight, momentum = state["weight"], state["momentum"]
    for step in range(state["step"], steps):
        rows, targets = batch_of(step)
        x = noisy(step, rows)[rank::ranks]
        gradient = 2 * x.T @ ((x * weight).sum(1) - targets[rank::ranks]) / len(rows)
        dist.all_reduce(gradient, group=group)
        momentum = 0.9 * momentum + gradient
        weight = weight - (0.1 - 0.1 * step / steps) * momentum
        saves, rest = divmod(step + 1, every)
        if rank == 0 and not rest:
            files.write("odd" if saves % 2 else "even", {"step": step + 1, "weight": weight, "momentum": momentum})
    return weight


# culprit


@right("culprit")
def group_by_group(records, groups):
    own = {rank: defaultdict(dict) for rank in range(len(records))}
    for rank, entries in enumerate(records):
        for entry in entries:
            own[rank][entry["process_group"]][entry["collective_seq_id"]] = entry
    standing, absent, costs = set(), {}, defaultdict(dict)
    for group, ranks in groups.items():
        reached = {rank: max(own[rank][group], default=0) for rank in ranks}
        for call in range(1, max(reached.values()) + 1):
            there = {rank: own[rank][group][call] for rank in ranks if call in own[rank][group]}
            if not there:
                continue  # dropped by all
            said = [str((each["profiling_name"], each["input_sizes"])) for each in there.values()]
            if len(set(said)) > 1:
                (odd,) = (rank for rank, each in zip(there, said) if said.count(each) == 1)
                return "mismatch", odd, group, call
            late = [rank for rank in ranks if reached[rank] < call]
            standing |= set(there) if late else set()
            for rank in late:
                absent.setdefault(rank, []).append((min(e["time_created_ns"] for e in there.values()), group, call))
            if len(there) == len(ranks) > 1:
                times = sorted((each["time_created_ns"], rank) for rank, each in there.items())
                costs[times[-1][1]][group, call] = times[-1][0] - times[-2][0]
    for rank in absent.keys() - standing:
        _, group, call = min(absent[rank])
        return "missing", rank, group, call
    worst = max(costs, key=lambda rank: sum(costs[rank].values()))
    return "late", worst, *max(costs[worst], key=costs[worst].get)


@right("culprit")
def by_the_last_calls(records, groups):
    """A rank stands in its last call, if that is not over: so the others need not be looked at."""
    flat = [(e["process_group"], e["collective_seq_id"], r, e) for r, entries in enumerate(records) for e in entries]
    flat.sort(key=lambda each: each[:3])
    calls = {key: list(each) for key, each in groupby(flat, key=lambda each: each[:2])}
    for (group, call), each in calls.items():
        kinds = [(e["profiling_name"], e["input_sizes"]) for *_, e in each]
        for kind, (_, _, rank, _) in zip(kinds, each):
            if kinds.count(kind) < len(kinds) / 2:
                return "mismatch", rank, group, call
    last = [(e[-1]["process_group"], e[-1]["collective_seq_id"]) if e else None for e in records]
    open_calls = {at for at in last if at and len(calls[at]) < len(groups[at[0]])}
    stuck = [rank for rank, at in enumerate(last) if at in open_calls]
    if stuck:
        (rank,) = set(range(len(records))) - set(stuck)
        those = [at for at in open_calls if rank in groups[at[0]]]
        return "missing", rank, *min(those, key=lambda at: min(e["time_created_ns"] for *_, e in calls[at]))
    costs = defaultdict(list)
    for (group, call), each in calls.items():
        times = sorted((e["time_created_ns"], rank) for _, _, rank, e in each)
        if len(times) == len(groups[group]) and len(times) > 1:
            costs[times[-1][1]].append((times[-1][0] - times[-2][0], group, call))
    rank = max(costs, key=lambda rank: sum(cost for cost, _, _ in costs[rank]))
    return "late", rank, *max(costs[rank])[1:]


@right("culprit")
def along_the_chain(records, groups):
    """From anybody who waits to somebody who has not come, and so on."""
    at, made = {}, defaultdict(dict)
    for rank, entries in enumerate(records):
        for entry in entries:
            key = entry["process_group"], entry["collective_seq_id"]
            made[key][rank] = entry
            at[rank] = key
    for (group, call), there in made.items():
        names = [(entry["profiling_name"], entry["input_sizes"]) for entry in there.values()]
        if any(name != names[0] for name in names):
            (rank,) = (rank for rank, name in zip(there, names) if names.count(name) == 1)
            return "mismatch", rank, group, call

    def waits_for(rank):
        if rank not in at:
            return []
        return [other for other in groups[at[rank][0]] if other not in made[at[rank]]]

    waiting = [rank for rank in range(len(records)) if waits_for(rank)]
    if waiting:
        rank = waiting[0]
        while waits_for(rank):
            rank = waits_for(rank)[0]
        whole = [(made[at[other]][other]["time_created_ns"], other) for other in waiting if rank in waits_for(other)]
        return "missing", rank, *at[min(whole)[1]]
    total, worst = [0] * len(records), [(0, "", 0)] * len(records)
    for (group, call), there in made.items():
        if set(there) == set(groups[group]) and len(there) > 1:
            ordered = sorted(there, key=lambda rank: there[rank]["time_created_ns"])
            cost = there[ordered[-1]]["time_created_ns"] - there[ordered[-2]]["time_created_ns"]
            total[ordered[-1]] += cost
            worst[ordered[-1]] = max(worst[ordered[-1]], (cost, group, call))
    rank = total.index(max(total))
    return "late", rank, *worst[rank][1:]
