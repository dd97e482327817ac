"""The exercises on ZeRO: their solutions are what one process gets, and hold and send what their texts say."""

import pytest
import torch
from torch import nn

from tinydist import launch, region
from tinydist.syllabus.registry import find
from tinydist.zero import ZeRO3


def cases(name, ranks):
    return [case for case in find(name).cases if case.ranks == ranks]


def of_all_ranks(trial, name):
    """Parts of a tensor, put together."""
    return torch.cat([returned[name] for returned in trial.returned])


# One process.


@pytest.mark.parametrize("case", cases("sharded_adam", 3) + cases("sharded_adam", 2))
def test_sharded_adam_is_adam_on_the_mean_gradient(case):
    one = find("sharded_adam")
    weights = case.arguments(0)[0]
    optimizer = one.module.adam([weights])
    for step in range(one.module.STEPS):
        gradients = [
            0.2 * one.module.numbers(len(weights), seed=10 * step + r, dtype=weights.dtype) for r in range(case.ranks)
        ]
        weights.grad = sum(gradients) / case.ranks
        optimizer.step()
        for returned in one.right(case).returned:
            assert returned[f"the weights after step {step}"].allclose(weights, atol=1e-6)


@pytest.mark.parametrize("case", cases("shard_gradients", 3))
def test_shards_of_gradients_are_those_of_the_mean(case):
    one = find("shard_gradients")
    *layers, rows, microbatches, _ = case.arguments(0)
    for step in range(one.module.STEPS):
        sums = [0.0] * len(layers)  # in fp32
        for rank in range(case.ranks):
            for number in range(microbatches):
                for layer in layers:
                    layer.grad = None
                one.module.backward(layers, rows, seed=1000 * number + 100 * step + rank)
                sums = [added + layer.grad.float().flatten() for added, layer in zip(sums, layers)]
        for number, added in enumerate(sums):
            found = of_all_ranks(one.right(case), f"the gradient of layer {number} in step {step}")
            assert found.allclose(added / case.ranks, atol=1e-6)


@pytest.mark.parametrize("case", cases("sharded_linear", 3) + cases("sharded_linear", 2))
def test_a_sharded_layer_is_a_whole_one(case):
    one = find("sharded_linear")
    *_, shapes, batch, _ = case.arguments(0)
    wholes = [nn.Parameter(whole) for whole in one.module.weights(shapes, case.arguments(0)[0].dtype)]
    right = one.right(case)
    for rank in range(case.ranks):
        x = one.module.numbers(batch, shapes[0][1], seed=rank, dtype=wholes[0].dtype).requires_grad_()
        y = x
        for whole in wholes:
            y = torch.tanh(y @ whole.T)
        y.pow(2).sum().backward()
        assert right.returned[rank]["the output of step 0"].allclose(y, atol=1e-6)
        assert right.returned[rank]["the gradient of x in step 0"].allclose(x.grad, atol=1e-6)
    for layer, whole in enumerate(wholes):
        found = of_all_ranks(right, f"the gradient of layer {layer}'s shard after step 0")
        assert found.allclose(whole.grad.flatten() / case.ranks, atol=1e-6)


def of_one_process(case):
    """torch's own SGD with momentum, and clipping, on one rank's batches."""
    checkpoint, batches, max_norm, _ = case.arguments(0)
    weights = [nn.Parameter(checkpoint.weight(layer)) for layer in range(checkpoint.layers)]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    for layer, weight in enumerate(weights):
        optimizer.state[weight]["momentum_buffer"] = checkpoint.momentum(layer)
    for x, targets in batches:
        for weight in weights:
            x = torch.tanh(x @ weight)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(x, targets).backward()
        torch.nn.utils.clip_grad_norm_(weights, max_norm)
        optimizer.step()
    return [weight.detach().flatten() for weight in weights]


def test_the_mended_loop_trains_as_torch_does():
    (case,) = cases("mended_fsdp", 1)
    (found,) = find("mended_fsdp").right(case).returned
    assert all(map(torch.allclose, found.values(), of_one_process(case)))


def test_with_one_rank_only_the_stale_weight_shows():
    """All shards are whole, and all norms global."""
    (case,), one = cases("mended_fsdp", 1), find("mended_fsdp")
    given = [mistake for mistake in one.mistakes if mistake.given]
    stale = [mistake for mistake in given if "forward has left" in mistake.words]
    all_four, one_alone, right = (
        list(trial.returned[0].values()) for trial in (one.run(case, *given), one.run(case, *stale), one.right(case))
    )
    assert len(given) == 4 and all(map(torch.allclose, all_four, one_alone))
    assert not any(map(torch.allclose, all_four, right))


# What is held and sent.


def sent(trial):
    (each,) = {round(sum(row)) for row in trial.run.traffic}
    return each


@pytest.mark.parametrize("case", cases("sharded_adam", 3) + cases("sharded_adam", 2), ids=str)
def test_stage_1_holds_and_sends_what_its_text_says(case):
    one = find("sharded_adam")
    weights, trial = case.arguments(0)[0], one.right(case)
    k = -(-len(weights) // case.ranks) * weights.element_size()
    for _, held in trial.arguments:
        assert max(held["states"]) <= 2 * k + one.module.SLACK / 2 and max(held["all"]) <= 4 * k + one.module.SLACK / 2
    assert sent(trial) == one.module.STEPS * 2 * (case.ranks - 1) * k


def test_stage_2_holds_and_sends_what_its_text_says():
    one = find("shard_gradients")
    (case,) = [case for case in one.cases if case.measured]
    trial, layer, p = one.right(case), one.module.LAYER, case.ranks
    most = one.module.MANY * layer / p + 2 * layer  # with half of the room that is granted
    *_, microbatches, _ = case.arguments(0)
    assert max(one.targets[-2].seen(trial)) <= most
    assert sent(trial) == one.module.STEPS * microbatches * one.module.MANY * (p - 1) * layer / p


def test_stage_3_holds_and_sends_what_its_text_says():
    one = find("sharded_linear")
    (case,) = [case for case in one.cases if case.measured]
    trial, layer, p = one.right(case), one.module.LAYER, case.ranks
    freed, peak, _ = one.targets[-3:]
    shards = one.module.MANY * layer / p
    assert max(freed.seen(trial)) <= layer / 2
    assert max(peak.seen(trial)) + shards <= 2 * shards + 2 * layer + layer  # with half of the room that is granted
    assert sent(trial) == one.module.STEPS * one.module.MANY * 3 * (p - 1) * layer / p


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_mended_loop_holds_what_its_text_says(ranks):
    one = find("mended_fsdp")
    case = cases("mended_fsdp", ranks)[0]
    shards = 4 * case.facts / ranks
    assert max(one.targets[-1].seen(one.right(case))) <= 3 * shards + 2 * case.facts + case.facts


# Predictions, beside stage 3 that is run, with a unit for each layer.


class Row(nn.Module):
    """A layer whose weight has so many numbers."""

    def __init__(self, numbers):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(numbers, dtype=torch.bfloat16))

    def forward(self, x):
        return x * self.weight.mean()


def two_steps(layers, reduce_bytes, **how):
    model = nn.Sequential(*map(Row, layers))
    how |= {"reduce_dtype": {2: torch.bfloat16, 4: torch.float32}[reduce_bytes]}
    stage_3 = ZeRO3(model, torch.optim.SGD, units=list(model), lr=0.1, **how)
    for _ in range(2):
        with region("step"):
            model(torch.ones(1, dtype=torch.bfloat16)).sum().backward()
            stage_3.step()
            stage_3.zero_grad()


def weights_and_sent(layers, ranks, reduce_bytes, **how):
    run = launch(lambda: two_steps(layers, reduce_bytes, **how), ranks, backend="simulated")
    step = run.between(("step", 1))
    peak = run.memory[0].peak_between(("step", 1), purpose="parameters")
    return peak, sum(step.traffic[0]), list(run.memory[0].over_time())[-1][1]["parameters"]


@pytest.mark.parametrize("case", find("predicted_fsdp").cases, ids=str)
def test_predictions_are_what_is_measured(case):
    found, (layers, ranks, reduce_bytes) = find("predicted_fsdp").right(case).returned[0], case.arguments(0)
    ways = {
        "in turns": {"prefetch": False},
        "prefetch": {},
        "kept": {"reshard_after_forward": False},
    }
    for name, how in ways.items():
        peak, sent, rest = weights_and_sent(layers, ranks, reduce_bytes, **how)
        assert peak == found[f"{name!r}"] and rest == found["'rest'"]
        assert sent == found["'sent if kept'" if name == "kept" else "'sent'"]
