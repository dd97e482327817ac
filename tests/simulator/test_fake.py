"""Fake tensors and ranks that stand for all: the bytes, times and traffic of a big run, without its memory."""

import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensor
from torch.nn.parallel import DistributedDataParallel as DDP

import tinydist
from tinydist.hardware import default_cluster
from tinydist.model import GPT, GPTConfig

ROOT = Path(__file__).resolve().parents[2]
BIG = GPTConfig(vocab_size=50257, context=1024, layers=36, heads=32, dim=4096)
TINY = GPTConfig(vocab_size=64, context=16, layers=2, heads=2, dim=16)


def training_step(config):
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.zeros(1, config.context, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    works = [dist.all_reduce(weight.grad, async_op=True) for weight in model.parameters()]
    for work in works:
        work.wait()
    optimizer.step()
    weights = list(model.parameters())
    return model, optimizer, sum(weight.numel() for weight in weights), len(weights)


def said_of(run, rank=0):
    memory = run.memory[rank]
    return run.seconds, run.traffic, [event[:5] for event in run.trace.of(rank)], memory.peak, memory.at_peak


def test_what_torch_sets_for_the_whole_process_belongs_to_no_rank(monkeypatch):
    """torch's guard of a device that is not there is gone with the thread that set it, and the next asks it."""
    threads, guard = [], torch._C._ensureCUDADeviceGuardSet
    monkeypatch.setattr(
        torch._C, "_ensureCUDADeviceGuardSet", lambda: (threads.append(threading.current_thread()), guard())
    )
    tinydist.launch(lambda: torch.ones(2) + 1, 2, fake=True)
    assert threads == [threading.current_thread()]


def test_fake_tensors_have_shapes_and_no_data():
    def program():
        x = torch.ones(1 << 40)  # 4 TB
        dist.all_reduce(x)
        return isinstance(x, FakeTensor), x.shape[0], x.dtype

    run = tinydist.launch(program, 4, fake=True)
    assert run.results == [(True, 1 << 40, torch.float32)] * 4
    assert [memory.peak for memory in run.memory] == [4 << 40] * 4


SEEN = {
    "slice": lambda x: x[1:3:2],
    "select": lambda x: x[:, -1],
    "split": lambda x: x.split(2, dim=1),
    "split into sizes": lambda x: x.split([1, 3]),
    "unbind": lambda x: x.unbind(2),
    "expand": lambda x: x[:, :, None].expand(-1, -1, 7, -1),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.mT,
    "t": lambda x: x[0].t(),
    "squeeze": lambda x: x[:1].squeeze(0),
    "view": lambda x: x.view(-1, 3),
    "detach": lambda x: x.detach(),
    "of a view": lambda x: x[1].mT[2:].unsqueeze(0),
}


@pytest.mark.parametrize("see", SEEN.values(), ids=SEEN)
def test_a_view_of_a_fake_tensor_is_that_of_a_real_one(see):
    def program():
        x = torch.ones(4, 5, 6, requires_grad=True)
        seen = see(x)
        views = [seen] if isinstance(seen, torch.Tensor) else seen
        assert all(view.untyped_storage()._cdata == x.untyped_storage()._cdata for view in views)
        sum((x * 1).sum() + view.sum() for view in views).backward()
        return x.grad.shape, [(v.shape, v.stride(), v.storage_offset(), v.device, v.requires_grad) for v in views]

    real, fake = (tinydist.launch(program, 1, fake=fake) for fake in (False, True))
    assert fake.results == real.results and said_of(fake) == said_of(real)


def test_a_fake_run_is_the_real_one_in_time_memory_and_traffic():
    real, fake, one = (
        tinydist.launch(training_step, 4, TINY, **how) for how in ({}, {"fake": True}, {"fake": True, "only": [0]})
    )
    assert said_of(real) == said_of(fake) == said_of(one)


def big_step():
    """In a process of its own: prints the bytes it held, the parameters, and its resident memory."""
    run = tinydist.launch(training_step, 64, BIG, fake=True, only=[0])
    held = list(run.memory[0].over_time())[-1][1]
    _, _, n, tensors = run.results[0]
    sent = sum(run.traffic[0])
    print(n, tensors, held["parameters"], held["gradients"], held["optimizer states"], sent, peak_resident_bytes())


def peak_resident_bytes():
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss begins with the peak of the parent: of the tests that ran before
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.exhaustive
def test_a_step_of_a_gpt_of_7_billion_parameters_on_64_ranks_takes_a_gigabyte_at_most():
    program = "import test_fake; test_fake.big_step()"
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.split()
    n, tensors, parameters, gradients, states = map(int, output[:5])
    sent, resident = float(output[5]), int(output[6])
    D = BIG.dim
    assert n == BIG.vocab_size * D + BIG.context * D + BIG.layers * (12 * D * D + 13 * D) + 2 * D > 7.4e9
    assert parameters == gradients == 4 * n
    assert states == 8 * n + 4 * tensors  # two moments, and a count of steps for each tensor
    assert sent == pytest.approx(2 * 63 / 64 * 4 * n)
    assert resident < 1e9


# What a fake tensor is that a program resizes, converts, reads.


def freed_and_seen(view):
    weight = nn.Parameter(torch.empty(4, 4))
    weight.untyped_storage().resize_(0)
    seen = view(weight)
    return (seen.untyped_storage().nbytes(), weight.untyped_storage().nbytes()), torch.empty(8)


# torch refuses other views of freed memory.
VIEWS = {"data": lambda weight: weight.data, "detach": torch.detach, "view": lambda weight: weight.view(-1)}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("fake", [False, True])
def test_a_view_of_freed_memory_leaves_it_freed(view, fake):
    for _ in range(2):  # torch remembers how it made a fake view: the second is made in another way
        run = tinydist.launch(freed_and_seen, 1, view, fake=fake)
        assert run.results[0][0] == (0, 0)
        assert run.memory[0].peak == 4 * 4 * 4
        assert sum(nbytes for _, _, nbytes, *_ in run.memory[0].changes) == 8 * 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_module_is_converted_in_place(dtype):
    def program():
        model = GPT(TINY)
        weights, tied, seen = list(model.parameters()), model.embedding.weight, []
        tied.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.dtype))
        model.to(dtype)
        tokens = torch.zeros(1, TINY.context, dtype=torch.long)
        model.loss(tokens, tokens).backward()
        model.to(dtype)
        same = all(before is after for before, after in zip(weights, model.parameters(), strict=True))
        return same, model.head.weight is tied, tied.dtype, tied.grad.dtype, seen

    real, fake = (tinydist.launch(program, 1, fake=fake) for fake in (False, True))
    assert fake.results == real.results
    assert fake.results[0][:2] == (True, True)
    assert kept(fake) == kept(real)


def kept(run):
    """The changes that a conversion is about. (Of other things, torch 2.12 takes some for smaller.)"""
    purposes = "parameters", "gradients"
    return [(purpose, nbytes) for _, purpose, nbytes, *_ in run.memory[0].changes if purpose in purposes]


def test_native_code_that_reads_values_is_told():
    def program():
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))

    with pytest.raises(RuntimeError) as told:
        tinydist.launch(program, 2, fake=True)
    assert any(
        "torch's DistributedDataParallel does: tinydist.data_parallel.DDP" in each for each in told.value.__notes__
    )


def test_numbers_that_other_ranks_have_changed_are_not_known():
    def program():
        x = torch.tensor(float(dist.get_rank()))
        known = x.item()  # it was made from it
        row = x.view(1)
        dist.all_reduce(x)
        return known, row.item()

    with pytest.raises(RuntimeError, match="needs the values of a tensor, but tensors have none with fake=True"):
        tinydist.launch(program, 2, fake=True)


# Ranks that are taken to do the same.


def everything():
    """All kinds of communication, on the world and on halves of it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group(range(p // 2)), dist.new_group(range(p // 2, p))]
    for group in (None, halves[2 * rank // p]):
        size, root = dist.get_world_size(group), dist.get_process_group_ranks(group or dist.group.WORLD)[0]
        part, whole = torch.ones(10), torch.ones(10 * size)
        parts, at_root = list(whole.chunk(size)), rank == root
        dist.all_reduce(whole, group=group)
        dist.broadcast(whole, root, group=group)
        dist.reduce(whole, root, group=group)
        dist.all_gather(parts, part, group=group)
        dist.all_gather_single(whole, part, group=group)
        dist.reduce_scatter(part, parts, group=group)
        dist.reduce_scatter_single(part, whole, group=group)
        dist.all_to_all_single(whole, torch.ones(10 * size), group=group)
        dist.gather(part, parts if at_root else None, root, group=group)
        dist.scatter(part, parts if at_root else None, root, group=group)
        dist.barrier(group=group)
    ring = [dist.isend(part, (rank + 1) % p), dist.irecv(torch.empty(10), (rank - 1) % p)]
    for work in ring:
        work.wait()
    return rank


@pytest.mark.parametrize("only", [[0], [3], [1, 2], [7, 0], range(8)])
def test_named_ranks_do_what_they_do_among_all(only):
    everyone = tinydist.launch(everything, 8, fake=True)
    some = tinydist.launch(everything, 8, fake=True, only=only)
    assert some.results == [rank if rank in only else None for rank in range(8)]
    assert some.seconds == pytest.approx(everyone.seconds, rel=1e-12)
    for rank in only:
        assert some.memory[rank].changes == everyone.memory[rank].changes
        assert [event[:3] for event in some.trace.of(rank)] == [event[:3] for event in everyone.trace.of(rank)]


def test_torchs_own_ddp_on_one_of_many_ranks():
    def program():
        model = DDP(nn.Linear(64, 64), bucket_cap_mb=0.01, init_sync=False)
        model(torch.ones(8, 64)).sum().backward()

    cluster = default_cluster(256).with_algorithm("ring")
    run = tinydist.launch(program, 256, fake=True, only=[5], cluster=cluster)
    assert sum(run.traffic[5]) == pytest.approx(2 * 255 / 256 * (64 * 64 + 64) * 4)


def test_a_receive_from_any_rank_needs_the_ranks_to_run():
    with pytest.raises(tinydist.DeadlockError, match="from any rank"):
        tinydist.launch(lambda: dist.recv(torch.empty(1)), 4, fake=True, only=[0])


@pytest.mark.parametrize(
    "how",
    [{"only": [0]}, {"fake": True, "only": []}, {"fake": True, "only": [4]}, {"fake": True, "only": [-1, 0]}],
    ids=["real", "none", "too high", "too low"],
)
def test_only_names_ranks_of_a_fake_run(how):
    with pytest.raises(
        ValueError,
        match=r"only (must be a subset of ranks 0 to 3, with fake=True|must be a list of ranks, or None), got \[",
    ):
        tinydist.launch(everything, 4, **how)
