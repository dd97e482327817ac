"""DTensors on pretended GPUs: DTensor tries each operator on tensors without data, of its mesh's device."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tinydist


def ready():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")


def test_every_rank_finds_shapes_though_the_first_one_has_found_them_before():
    def program():
        ready()
        mesh = dist.device_mesh.init_device_mesh("cuda", (2,))
        model = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 3)).cuda()
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        model(torch.ones(5, 3, device="cuda")).sum().backward()
        return str(model[0].weight.grad.to_local().device)

    assert tinydist.launch(program, 2, init=False, gpus=True).results == ["cuda:0", "cuda:1"]


def test_parameters_of_meta_tensors_are_drawn_on_their_shards():
    def program():
        ready()
        with torch.device("meta"):
            model = nn.Linear(4, 6)
        fully_shard(model)
        model.to_empty(device="cuda")
        model.reset_parameters()
        return model.weight.to_local().abs().max().item()

    run = tinydist.launch(program, 2, init=False, gpus=True)
    assert all(0 < largest <= 0.5 for largest in run.results), "1 / sqrt(4)"


def test_a_dtensor_of_a_result_that_is_not_awaited_is_on_the_gpu():
    def program():
        ready()
        mesh = dist.device_mesh.init_device_mesh("cuda", (2,))
        model = nn.Sequential(nn.Linear(4, 2, bias=False)).cuda()
        nn.init.ones_(model[0].weight)
        parallelize_module(model, mesh, {"0": RowwiseParallel(input_layouts=Replicate())})
        result = DTensor.from_local(model(torch.ones(1, 4, device="cuda")), mesh, [Replicate()], run_check=False)
        return str(result.device), str(torch.ones(1).type_as(result).device), result.sum().item()

    run = tinydist.launch(program, 2, init=False, gpus=True)
    assert run.results == [(f"cuda:{rank}", f"cuda:{rank}", 8.0) for rank in range(2)]


LOADED_BY_THE_PROGRAM = """
import sys
import torch
import torch.distributed as dist
import tinydist

def program():
    dist.init_process_group("nccl")
    mesh = dist.device_mesh.init_device_mesh("cuda", (1,))
    from torch.distributed.tensor import DTensor, Replicate
    x = DTensor.from_local(torch.ones(64, 64, device="cuda"), mesh, [Replicate()])
    return str((x @ x).to_local().device)

assert "torch.distributed.tensor" not in sys.modules
runs = [tinydist.launch(program, 1, init=False, gpus=True) for _ in range(2)]
first, second = [(run.results, run.memory[0].at_peak, len(run.record.programs[0])) for run in runs]
assert first == second and first[0] == ["cuda:0"], (first, second)
"""


def test_dtensor_may_be_loaded_by_the_program():
    """It is told of the launch when the first mesh is made: the search for shapes is neither in memory nor in time."""
    subprocess.run([sys.executable, "-c", LOADED_BY_THE_PROGRAM], check=True)
