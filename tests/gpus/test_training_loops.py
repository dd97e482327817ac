"""Training as it is written for GPUs: losses and bytes sent are those of the same program on host tensors."""

import functools
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from gpus.on_gpus import where
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import tinydist
from tinydist.precision import autocast

RANKS, STEPS = 2, 3


def my_device(gpus):
    if not gpus:
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(rank, step):
    numbers = torch.Generator().manual_seed(rank * 100 + step)
    return torch.randn(6, 8, generator=numbers), torch.randint(0, 4, (6,), generator=numbers)


def trained(model, device, optimizer=None, mine=True, move=True):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for step in range(STEPS):
        x, y = batch(dist.get_rank() if mine else 0, step)
        loss = F.cross_entropy(model(x.to(device) if move else x), y.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ids(device):
    return [device] if device.type == "cuda" else None


def ddp(device):
    return trained(DDP(mlp().to(device), device_ids=ids(device)), device)


def ddp_moves_inputs(device):
    return trained(DDP(mlp().to(device), device_ids=ids(device)), device, move=False)


def ddp_no_sync_and_clipping(device):
    model = DDP(mlp().to(device), device_ids=ids(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    losses = []
    for step in range(STEPS):
        x, y = (each.to(device) for each in batch(dist.get_rank(), step))
        with model.no_sync():
            F.cross_entropy(model(x), y).backward()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        optimizer.zero_grad(set_to_none=False)
        losses += [loss.item(), norm.item()]
    assert {where(each) for each in (*average.parameters(), norm)} == {str(device)}
    return losses


def fsdp1(device):
    return trained(FSDP(mlp(), device_id=device, use_orig_params=True), device)


def fsdp1_in_units(device):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    return trained(FSDP(mlp(), device_id=device, auto_wrap_policy=policy), device)


def fully_sharded(model, **how):
    for layer in model[::2]:
        fully_shard(layer, **how)
    return fully_shard(model, **how)


def fsdp2(device):
    model = fully_sharded(mlp().to(device), mesh=init_device_mesh(device.type, (RANKS,)))
    losses = trained(model, device)
    assert {where(each) for each in model.parameters()} == {str(device)}
    return losses


def fsdp2_from_meta(device):
    with torch.device("meta"):
        model = fully_sharded(mlp())
    model.to_empty(device=device.type)
    for number, parameter in enumerate(model.parameters()):
        nn.init.constant_(parameter, 0.01 * number)
    return trained(model, device)


def tensor_parallel(device):
    model, mesh = mlp()[:3].to(device), init_device_mesh(device.type, (RANKS,))
    return trained(
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), device, mine=False
    )


def pipeline(device):
    rank, losses = dist.get_rank(), []
    part = (mlp()[:3] if rank == 0 else mlp()[3:]).to(device)
    schedule = Schedule1F1B(PipelineStage(part, rank, RANKS, device), 2, loss_fn=F.cross_entropy)
    for step in range(STEPS):
        x, y = (each.to(device) for each in batch(0, step))
        found = []
        schedule.step(x) if rank == 0 else schedule.step(target=y, losses=found)
        losses += [each.item() for each in found]
    return losses


def zero_redundancy(device):
    model = DDP(mlp().to(device), device_ids=ids(device))
    return trained(model, device, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2))


def activation_checkpointing(device):
    model = mlp().to(device)
    forward = model.forward
    model.forward = lambda x: checkpoint(forward, x, use_reentrant=False)
    return trained(DDP(model, device_ids=ids(device)), device)


def bf16(device):
    model = DDP(mlp().to(device), device_ids=ids(device))
    cast = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else autocast("cuda", torch.bfloat16)
    forward = model.forward
    model.forward = cast(forward)
    return trained(model, device)


PROGRAMS = [
    ddp,
    ddp_moves_inputs,
    ddp_no_sync_and_clipping,
    fsdp1,
    fsdp1_in_units,
    fsdp2,
    fsdp2_from_meta,
    tensor_parallel,
    pipeline,
    zero_redundancy,
    activation_checkpointing,
    bf16,
]


def run(program, gpus, *args):
    def on_rank():
        dist.init_process_group("nccl" if gpus else "gloo")
        return program(my_device(gpus), *args)

    return tinydist.launch(on_rank, RANKS, gpus=gpus, init=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_and_traffic_are_those_on_the_host(program):
    host, gpus = run(program, False), run(program, True)
    assert gpus.results == host.results and len(set(host.results[1])) > 1
    assert gpus.traffic == host.traffic and sum(map(sum, host.traffic)) > 0


def test_a_distributed_checkpoint(tmp_path):
    def program(device):
        model = fully_sharded(mlp().to(device))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        trained(model, device, optimizer)
        saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        dcp.save(saved, checkpoint_id=tmp_path / device.type)
        first = trained(model, device, optimizer)
        states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        dcp.load(states, checkpoint_id=tmp_path / device.type)
        set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
        return first, trained(model, device, optimizer)

    (first, again), _ = run(program, True).results
    assert first == again == run(program, False).results[0][0]


@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": True}, {"capturable": True}, {}])
def test_optimizers(how):
    def program(device):
        model = mlp().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, **how)
        losses = trained(model, device, optimizer)
        places = {where(each) for state in optimizer.state.values() for name, each in state.items() if name != "step"}
        again = torch.optim.AdamW(model.parameters(), 1e-2, **how)
        again.load_state_dict(optimizer.state_dict())
        return losses + trained(model, device, again), places

    losses, places = run(program, True).results[0]
    expected = run(lambda device: trained(mlp(), device, torch.optim.AdamW(mlp().parameters())), False)
    assert places == {"cuda:0"} and len(losses) == 2 * STEPS and losses[0] == expected.results[0][0]


def test_the_optimizer_that_torch_chooses_on_gpus_computes_the_same():
    """foreach, where the host has a loop."""

    def program(device):
        model = mlp().to(device)
        return trained(model, device, torch.optim.AdamW(model.parameters(), 1e-2))

    for ours, theirs in zip(run(program, True).results, run(program, False).results, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
