"""Master weights: 16 bytes a parameter, to the byte; the steps are those of fp32 weights."""

import copy
import math

import pytest
import torch
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.precision import LossScaler, MasterWeights, StaticLossScale

TINY = GPTConfig(vocab_size=64, context=16, layers=2, heads=2, dim=16)
BIG = GPTConfig(vocab_size=50257, context=1024, layers=36, heads=32, dim=4096)


def made_in(dtype, config):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return GPT(config)
    finally:
        torch.set_default_dtype(before)


# Bytes.


def training_step(config, dtype):
    model = made_in(dtype, config)
    optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=1e-3)
    tokens = torch.zeros(1, config.context, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    optimizer.step()
    weights = list(model.parameters())
    return model, optimizer, sum(p.numel() for p in weights), len(weights)


def held_at_last(run):
    return {purpose: held for purpose, held in list(run.memory[0].over_time())[-1][1].items() if held}


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bytes_a_parameter_of_which_12_are_the_optimizers(dtype, fake):
    run = tinydist.launch(training_step, 1, TINY, dtype, backend="simulated", fake=fake)
    _, _, n, tensors = run.results[0]
    counts = 4 * tensors  # Adam counts its steps for each tensor
    assert held_at_last(run) == {"parameters": 2 * n, "gradients": 2 * n, "optimizer states": 12 * n + counts}
    assert sum(held_at_last(run).values()) == 16 * n + counts
    at_peak = run.memory[0].at_peak
    assert at_peak["parameters"] == 2 * n and at_peak["optimizer states"] >= 4 * n


def test_copies_are_optimizer_states_from_the_start():
    def program():
        model = made_in(torch.bfloat16, TINY)
        return model, MasterWeights(model.parameters())

    run = tinydist.launch(program, 1, backend="simulated")
    n = sum(p.numel() for p in run.results[0][0].parameters())
    assert held_at_last(run) == {"parameters": 2 * n, "optimizer states": 4 * n}


def test_the_peak_of_a_step_has_fp32_gradients_of_one_tensor_only():
    def program():
        weights = [nn.Parameter(torch.ones(1000, dtype=torch.bfloat16)) for _ in range(8)]
        optimizer = MasterWeights(weights, torch.optim.SGD, lr=0.1)
        for p in weights:
            p.grad = torch.ones_like(p)
        optimizer.step()
        return weights, optimizer

    peak = tinydist.launch(program, 1, backend="simulated").memory[0].peak
    assert 8 * 8000 <= peak <= 8 * 8000 + 4 * 4000  # one gradient and what it is made from; of all it would be 32000


@pytest.mark.exhaustive
def test_15_gigabytes_of_weights_need_120_to_train():
    run = tinydist.launch(training_step, 1, BIG, torch.bfloat16, backend="simulated", fake=True)
    _, _, n, tensors = run.results[0]
    held = held_at_last(run)
    assert n == pytest.approx(7.5e9, rel=0.01)
    assert held["parameters"] == held["gradients"] == 2 * n == pytest.approx(15e9, rel=0.01)
    assert held["optimizer states"] == 12 * n + 4 * tensors
    assert sum(held.values()) == pytest.approx(120e9, rel=0.01)


# Steps.

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_the_masters_are_what_fp32_weights_become_by_the_same_gradients(which, dtype):
    kind, options = OPTIMIZERS[which]
    weights = [nn.Parameter(torch.randn(5, 3, dtype=dtype)), nn.Parameter(torch.randn(3, dtype=dtype))]
    plain = [nn.Parameter(p.detach().float()) for p in weights]
    ours, theirs = MasterWeights(weights, kind, **options), kind(plain, **options)
    for _ in range(5):
        for p, q in zip(weights, plain):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.float()
        ours.step()
        theirs.step()
        for p, q in zip(weights, plain):
            assert torch.equal(ours.masters[p], q)
            assert torch.equal(p, q.to(dtype))
    ours.zero_grad()
    assert all(p.grad is None for p in weights)


@pytest.mark.parametrize("dtype, update", [(torch.float16, 2.0**-12), (torch.bfloat16, 2.0**-9)])
def test_updates_too_small_for_16_bits_add_up(dtype, update):
    """A weight of 1, and updates of half of half a step: alone each is lost."""
    pure, mixed = (nn.Parameter(torch.ones(1, dtype=dtype)) for _ in range(2))
    optimizers = [torch.optim.SGD([pure], lr=update), MasterWeights([mixed], torch.optim.SGD, lr=update)]
    for _ in range(64):
        for p, optimizer in zip((pure, mixed), optimizers):
            p.grad = -torch.ones_like(p)
            optimizer.step()
    assert pure.item() == 1
    assert mixed.item() == 1 + 64 * update


def test_groups_and_schedules():
    first, second = (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    groups = [{"params": [first]}, {"params": [second], "lr": 0.5}]
    optimizer = MasterWeights(groups, torch.optim.SGD, lr=0.25)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for _ in range(2):
        first.grad, second.grad = torch.ones(2).bfloat16(), torch.ones(2).bfloat16()
        optimizer.step()
        schedule.step()
    assert first.tolist() == [1 - 0.25 - 0.125] * 2
    assert second.tolist() == [1 - 0.5 - 0.25] * 2
    assert [group["momentum"] for group in optimizer.param_groups] == [0, 0]


def test_a_group_that_comes_later():
    first, second = (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimizer = MasterWeights([first], torch.optim.SGD, lr=2.0**-10)
    optimizer.add_param_group({"params": [second], "lr": 2.0**-11})
    first.grad, second.grad = torch.ones(2).bfloat16(), torch.ones(2).bfloat16()
    optimizer.step()
    assert optimizer.masters[first].tolist() == [1 - 2.0**-10] * 2
    assert optimizer.masters[second].tolist() == [1 - 2.0**-11] * 2
    assert len(optimizer.state_dict()["masters"]) == 2


def test_parameters_that_are_fp32_have_no_copy():
    half, full = nn.Parameter(torch.ones(2, dtype=torch.float16)), nn.Parameter(torch.ones(2))
    unused = nn.Parameter(torch.ones(2))
    optimizer = MasterWeights([half, full, unused], torch.optim.SGD, lr=2.0**-13)
    half.grad, full.grad = torch.ones(2).half(), torch.ones(2)
    optimizer.step()
    assert half.tolist() == [1, 1] and full.tolist() == [1 - 2.0**-13] * 2 and unused.tolist() == [1, 1]
    assert optimizer.masters[full].data_ptr() == full.data_ptr()
    assert torch.equal(full.grad, torch.ones(2))


def test_a_closure():
    p = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = MasterWeights([p], torch.optim.SGD, lr=0.25)

    def closure():
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1 and p.item() == 0.5


# With the scaler.


def scaled_step(weight, gradient, scale, clip=None):
    """The gradient is that of the unscaled loss; returns the master weight after a step of SGD with lr 1."""
    p = nn.Parameter(torch.full((4,), weight, dtype=torch.float16))
    optimizer, scaler = MasterWeights([p], torch.optim.SGD, lr=1.0), LossScaler(StaticLossScale(scale))
    scaler.scale((p.float() * gradient).sum()).backward()
    if clip is not None:
        scaler.unscale_(optimizer)
        norm = optimizer.clip_grad_norm_(clip)
        assert norm.item() == pytest.approx(2 * gradient, rel=1e-3)
    scaler.step(optimizer)
    scaler.update()
    return optimizer, optimizer.masters[p][0].item()


def test_small_gradients_come_through_with_a_scale_and_are_unscaled_in_fp32():
    tiny = 2.0**-30
    assert scaled_step(0.0, tiny, 2.0**16)[1] == -tiny
    assert scaled_step(0.0, tiny, 1.0)[1] == 0


def test_an_overflow_in_fp16_skips_the_step_and_leaves_no_factor_behind():
    optimizer, master = scaled_step(1.0, 100.0, 2.0**16)
    assert master == 1
    (p,) = optimizer.masters
    p.grad = torch.full_like(p, 0.5)
    scaler = LossScaler(StaticLossScale(4.0))
    scaler.scale(torch.zeros(()))
    assert scaler.step(optimizer)
    assert optimizer.masters[p].tolist() == [1 - 0.125] * 4
    assert optimizer.gradient_factor == 1


@pytest.mark.parametrize("scale", [1.0, 2.0**10])
def test_clipping_by_the_norm_of_all_in_fp32(scale):
    gradient = 0.25  # four of them: a norm of 0.5
    assert scaled_step(0.0, gradient, scale, clip=0.1)[1] == pytest.approx(-0.25 * 0.2, rel=1e-4)
    assert scaled_step(0.0, gradient, scale, clip=1.0)[1] == -0.25


def test_clipping_is_torchs():
    weights = [nn.Parameter(torch.randn(7, 5).bfloat16()), nn.Parameter(torch.randn(3).bfloat16())]
    plain = [nn.Parameter(p.detach().float()) for p in weights]
    ours, theirs = MasterWeights(weights, torch.optim.SGD, lr=1.0), torch.optim.SGD(plain, lr=1.0)
    for p, q in zip(weights, plain):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.float()
    torch.testing.assert_close(ours.clip_grad_norm_(0.3), nn.utils.clip_grad_norm_(plain, 0.3))
    ours.step()
    theirs.step()
    torch.testing.assert_close([ours.masters[p] for p in weights], [q.detach() for q in plain])


# State.


def trained(steps, optimizer, weights, seed=0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in weights:
            p.grad = torch.randn(p.shape, generator=draw).to(p.dtype)
        optimizer.step()


def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been():
    weights = [nn.Parameter(torch.randn(5, 3).half()), nn.Parameter(torch.randn(3).half())]
    others = [nn.Parameter(torch.zeros_like(p)) for p in weights]
    ours = MasterWeights(weights, torch.optim.AdamW, lr=1e-4)
    theirs = MasterWeights(others, torch.optim.AdamW, lr=7.0)
    trained(3, ours, weights)
    ours.param_groups[0]["lr"] = 2e-4
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert theirs.param_groups[0]["lr"] == 2e-4
    assert all(torch.equal(p, q) for p, q in zip(weights, others))
    trained(3, ours, weights, seed=1)
    trained(3, theirs, others, seed=1)
    for p, q in zip(weights, others):
        assert torch.equal(ours.masters[p], theirs.masters[q])
        assert theirs.optimizer.state[theirs.masters[q]]["exp_avg"].dtype == torch.float32


def test_a_state_of_other_shapes():
    ours, theirs = (MasterWeights([nn.Parameter(torch.ones(k).half())]) for k in (2, 3))
    with pytest.raises(ValueError, match=r"the parameters have shapes \[\(3,\)\], but \[\(2,\)\] were saved"):
        theirs.load_state_dict(ours.state_dict())


def test_weights_that_are_loaded_afterwards_are_not_overwritten():
    layer = nn.Linear(3, 2, bias=False).bfloat16()
    optimizer = MasterWeights(layer.parameters(), torch.optim.SGD, lr=0.5)
    trained(2, optimizer, [layer.weight])
    loaded = torch.randn(2, 3).bfloat16()
    layer.load_state_dict({"weight": loaded})
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    assert torch.equal(optimizer.masters[layer.weight], loaded.float() - 0.5)
    optimizer.step()
    assert torch.equal(optimizer.masters[layer.weight], loaded.float() - 1)  # its own rounding is no writing


def test_the_copies_hold_what_16_bits_cannot():
    p = nn.Parameter(torch.tensor([math.pi]).half())
    assert MasterWeights([p]).masters[p].dtype == torch.float32
