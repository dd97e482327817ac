"""One rank's inf: under DDP it is in the gradients of all; of sharded weights only its own rank has it."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP
from tinydist.precision import DynamicLossScale, LossScaler

RANKS, WIDTH, BAD = 3, 6, 1


def torchs_scaler():
    return torch.amp.GradScaler("cpu", init_scale=16.0)


def our_scaler():
    return LossScaler(DynamicLossScale(16.0))


def scale_of(scaler):
    return scaler.rule.scale if isinstance(scaler, LossScaler) else scaler.get_scale()


def local(parameter):
    return (parameter.to_local() if hasattr(parameter, "to_local") else parameter).detach()


def step(model, scaler, x):
    """Whether this rank has stepped, and its scale afterwards."""
    parameters = list(model.parameters())
    optimizer, before = torch.optim.SGD(parameters, lr=0.1), [local(each).clone() for each in parameters]
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return any(not torch.equal(local(now), then) for now, then in zip(parameters, before)), scale_of(scaler)


def layer():
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH, bias=False)


def rows():
    """Of rank BAD, with an inf."""
    x = torch.ones(2, WIDTH)
    x[0, 0] = torch.inf if dist.get_rank() == BAD else 1
    return x


ON_NONE, ON_THE_OTHERS = [(False, 8.0)] * RANKS, [(rank != BAD, 8.0 if rank == BAD else 16.0) for rank in range(RANKS)]


@pytest.mark.parametrize("scaler", [torchs_scaler, our_scaler])
@pytest.mark.parametrize("wrap", [DistributedDataParallel, DDP])
def test_under_ddp_the_all_reduce_tells_all_ranks(scaler, wrap):
    assert tinydist.launch(lambda: step(wrap(layer()), scaler(), rows()), RANKS).results == ON_NONE


class Shard(nn.Module):
    """A rank's columns of a layer, and no other rank's."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(self.mine(layer().weight.detach()).clone())

    def mine(self, columns):
        return columns.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]

    def forward(self, x):
        return self.mine(x) @ self.weight.T


def sharded(scaler):
    """All ranks have the same rows; the inf meets the columns of BAD."""
    x = torch.ones(2, WIDTH)
    x[0, BAD * WIDTH // RANKS] = torch.inf
    return step(Shard(), scaler(), x)


def test_of_sharded_weights_torchs_scaler_skips_on_one_rank_alone():
    """From then on the ranks have weights of other steps, and other scales."""
    assert tinydist.launch(lambda: sharded(torchs_scaler), RANKS).results == ON_THE_OTHERS


def test_of_sharded_weights_ours_asks_the_others():
    assert tinydist.launch(lambda: sharded(our_scaler), RANKS).results == ON_NONE


def test_where_torch_knows_of_the_shards_it_asks_too():
    """``fully_shard`` makes them DTensors, and for those what was found is reduced."""

    def program():
        model, mesh = layer(), init_device_mesh("cpu", (RANKS,))
        fully_shard(model, mesh=mesh)
        return step(model, torchs_scaler(), rows())

    assert tinydist.launch(program, RANKS).results == ON_NONE


# What looking at the gradients costs.


def operators_of_a_step(parameters):
    def program():
        weights = [nn.Parameter(torch.ones(3)) for _ in range(parameters)]
        scaler, optimizer = our_scaler(), torch.optim.SGD(weights, lr=0.1)
        scaler.scale(sum(weight.sum() for weight in weights)).backward()
        with tinydist.region("unscale"):
            scaler.unscale_(optimizer)
        return [weight.grad.tolist() for weight in weights]

    run = tinydist.launch(program, 2)
    assert run.results == [[[1.0] * 3] * parameters] * 2
    return [event.name for event in run.between("unscale").trace.of(0) if event.stream == "compute"]


def test_gradients_are_divided_and_looked_at_by_one_kernel_however_many_they_are():
    few, many = operators_of_a_step(2), operators_of_a_step(100)
    assert few == many
    assert few.count("_amp_foreach_non_finite_check_and_unscale_") == 1
