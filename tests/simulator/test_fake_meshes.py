"""Meshes, DTensor, fully_shard, tensor parallelism with fake tensors: the bytes and times of a run with real ones."""

import pytest
import torch
import torch.distributed as dist
from sampled import sampled
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tinydist
from tinydist.model import GPT, GPTConfig

TINY = GPTConfig(vocab_size=64, context=16, layers=1, heads=2, dim=16)
MLP = {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}


def training_step(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    tokens = torch.zeros(2, TINY.context, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    optimizer.step()
    return model, optimizer


def sharded(model, mesh, **options):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fully_sharded():
    return training_step(sharded(GPT(TINY), init_device_mesh("cpu", (4,))))


def mixed():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return training_step(sharded(GPT(TINY), None, mp_policy=policy))


def hybrid():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return training_step(sharded(GPT(TINY), mesh))


def tensor_parallel():
    model, mesh = GPT(TINY), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], MLP)
    return training_step(model)


def both():
    model, mesh = GPT(TINY), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], MLP)
    return training_step(sharded(model, mesh["dp"]))


def redistributed():
    """A DTensor by every way from one placement to another."""
    mesh = init_device_mesh("cpu", (2, 2))
    x = distribute_tensor(torch.ones(8, 6), mesh, [Shard(0), Replicate()])
    y = (x.redistribute(placements=[Shard(1), Shard(0)]) @ x.redistribute(placements=[Replicate(), Shard(1)]).T).relu()
    summed = DTensor.from_local(torch.ones(8), mesh, [Partial(), Partial()])
    return y.full_tensor().shape, summed.full_tensor().shape


def in_bfloat16():
    return training_step(GPT(TINY).to(torch.bfloat16))


def said_of(run):
    memory = run.memory[0]
    return {
        "seconds": run.seconds,
        "sent": run.traffic[0],
        "events": [event[:5] for event in run.trace.of(0)],
        "held": memory.changes,
        "at peak": memory.at_peak,
    }


PROGRAMS = [fully_sharded, mixed, hybrid, tensor_parallel, both, redistributed, in_bfloat16]
FEW = [mixed, both, redistributed, in_bfloat16]  # the others have parts of these


@pytest.mark.parametrize("program", sampled(FEW, PROGRAMS), ids=lambda program: program.__name__)
def test_fake_ranks_send_hold_and_take_what_real_ones_do(program):
    real, fake, one = (tinydist.launch(program, 4, **how) for how in ({}, {"fake": True}, {"fake": True, "only": [0]}))
    assert said_of(fake) == said_of(real)
    assert said_of(one) == said_of(real)
    assert fake.traffic == real.traffic
    assert [memory.changes for memory in fake.memory] == [memory.changes for memory in real.memory]


def test_a_mesh_has_its_ranks():
    def program():
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("a", "b"))
        listed = DeviceMesh("cpu", [[5, 4, 3], [2, 1, 0]])
        return mesh.mesh.tolist(), mesh.get_coordinate(), mesh["b"].mesh.tolist(), listed.get_coordinate(), str(mesh)

    real, fake = (tinydist.launch(program, 6, fake=fake).results for fake in (False, True))
    assert fake == real
    assert fake[4][:4] == ([[0, 1, 2], [3, 4, 5]], (1, 1), [3, 4, 5], (0, 1))


def test_a_mesh_of_a_thousand_ranks_on_one_of_them():
    def program():
        mesh = init_device_mesh("cpu", (8, 128), mesh_dim_names=("dp", "tp"))
        dist.all_reduce(torch.empty(1 << 30), group=mesh["tp"].get_group())
        return mesh.get_coordinate()

    run = tinydist.launch(program, 1024, fake=True, only=[300])
    assert run.results[300] == (2, 44)
    assert sum(run.traffic[300]) == pytest.approx(2 * 127 / 128 * (4 << 30))
