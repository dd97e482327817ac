"""DDP: what one process computes, what torch's own computes and sends, and errors that name what is wrong."""

import re

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data_parallel.awkward_model import Awkward, adam, rows_of, train, train_alone
from tiny_training import assert_every_rank_has, global_batch, tiny_mlp, weights
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unobserved import launch

import tinydist
from tinydist.data_parallel import DDP, DataParallel, hooks
from tinydist.model import GPT, batch

RANKS = (1, 2, 3, 4, 8)
A_LAYER = 200  # bytes: a bucket is full with a layer or less


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"bucket_bytes": A_LAYER}, {"find_unused_parameters": True}, {"static_graph": True, "bucket_bytes": A_LAYER}],
    ids=str,
)
def test_weights_equal_one_process(ranks, options):
    assert_every_rank_has(train_alone(), launch(lambda: train(DDP(Awkward(), **options)), ranks).results)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_with_a_parameter_that_takes_no_part(ranks, option):
    def program():
        model = DDP(Awkward(unused=True), bucket_bytes=A_LAYER, **{option: True})
        result = train(model)
        assert model.module.aside.weight.grad is None
        return result

    assert_every_rank_has(train_alone(unused=True), launch(program, ranks).results)


@pytest.mark.parametrize("ranks", [2, 3])
def test_equals_torchs_own(ranks):
    theirs = tinydist.launch(lambda: train(DistributedDataParallel(Awkward(), bucket_cap_mb=1e-4)), ranks).results
    assert_every_rank_has(theirs[0], tinydist.launch(lambda: train(DDP(Awkward())), ranks).results)


def all_reduces(run):
    return [event.transfer.nbytes for event in run.trace.of(0) if event.name == "all_reduce"]


def test_sends_what_torchs_own_sends():
    ours, theirs = (
        tinydist.launch(lambda wrap: train(wrap(tiny_mlp())), 4, wrap)
        for wrap in (DDP, lambda model: DistributedDataParallel(model, gradient_as_bucket_view=True))
    )
    nbytes = sum(p.nbytes for p in tiny_mlp().parameters())
    assert sum(all_reduces(ours)) == sum(all_reduces(theirs)) == 5 * nbytes


def test_bytes_a_rank_and_one_all_reduce_for_each_bucket():
    def program(steps):
        model = DDP(tiny_mlp(), bucket_bytes=A_LAYER)
        train(model, steps=steps)
        return len(model.reducer.buckets)

    none, one = (tinydist.launch(program, 4, steps) for steps in (0, 1))
    nbytes = sum(p.nbytes for p in tiny_mlp().parameters())
    sent = [sum(one.traffic[rank]) - sum(none.traffic[rank]) for rank in range(4)]
    assert sent == [2 * 3 * nbytes / 4] * 4
    assert len(all_reduces(one)) == one.results[0] == 3


def accumulate(model, around):
    """Four microbatches of one step; ``around`` is what surrounds the first three."""
    optimizer = adam(model.parameters())
    inputs, targets = rows_of(dist.get_rank(), dist.get_world_size(), 0)
    for number, (x, y) in enumerate(zip(inputs.chunk(4), targets.chunk(4))):
        if number < 3 and around == "forward and backward":
            with model.no_sync():
                (F.mse_loss(model(x), y) / 4).backward()
        elif number < 3 and around == "backward":
            loss = F.mse_loss(model(x), y) / 4
            with model.no_sync():
                loss.backward()
        else:
            (F.mse_loss(model(x), y) / 4).backward()
    optimizer.step()
    return weights(model)


@pytest.mark.parametrize("around, reductions", [("forward and backward", 1), ("backward", 4), ("nothing", 4)])
def test_no_sync(around, reductions):
    """As with torch's own, forward must be inside: around backward alone it does nothing."""

    def program():
        model = DDP(tiny_mlp())
        return accumulate(model, around)

    def alone():
        model = tiny_mlp()
        F.mse_loss(model(global_batch(0, 24)[0]), global_batch(0, 24)[1]).backward()
        adam_step = adam(model.parameters())
        adam_step.step()
        return weights(model)

    run = tinydist.launch(program, 2)
    assert len(all_reduces(run)) == reductions
    assert_every_rank_has(alone(), run.results, atol=1e-5)


def test_gradients_are_views_and_stay_so():
    def program():
        model = DDP(tiny_mlp())
        optimizer = adam(model.parameters())
        for step in range(2):
            optimizer.zero_grad(set_to_none=step == 0)
            F.mse_loss(model(global_batch(step)[0]), global_batch(step)[1]).backward()
        (bucket,) = model.reducer.buckets
        flat = bucket.flat.untyped_storage().data_ptr()
        return all(p.grad.untyped_storage().data_ptr() == flat for p in model.parameters())

    assert launch(program, 2).results == [True, True]


def test_gradients_are_held_once():
    """The buckets are the gradients: no copy of them is left after backward."""
    run = tinydist.launch(lambda: train(DDP(tiny_mlp()), steps=1), 2)
    nbytes = sum(p.nbytes for p in tiny_mlp().parameters())
    assert max(now["gradients"] for _, now in run.memory[1].over_time()) < 2 * nbytes


def test_all_start_as_rank_0():
    def program():
        torch.manual_seed(dist.get_rank())
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        model[1].running_mean.fill_(dist.get_rank() + 1)
        DDP(model)
        return [tensor.tolist() for tensor in model.state_dict().values()]

    first, *others = launch(program, 3).results
    assert all(other == first for other in others)


def test_buffers_are_rank_0s():
    """Each rank normalizes by its own rows; what is kept of them is what rank 0 saw."""

    def program():
        model = DDP(nn.BatchNorm1d(2))
        for step in range(3):
            model(torch.full((4, 2), 10.0 * dist.get_rank()) + step)
        model.no_sync().__enter__()
        return model.module.running_mean[0].item()

    results = launch(program, 2).results
    assert results[0] < 1 and 0 < results[1] - results[0] < 2  # one step of its own since rank 0's came


def test_compression():
    """Half of the bytes, and bfloat16's 8 bits."""
    exact, rough = (
        tinydist.launch(lambda hook: train(DDP(tiny_mlp(), hook=hook), steps=1), 2, hook)
        for hook in (hooks.all_reduce, hooks.compressed(torch.bfloat16))
    )
    assert 2 * sum(all_reduces(rough)) == sum(all_reduces(exact))
    for name, weight in exact.results[0].items():
        assert torch.allclose(weight, rough.results[0][name], atol=2e-2)
    assert_every_rank_has(rough.results[0], rough.results, atol=0)


def test_one_rank_may_leave_a_parameter_out():
    """Its share of the mean is zero; and in another order of layers on each rank buckets still start in one order."""

    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return (self.a if dist.get_rank() else self.b)(x)

    def program():
        model = DDP(Sometimes(), bucket_bytes=4, find_unused_parameters=True)
        model(torch.ones(1, 2)).sum().backward()
        return [p.grad.tolist() for p in model.parameters()]

    half = [[0.5, 0.5], [0.5, 0.5]]
    assert launch(program, 2).results == [[half, [0.5, 0.5]] * 2] * 2


def test_on_processes():
    results = tinydist.launch(lambda: train(DDP(Awkward())), 2, backend="gloo", timeout=60).results
    assert_every_rank_has(train_alone(), results)


@pytest.mark.parametrize("only", [None, [5]])
def test_fake_ranks_send_and_hold_what_real_ones_do(only):
    def program():
        model = DDP(nn.Linear(64, 64))
        for _ in range(2):
            model(torch.ones(8, 64)).sum().backward()
            model.zero_grad()

    real, fake = (tinydist.launch(program, 8, **how) for how in ({}, {"fake": True, "only": only}))
    collectives = [
        [(event.name, event.transfer.nbytes) for event in run.trace.of(5) if event.name in ("broadcast", "all_reduce")]
        for run in (real, fake)
    ]
    assert collectives[0] == collectives[1] and len(collectives[1]) == 2 + 2
    assert real.memory[5].at_peak["gradients"] == fake.memory[5].at_peak["gradients"]


# Errors.


def backward(model, x=None):
    model(torch.ones(2, 8) if x is None else x).sum().backward()


def fails(program, error, *words, ranks=2):
    with pytest.raises(error) as caught:
        launch(program, ranks)
    for word in words:
        assert re.search(word, str(caught.value)), f"{word!r} is not in: {caught.value}"


def test_a_missing_gradient():
    fails(
        lambda: backward(DDP(Awkward(unused=True))),
        RuntimeError,
        "without a gradient for aside.weight, aside.bias",
        "rank 0",
        "find_unused_parameters=True",
    )


def test_after_the_error_it_works_again():
    def program():
        model = DDP(Awkward(unused=True), bucket_bytes=A_LAYER)
        with pytest.raises(RuntimeError, match="without a gradient"):
            backward(model)
        model.zero_grad()
        (model(torch.ones(2, 8)).sum() + model.module.aside(torch.ones(3)).sum()).backward()
        return model.module.twice.weight.grad is not None

    assert launch(program, 2).results == [True, True]


def test_another_graph_than_the_static_one():
    def program():
        model = DDP(Awkward(unused=True), static_graph=True)
        backward(model)
        (model(torch.ones(2, 8)).sum() + model.module.aside(torch.ones(3)).sum()).backward()

    fails(program, RuntimeError, "static_graph is True, but aside", "was not in the first step")


def test_fewer_than_in_the_static_graph():
    def program():
        model = DDP(Awkward(), static_graph=True)
        backward(model)
        model.module.into(torch.ones(2, 8)).sum().backward()

    fails(program, RuntimeError, "without a gradient for twice.weight, twice.bias")


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda model: model.into.weight.requires_grad_(False), "into.weight"),
        (lambda model: setattr(model, "twice", nn.Linear(8, 8)), "twice.bias, twice.weight"),
        (lambda model: model.register_parameter("more", nn.Parameter(torch.ones(1))), "more"),
    ],
)
def test_a_module_changed_after_wrapping(change, name):
    def program():
        model = DDP(Awkward())
        change(model.module)
        backward(model)

    fails(program, RuntimeError, f"has changed since it was wrapped: {name}")


def test_a_rank_with_other_parameters():
    def program():
        DDP(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + dist.get_rank() // 2)]))

    fails(program, ValueError, "rank 2 has 4 and rank 0 has 2", "first difference: 1.bias", ranks=3)


def test_an_error_in_backward_leaves_no_hang():
    """One rank fails before its all-reduce: the others are stopped, with its error."""

    def program():
        model = DDP(Awkward())
        if dist.get_rank() == 1:
            model.module.into.weight.register_hook(lambda gradient: 1 / 0)
        backward(model)

    fails(program, ZeroDivisionError, "division by zero", ranks=3)


# What it holds.


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_activations_of_a_rank_are_those_of_its_rows(ranks):
    def program():
        model, shapes = DDP(GPT()), []
        for block in model.module.blocks:
            block.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
        model(batch(0, 8)[0].chunk(ranks)[dist.get_rank()])
        return shapes

    for shapes in launch(program, ranks).results:
        assert shapes == [(8 // ranks, 64, 64)] * 2  # [batch/p, length, width]


def test_every_rank_holds_the_same_where_dp_is_lopsided():
    def ddp():
        train(DDP(Awkward()), steps=2)

    def dp():
        model = DataParallel(Awkward())
        optimizer = adam(model.parameters()) if model.is_root else None
        for step in range(2):
            inputs, targets = global_batch(step, 24)
            output = model(inputs)
            (F.mse_loss(output, targets) if model.is_root else output.sum()).backward()
            if optimizer:
                optimizer.step()

    even, lopsided = ([memory.peak for memory in tinydist.launch(program, 4).memory] for program in (ddp, dp))
    assert max(even) == min(even)
    assert lopsided[0] > 1.5 * max(lopsided[1:])
