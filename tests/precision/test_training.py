"""A small GPT on real text: what pure fp16 does to it, and that scaling and master weights put it right."""

import copy
import math
from contextlib import nullcontext
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tinydist.model import GPT, GPTConfig, batch
from tinydist.precision import (
    DynamicLossScale,
    FP32Optimizer,
    Kahan,
    LossScaler,
    MasterWeights,
    StochasticRounding,
    autocast,
    in_fp8,
    mxfp8,
)

SMALL = GPTConfig(context=32, layers=1, heads=2, dim=32)


def loss_of(model, tokens, targets):
    """In fp32, whatever the logits are."""
    return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())


def train(
    dtype=torch.float32,
    context=nullcontext,
    scaler=None,
    masters=None,  # what keeps weights of 16 bits
    kind=torch.optim.AdamW,
    lr=1e-3,
    steps=80,
    parts=1,  # the loss is one of as many microbatches' share; a learning rate as many times higher makes up for it
    data=lambda step: batch(step, 4, 32),
    start=None,
):
    """Losses by step; the fp32 weights after it; the fraction of the gradients that were zero."""
    model = model_of(start).to(dtype)
    weights = list(model.parameters())
    optimizer = masters(weights, kind, lr=lr * parts) if masters else kind(weights, lr=lr * parts)
    losses, zeros = [], 0
    for step in range(steps):
        with context():
            loss = loss_of(model, *data(step))
        optimizer.zero_grad()
        (scaler.scale(loss / parts) if scaler else loss / parts).backward()
        zeros += (torch.cat([p.grad.flatten() for p in weights]) == 0).float().mean().item() / steps
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        losses.append(loss.item())
    return losses, [optimizer.upcast(p) if masters else p.detach().float() for p in weights], zeros


def model_of(weights=None):
    """In fp32; without ``weights`` a new one."""
    torch.manual_seed(0)
    model = GPT(SMALL)
    if weights:
        vector_to_parameters(parameters_to_vector(weights), model.parameters())
    return model


def late(losses):
    return sum(losses[-10:]) / 10


@pytest.fixture(scope="module")
def in_fp32():
    """The curve to follow, by AdamW."""
    return train()[0]


# Adam at ordinary settings.


def test_fp32_converges(in_fp32):
    assert abs(in_fp32[0] - math.log(256)) < 0.1
    assert late(in_fp32) < 3.7


def test_adam_in_pure_fp16_is_nan_after_one_step():
    """Its epsilon, 1e-8, is 0 in fp16, and so is the square of a gradient below 2^-12: 0 / 0, or more than 65504."""
    assert torch.tensor(1e-8).half() == 0
    losses, _, _ = train(torch.float16, steps=3)
    assert math.isfinite(losses[0]) and math.isnan(losses[1])


BAND = 0.05  # nats, of the mean of the last 10 losses: 1.5 %

MIXED = {
    "fp16, master weights, scaler": {"dtype": torch.float16, "masters": MasterWeights, "scaler": True},
    "fp16 by autocast, scaler": {"context": lambda: autocast(dtype=torch.float16), "scaler": True},
    "bf16, master weights": {"dtype": torch.bfloat16, "masters": MasterWeights},
    "bf16, Kahan summation": {"dtype": torch.bfloat16, "masters": Kahan},
    "bf16, stochastic rounding": {"dtype": torch.bfloat16, "masters": StochasticRounding},
    "bf16 by autocast": {"context": autocast},
    "fp8, a scale for each tensor": {"context": in_fp8},
    "fp8, a scale for each block": {"context": lambda: in_fp8(mxfp8.quantize, "fp8 e4m3")},
}


@pytest.mark.parametrize("how", MIXED)
def test_mixed_precision_follows_fp32(how, in_fp32):
    options = dict(MIXED[how])
    if options.pop("scaler", False):
        options["scaler"] = LossScaler(DynamicLossScale(growth_interval=50))
    losses, weights, _ = train(**options)
    assert abs(late(losses) - late(in_fp32)) < BAND
    assert all(each.dtype == torch.float32 and each.isfinite().all() for each in weights)


# Updates that vanish: late in training, when weights are large and learning rates small. SGD goes on from trained
# weights, on one batch, so that each step should be progress.


@pytest.fixture(scope="module")
def trained():
    return train(steps=200, lr=3e-3)[1]


def progress(start, lr, **options):
    """How much the loss on the batch falls in 60 steps, by the fp32 weights, in fp32."""
    one_batch = batch(0, 4, 32)
    _, weights, _ = train(kind=torch.optim.SGD, lr=lr, steps=60, data=lambda step: one_batch, start=start, **options)
    before, after = (loss_of(model_of(each), *one_batch).item() for each in (start, weights))
    return before - after


@pytest.fixture(scope="module")
def in_full(trained):
    """By learning rate, in fp32."""
    return cache(lambda lr: progress(trained, lr))


@pytest.mark.parametrize(
    "dtype, lr, at_most",
    [(torch.float16, 1e-4, 0.4), (torch.float16, 1e-5, 0.05), (torch.bfloat16, 1e-3, 0.5), (torch.bfloat16, 1e-4, 0.1)],
)
def test_without_master_weights_small_updates_vanish(trained, in_full, dtype, lr, at_most):
    full = in_full(lr)
    pure, mixed = progress(trained, lr, dtype=dtype), progress(trained, lr, dtype=dtype, masters=MasterWeights)
    assert full > 0.0005
    assert pure < at_most * full
    assert 0.95 * full < mixed < 1.05 * full


def test_kahan_summation_and_chance_keep_them_too(trained, in_full):
    full = in_full(1e-4)
    nearest, kahan, chance = (
        progress(trained, 1e-4, dtype=torch.bfloat16, masters=kind)
        for kind in (FP32Optimizer, Kahan, StochasticRounding)
    )
    assert nearest < 0.1 * full
    assert 0.95 * full < kahan < 1.05 * full
    assert 0.5 * full < chance < 1.5 * full, "on average"


# Gradients that vanish: the loss is the mean of so many microbatches that each one's share is small.

PARTS = 2**15  # of 4 x 32 tokens each: a batch of 4 million tokens, as large models have


SGD = {"kind": torch.optim.SGD, "lr": 0.03, "steps": 120, "parts": PARTS}


@pytest.fixture(scope="module")
def by_sgd():
    """Losses and zeros in fp32."""
    losses, _, zeros = train(**SGD)
    return losses, zeros


def test_the_share_of_a_microbatch_makes_no_difference_in_fp32(by_sgd):
    whole = train(**{**SGD, "parts": 1})[0]
    torch.testing.assert_close(by_sgd[0], whole, rtol=1e-4, atol=1e-4)
    assert by_sgd[1] < 0.02


def test_without_a_scale_most_gradients_vanish_in_fp16_and_the_model_does_not_follow(by_sgd):
    losses, _, zeros = train(torch.float16, masters=MasterWeights, **SGD)
    assert zeros > 0.5
    assert late(losses) > late(by_sgd[0]) + 5 * BAND


def test_with_a_scale_they_do_not_and_it_does(by_sgd):
    losses, _, zeros = train(
        torch.float16, masters=MasterWeights, scaler=LossScaler(DynamicLossScale(growth_interval=50)), **SGD
    )
    assert zeros < 0.05
    assert abs(late(losses) - late(by_sgd[0])) < BAND / 5


def gradients_of(model, scale, parts):
    model = copy.deepcopy(model).half()
    (loss_of(model, *batch(0, 4, 32)) / parts * scale).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_the_fraction_that_vanishes_grows_with_the_microbatches_and_goes_with_the_scale():
    model = model_of()
    vanished = {parts: (gradients_of(model, 1.0, parts) == 0).float().mean().item() for parts in (1, 64, 1024, 16384)}
    assert vanished[1] < 0.002 < vanished[64] < 0.05 < vanished[1024] < 0.5 < vanished[16384]
    assert (gradients_of(model, 2.0**16, 1024) == 0).float().mean() < 0.01
    assert not gradients_of(model, 2.0**20, 1).isfinite().all()  # too large a scale: the scaler would halve it
