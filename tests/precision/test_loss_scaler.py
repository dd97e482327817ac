"""Loss scaling: the scale and the steps of torch's GradScaler; one rank's overflow skips the step on all."""

import copy
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist
from tinydist.precision import (
    DynamicLossScale,
    HysteresisLossScale,
    LossScaler,
    MasterWeights,
    StaticLossScale,
    autocast,
)


def model_and_optimizer(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Linear(4, 2).to(dtype)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def one_step(scaler, model, optimizer, bad=None):
    """One gradient number becomes ``bad``. The weights after it."""
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(3, 4)).square().mean()).backward()
    if bad is not None:
        model.weight.grad[1, 2] = bad
    scaler.step(optimizer)
    scaler.update()
    return copy.deepcopy(model.state_dict())


# Like torch's.


@pytest.mark.parametrize(
    "options",
    [
        {"growth_interval": 7},
        {"growth_interval": 5, "growth_factor": 3.7, "backoff_factor": 0.3, "init_scale": 1000.1},
        {"growth_interval": 1, "init_scale": 2.0**100},  # up to where fp32 ends
    ],
    ids=["usual", "odd factors", "to the end of fp32"],
)
def test_the_scale_and_the_steps_are_torchs_for_200_steps(options):
    draw = torch.Generator().manual_seed(1)
    bad = [None, math.inf, -math.inf, math.nan]
    planted = [bad[i] if i and torch.rand((), generator=draw) < 0.25 else None for i in
               torch.randint(len(bad), (200,), generator=draw)]  # fmt: skip
    if options["growth_interval"] == 1:
        planted[:40] = [None] * 40
    ours, theirs = model_and_optimizer(), model_and_optimizer()
    rule = {name.replace("init_scale", "scale"): value for name, value in options.items()}
    scaler, torchs = LossScaler(DynamicLossScale(**rule)), torch.amp.GradScaler("cpu", **options)
    skipped = 0
    for each in planted:
        before = copy.deepcopy(ours[0].state_dict())
        mine, other = one_step(scaler, *ours, each), one_step(torchs, *theirs, each)
        assert scaler.rule.scale == torchs.get_scale()
        assert all(torch.equal(mine[name], other[name]) for name in mine)
        skipped += all(torch.equal(mine[name], before[name]) for name in mine)
    assert skipped >= sum(each is not None for each in planted) >= 20


def test_a_loss_that_is_never_finite_is_an_error_before_the_scale_is_zero():
    model, optimizer = model_and_optimizer()
    scaler, before = LossScaler(), model.weight.detach().clone()
    with pytest.raises(OverflowError, match=r"overflow even at a scale of 1\.17.*e-38: the loss is inf or NaN"):
        for _ in range(200):
            one_step(scaler, model, optimizer, math.nan)
    assert torch.equal(model.weight, before)


def test_a_static_scale_skips_but_stays():
    model, optimizer = model_and_optimizer()
    scaler, before = LossScaler(StaticLossScale(8.0)), copy.deepcopy(model.state_dict())
    assert torch.equal(one_step(scaler, model, optimizer, math.nan)["weight"], before["weight"])
    assert not torch.equal(one_step(scaler, model, optimizer)["weight"], before["weight"])
    assert scaler.rule.scale == 8


def test_scaling_by_a_power_of_two_changes_nothing_but_the_range():
    plain, scaled = model_and_optimizer(), model_and_optimizer()
    with_scale, without = one_step(LossScaler(), *scaled), one_step(LossScaler(StaticLossScale(1.0)), *plain)
    assert torch.equal(with_scale["weight"], without["weight"])


def test_a_gradient_that_vanishes_in_fp16_does_not_with_a_scale():
    x, w = torch.tensor([2.0**-20]), torch.ones(1, requires_grad=True)
    gradients = []
    for scale in (1.0, 2.0**16):
        w.grad, scaler, optimizer = None, LossScaler(StaticLossScale(scale)), torch.optim.SGD([w], lr=0.0)
        with autocast(dtype=torch.float16):
            loss = (x.half() * w.half()).float() * 2.0**-10
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        gradients.append(w.grad.item())
    assert gradients == [0.0, 2.0**-30]


def test_a_loss_in_fp16_is_scaled_in_fp32():
    scaled = LossScaler(StaticLossScale(2.0**16)).scale(torch.tensor(3.0, dtype=torch.float16))
    assert scaled.dtype == torch.float32 and scaled.item() == 3 * 2.0**16


# DeepSpeed's rule. What is expected is worked out by hand from its documented behavior.


def scales(rule, overflows):
    """After each step; x is an overflow."""
    found = []
    for each in overflows:
        rule.update(each == "x")
        found.append(rule.scale)
    return found


def test_hysteresis_waits_for_the_second_overflow_and_then_halves_at_each():
    assert scales(HysteresisLossScale(1024, window=100, hysteresis=2), "x.x.x") == [1024, 1024, 512, 512, 256]
    assert scales(HysteresisLossScale(1024, window=100, hysteresis=3), "xxxx") == [1024, 1024, 512, 256]
    assert scales(HysteresisLossScale(1024, window=100, hysteresis=1), "x.x") == [512, 512, 256]


def test_a_window_without_overflow_doubles_and_gives_the_patience_back():
    # after the overflow of step 0, three more steps pass before the one that doubles; then one at every third
    rule = HysteresisLossScale(1024, window=3, hysteresis=2)
    assert scales(rule, "x" + "." * 7) == [1024, 1024, 1024, 1024, 2048, 2048, 2048, 4096]
    assert scales(rule, "xx") == [4096, 2048]
    assert scales(HysteresisLossScale(8, window=3), "....") == [8, 8, 8, 16]  # from the start, likewise


def test_consecutive_gives_the_patience_back_at_each_good_step():
    assert scales(HysteresisLossScale(64, window=100, consecutive=True), "x.x.xx") == [64, 64, 64, 64, 64, 32]
    assert scales(HysteresisLossScale(64, window=100, consecutive=False), "x.x.xx") == [64, 64, 32, 32, 16, 8]


def test_the_least_scale():
    rule = HysteresisLossScale(4, hysteresis=1, min_scale=3)
    assert scales(rule, "x") == [3]
    with pytest.raises(OverflowError, match="overflow at the smallest scale, 3, in step 1: the loss itself"):
        rule.update(True)


def test_the_scaler_with_deepspeeds_rule():
    model, optimizer = model_and_optimizer()
    scaler = LossScaler(HysteresisLossScale(16, hysteresis=2))
    for bad, expected in [(math.inf, 16), (None, 16), (math.nan, 8)]:
        one_step(scaler, model, optimizer, bad)
        assert scaler.rule.scale == expected


# Accumulation and clipping.


@pytest.mark.parametrize("wrapped", [False, True], ids=["fp32 weights", "master weights"])
def test_microbatches_of_unequal_size_under_one_scale_are_the_whole_batch(wrapped):
    """Each microbatch's loss has the weight of its rows; unscale, clip, step and update once, after the last."""
    x, results = torch.randn(7, 4), []
    for sizes in ([7], [4, 2, 1]):
        model, optimizer = model_and_optimizer(torch.bfloat16 if wrapped else torch.float32)
        if wrapped:
            optimizer = MasterWeights(model.parameters(), torch.optim.SGD, lr=0.1)
        scaler = LossScaler()
        for rows in x.to(model.weight.dtype).split(sizes):
            scaler.scale(model(rows).float().square().mean() * len(rows) / 7).backward()
        scaler.unscale_(optimizer)
        clip = optimizer.clip_grad_norm_ if wrapped else lambda norm: nn.utils.clip_grad_norm_(model.parameters(), norm)
        results.append(clip(0.01))
        assert scaler.step(optimizer)
        scaler.update()
        weight = optimizer.masters[model.weight] if wrapped else model.weight.detach()
        results.append(weight.clone())
    tolerance = {"rtol": 2e-2, "atol": 1e-4} if wrapped else {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(results[:2], results[2:], **tolerance)


def test_clipping_comes_after_unscaling():
    model, optimizer = model_and_optimizer()
    plain, _ = model_and_optimizer()
    plain(torch.ones(3, 4)).sum().backward()
    expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    scaler = LossScaler()
    scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.5) == expected
    assert torch.equal(model.weight.grad, plain.weight.grad)


# Ranks.


def overflow_on(bad_rank, group_size=None):
    """Which ranks stepped, and the scale after it."""
    rank, world = dist.get_rank(), dist.get_world_size()
    group = None
    if group_size:
        groups = [dist.new_group(range(k, k + group_size)) for k in range(0, world, group_size)]
        group = groups[rank // group_size]
    model, optimizer = model_and_optimizer()
    scaler, before = LossScaler(DynamicLossScale(16.0), group), model.weight.detach().clone()
    weight = one_step(scaler, model, optimizer, math.inf if rank == bad_rank else None)["weight"]
    return not torch.equal(weight, before), scaler.rule.scale


@pytest.mark.parametrize("backend", ["simulated", "gloo"])
def test_one_ranks_overflow_skips_the_step_on_all(backend):
    assert tinydist.launch(overflow_on, 3, 1, backend=backend, timeout=120).results == [(False, 8.0)] * 3
    assert tinydist.launch(overflow_on, 3, None, backend=backend, timeout=120).results == [(True, 16.0)] * 3


def test_only_the_ranks_of_the_group_share_it():
    run = tinydist.launch(overflow_on, 4, 2, 2, backend="simulated")
    assert run.results == [(True, 16.0)] * 2 + [(False, 8.0)] * 2


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_decision_costs_an_all_reduce_of_one_number(ranks):
    sent = sum(map(sum, tinydist.launch(overflow_on, ranks, None, backend="simulated").traffic))
    assert sent == pytest.approx(2 * (ranks - 1) * 4)


def test_two_optimizers_share_the_scale():
    first, second = model_and_optimizer(), model_and_optimizer()
    scaler = LossScaler(DynamicLossScale(16.0))
    for model, _ in (first, second):
        scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    first[0].weight.grad[0, 0] = math.nan
    assert [scaler.step(optimizer) for _, optimizer in (first, second)] == [False, True]
    scaler.update()
    assert scaler.rule.scale == 8


# State, order, errors.


@pytest.mark.parametrize(
    "rule", [StaticLossScale(4.0), DynamicLossScale(4.0, growth_interval=3), HysteresisLossScale(4.0, window=3)]
)
def test_a_saved_scaler_goes_on_as_if_nothing_had_been(rule):
    model, optimizer = model_and_optimizer()
    scaler = LossScaler(rule)
    for bad in (None, math.inf, None, None):
        one_step(scaler, model, optimizer, bad)
    other = LossScaler(type(rule)())
    other.load_state_dict(scaler.state_dict())
    for bad in (None, None, math.nan, math.nan, None):
        one_step(scaler, model, optimizer, bad)
        one_step(other, model, optimizer, bad)
        assert other.state_dict() == scaler.state_dict()


def test_parameters_without_a_gradient_and_empty_groups():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([{"params": []}, {"params": [first, second]}], lr=1.0)
    scaler = LossScaler()
    scaler.scale(second.sum()).backward()
    assert scaler.step(optimizer)
    assert first.tolist() == [1, 1] and second.tolist() == [0, 0]


def test_the_state_of_another_rule():
    with pytest.raises(ValueError, match="this scaler's rule is DynamicLossScale, but StaticLossScale was saved"):
        LossScaler().load_state_dict(LossScaler(StaticLossScale()).state_dict())


def test_the_order_of_calls():
    model, optimizer = model_and_optimizer()
    scaler = LossScaler(DynamicLossScale(16.0))
    model(torch.ones(3, 4)).sum().backward()
    with pytest.raises(RuntimeError, match=r"step: no loss was scaled .* call scaler\.scale\(loss\)\.backward"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"update\(\) called without a preceding step\(optimizer\)"):
        scaler.update()
    scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"called again, gradients would be 16\.0 times too small"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for call in (scaler.unscale_, scaler.step):
        with pytest.raises(RuntimeError, match=r"has stepped already; call update\(\) first"):
            call(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="unscale_: no loss was scaled since the last update"):
        scaler.unscale_(optimizer)


def test_gradients_in_fp16_are_not_divided():
    model, optimizer = model_and_optimizer(torch.float16)
    scaler = LossScaler(StaticLossScale(16.0))
    scaler.scale(model(torch.ones(3, 4).half()).float().sum()).backward()
    before = model.weight.grad.clone()
    rule = r"the gradients are float16 \(2 of 2, the first of shape \(2, 4\)\), because .* model\.half\(\)\?"
    with pytest.raises(ValueError, match=rule):
        scaler.step(optimizer)
    assert torch.equal(model.weight.grad, before)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):  # torch's own, for comparison
        torchs = torch.amp.GradScaler("cpu")
        torchs.scale(torch.ones(()))
        torchs.step(optimizer)


def test_factors_that_go_the_wrong_way():
    with pytest.raises(ValueError, match=r"backoff_factor between 0 and 1, got 2\.0 and 1\.5"):
        DynamicLossScale(backoff_factor=1.5)
