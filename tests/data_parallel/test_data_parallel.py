"""DP: the weights of one process on the root, and everything through the root."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data_parallel.awkward_model import ROWS, Awkward, adam, train_alone
from tiny_training import OUT, WIDTH, assert_every_rank_has, global_batch, weights
from unobserved import launch

import tinydist
from tinydist.data_parallel import DataParallel
from tinydist.hardware import Cluster, Link

LINK = Link("link", 3e-6, 20e9)
CLUSTER = Cluster("A100 80GB", 8, LINK).communication_alone


def train(model, steps=5):
    """Every rank makes the same calls; only the root steps."""
    optimizer = adam(model.parameters()) if model.is_root else None
    for step in range(steps):
        inputs, targets = global_batch(step, ROWS)
        model.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        if model.is_root:
            optimizer.step()
    return weights(model) if model.is_root else None


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("unused", [False, True])
def test_weights_equal_one_process(ranks, unused):
    results = launch(lambda: train(DataParallel(Awkward(unused))), ranks).results
    assert_every_rank_has(train_alone(unused), results[:1])
    assert results[1:] == [None] * (ranks - 1)


def test_the_root_may_be_another():
    results = tinydist.launch(lambda: train(DataParallel(Awkward(), root=2)), 3).results
    assert_every_rank_has(train_alone(), results[2:])


def test_equals_one_process_on_processes():
    results = tinydist.launch(lambda: train(DataParallel(Awkward())), 2, backend="gloo", timeout=60).results
    assert_every_rank_has(train_alone(), results[:1])


def linear_step(ranks):
    def program():
        model = DataParallel(torch.nn.Linear(WIDTH, OUT))
        F.mse_loss(model(torch.ones(ROWS, WIDTH)), torch.ones(ROWS, OUT)).backward()

    return tinydist.launch(program, ranks, cluster=CLUSTER)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_all_bytes_pass_the_root(ranks):
    """Parameters out and gradients in: 2(p-1) S; and the rows, the outputs, and their gradient."""
    traffic = linear_step(ranks).traffic
    S = (WIDTH * OUT + OUT) * 4
    rows, outputs = ROWS * WIDTH * 4 // ranks, ROWS * OUT * 4 // ranks
    assert traffic[0] == [0] + [S + rows + outputs] * (ranks - 1)
    assert [row[0] for row in traffic[1:]] == [S + outputs] * (ranks - 1)
    assert all(not any(row[1:]) for row in traffic[1:])
    through_root = sum(traffic[0]) + sum(row[0] for row in traffic)
    assert through_root == 2 * (ranks - 1) * S + (ranks - 1) * (rows + 2 * outputs)


def test_the_root_holds_it_all():
    def program():
        model = DataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]))
        train_on = torch.ones(8, 64)
        optimizer = torch.optim.Adam(model.parameters()) if model.is_root else None
        model(train_on).sum().backward()
        if optimizer:
            optimizer.step()

    memory = tinydist.launch(program, 4).memory
    S = 4 * (64 * 64 + 64) * 4
    kept = [held.at_peak.get("optimizer states", 0) + held.at_peak.get("gradients", 0) for held in memory]
    assert 2 * S <= kept[0] - 4 * 4 * 8 <= 4 * S and kept[1:] == [0] * 3


def test_outputs_are_on_the_root_alone():
    """And the others' loss, a sum of zeros that take no memory, changes nothing."""
    wide, rows = 10_000, 40

    def program():
        model = DataParallel(torch.nn.Linear(WIDTH, wide, bias=False))
        output = model(torch.ones(rows, WIDTH))
        assert output.shape == (rows, wide)
        loss = output.square().mean() if model.is_root else output.sum()
        loss.backward()
        return model.module.weight.grad if model.is_root else loss.item()

    run = tinydist.launch(program, 4)
    alone = tinydist.launch(program, 1)
    assert torch.allclose(run.results[0], alone.results[0], atol=1e-7) and run.results[1:] == [0.0] * 3
    root, *others = (memory.peak for memory in run.memory)
    assert root > 2 * rows * wide * 4 and max(others) < rows * wide * 4


def test_the_root_keeps_no_second_copy_of_the_parameters():
    def program():
        model = DataParallel(torch.nn.Linear(1000, 1000, bias=False))
        with torch.no_grad():
            model(torch.ones(4, 1000))

    for memory in tinydist.launch(program, 2).memory:
        assert memory.at_peak["parameters"] == 4_000_000 and memory.peak < 4_100_000


# Inference: three ways to use the model, from one rank alone to replicas made once.


def inference(way, calls=3):
    model = DataParallel(torch.nn.Linear(WIDTH, OUT)).eval()
    replica = model.replicate() if way == "replicated ahead" else None
    for _ in range(calls):
        rows = torch.ones(ROWS, WIDTH)
        if way != "module alone":
            output = model(rows, replica)
        elif model.is_root:
            output = model.module(rows)
    return output if dist.get_rank() == 0 else None


def test_inference_three_ways():
    ways = ("module alone", "wrapper", "replicated ahead")
    runs = {way: tinydist.launch(torch.no_grad()(inference), 4, way, cluster=CLUSTER) for way in ways}
    alone, wrapper, ahead = runs.values()
    assert torch.allclose(wrapper.results[0], alone.results[0]) and torch.allclose(ahead.results[0], alone.results[0])
    S, rows_and_outputs = (WIDTH * OUT + OUT) * 4, ROWS * (WIDTH + OUT) * 4 * 3 // 4
    sent = {way: sum(map(sum, run.traffic)) for way, run in runs.items()}
    assert sent == {
        "module alone": 0,
        "wrapper": 3 * (3 * S + rows_and_outputs),
        "replicated ahead": 3 * S + 3 * rows_and_outputs,
    }


def test_a_batch_smaller_than_the_ranks():
    with pytest.raises(ValueError, match=r"dim 0 of shape \[3, 8\] must be divisible by the number of ranks \(4\)"):
        launch(lambda: DataParallel(torch.nn.Linear(WIDTH, OUT))(torch.ones(3, WIDTH)), 4)
