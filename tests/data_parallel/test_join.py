"""Ranks with fewer batches: each step is the mean over those that have one, and all end with one model."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import OUT, WIDTH, assert_every_rank_has, sgd, tiny_mlp, weights
from torch import nn

import tinydist
from tinydist.data_parallel import DDP, join


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(4, WIDTH, generator=generator), torch.randn(4, OUT, generator=generator)


def train(batches, model=tiny_mlp, **options):
    """Rank r has ``batches[r]`` of them."""
    ddp = DDP(model(), **options)
    optimizer = sgd(ddp.parameters())
    with join(ddp):
        for step in range(batches[dist.get_rank()]):
            inputs, targets = batch(dist.get_rank(), step)
            optimizer.zero_grad()
            F.mse_loss(ddp(inputs), targets).backward()
            optimizer.step()
    return weights(ddp)


def alone(batches):
    """In step s the mean over the ranks that have more than s batches, of equal size."""
    model = tiny_mlp()
    optimizer = sgd(model.parameters())
    for step in range(max(batches)):
        rows = [batch(rank, step) for rank, count in enumerate(batches) if count > step]
        inputs, targets = (torch.cat(tensors) for tensors in zip(*rows))
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize("batches", [[3], [2, 2], [3, 1], [1, 3], [0, 2, 4], [2, 5, 0, 1]], ids=str)
@pytest.mark.parametrize("bucket_bytes", [200, 1e9])
def test_weights_equal_one_process(batches, bucket_bytes):
    run = tinydist.launch(lambda: train(batches, bucket_bytes=bucket_bytes), len(batches))
    assert_every_rank_has(alone(batches), run.results)


def test_with_buffers_nobody_hangs():
    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, OUT), nn.BatchNorm1d(OUT))

    results = tinydist.launch(lambda: train([1, 3, 2], model), 3).results
    assert_every_rank_has(results[1], results, atol=0)


def test_afterwards_all_ranks_count_again():
    def program():
        ddp = DDP(tiny_mlp())
        with join(ddp):
            pass
        ddp(batch(dist.get_rank(), 0)[0]).sum().backward()
        return ddp.reducer.share, ddp.module[0].weight.grad.clone()

    results = tinydist.launch(program, 2).results
    assert [share for share, _ in results] == [0.5, 0.5]
    assert torch.equal(results[0][1], results[1][1])


def test_unused_parameters_cannot_be_asked_for():
    with pytest.raises(ValueError, match="find_unused_parameters must be False"):
        tinydist.launch(lambda: train([1, 2], find_unused_parameters=True), 2)
