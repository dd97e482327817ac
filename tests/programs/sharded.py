"""FSDP2 with a checkpoint of torch.distributed.checkpoint."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def model(mesh):
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(2)])
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(layers, mesh=mesh)


def main(path):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    first = model(mesh)
    optimizer = torch.optim.AdamW(first.parameters(), lr=0.1)
    for _ in range(2):
        first(torch.ones(2, 8) * dist.get_rank()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint.save({"model": get_model_state_dict(first)}, checkpoint_id=path)
    second = model(mesh)
    state = {"model": get_model_state_dict(second)}
    checkpoint.load(state, checkpoint_id=path)
    set_model_state_dict(second, state["model"])
    x = torch.arange(8.0)
    if torch.equal(first(x), second(x)):
        print(f"rank {dist.get_rank()}: as saved, {first[0].weight.to_local().numel()} weights of 64 here")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
