"""The parameter server: the weights of one process, and everything through its link."""

import math

import pytest
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import assert_every_rank_has, global_batch, sgd, tiny_mlp, train_in_one_process, weights

import tinydist
from tinydist.data_parallel import parameter_server
from tinydist.hardware import Cluster, Link

LINK = Link("link", 3e-6, 20e9)
CLUSTER = Cluster("A100 80GB", 8, LINK).communication_alone


def loss_of(model, step):
    worker, workers = dist.get_rank() - 1, dist.get_world_size() - 1
    inputs, targets = (tensor.chunk(workers)[worker] for tensor in global_batch(step))
    return F.mse_loss(model(inputs), targets)


def train(steps=3):
    model = tiny_mlp()
    if dist.get_rank() > 0:
        return parameter_server.work(model, loss_of, steps)
    parameter_server.serve(model, sgd(model.parameters()), steps)
    return weights(model)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_weights_equal_one_process(ranks):
    assert_every_rank_has(train_in_one_process(), tinydist.launch(train, ranks).results[:1])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_bytes_and_seconds(workers):
    run = tinydist.launch(train, 1 + workers, 1, cluster=CLUSTER)
    S = sum(p.nbytes for p in tiny_mlp().parameters())
    assert run.traffic[0] == [0] + [S] * workers
    assert [row[0] for row in run.traffic[1:]] == [S] * workers
    assert math.isclose(run.seconds, 2 * workers * (LINK.latency + S / LINK.bandwidth), rel_tol=1e-9)


def test_without_workers():
    with pytest.raises(ValueError, match="it needs a server and a worker, but the group has one rank"):
        tinydist.launch(train, 1)
