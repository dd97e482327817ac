"""What keeps weights of 16 bits: what is lost of small updates, what is held, and that replicas stay alike."""

import copy
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist
from tinydist.data_parallel import DDP
from tinydist.precision import FP32Optimizer, Kahan, MasterWeights, StochasticRounding, round_to
from tinydist.precision.master_weights import CUT, cut

BF16 = torch.bfloat16
ALL = pytest.mark.parametrize("kind", [FP32Optimizer, MasterWeights, Kahan, StochasticRounding])


def descend(kind, weight, update, steps, dtype=BF16, **options):
    """A weight after as many steps of SGD that each add ``update``."""
    p = nn.Parameter(weight.to(dtype))
    optimizer = kind([p], torch.optim.SGD, lr=1.0, **options)
    for _ in range(steps):
        p.grad = torch.full_like(p, -update)
        optimizer.step()
    return p.detach().float()


# Small updates.


@pytest.mark.parametrize("kind", [MasterWeights, Kahan])
@pytest.mark.parametrize("dtype, update", [(BF16, 2.0**-14), (torch.float16, 2.0**-17)], ids=str)
def test_small_updates_add_up_where_the_rest_is_kept(kind, dtype, update):
    assert descend(kind, torch.ones(3), update, 2**10, dtype).tolist() == [1 + 2**10 * update] * 3


def test_they_are_lost_where_it_is_not():
    assert descend(FP32Optimizer, torch.ones(3), 2.0**-9, 2**10).tolist() == [1.0] * 3


def test_they_add_up_on_average_where_chance_decides():
    """400 weights, 256 steps: the mean has a standard deviation of about spacing * sqrt(256 / 4 / 400) at most."""
    found = descend(StochasticRounding, torch.ones(400), 2.0**-12, 256)
    spacing = 2.0**-7
    assert abs(found.mean().item() - (1 + 2.0**-4)) < 4 * spacing * math.sqrt(256 / 4 / 400)
    assert found.std() > spacing, "the price"


def test_kahan_keeps_16_bits_and_no_more():
    """Below 2^-17 of a weight, the rest loses what comes while it is large."""
    p = nn.Parameter(torch.ones(1, dtype=BF16))
    optimizer = Kahan([p], torch.optim.SGD, lr=1.0)
    for update in (3 * 2.0**-10, 2.0**-19):  # the rest is 3 * 2^-10; its last bit is 2^-16
        p.grad = torch.full_like(p, -update)
        optimizer.step()
    assert optimizer.state_dict()["masters"][0].item() == 1 + 3 * 2.0**-10


def test_weight_and_rest_are_the_master_weight_in_two_halves():
    """By AdamW on random gradients: as near to fp32 weights as 16 bits are."""
    torch.manual_seed(0)
    weights = torch.randn(500)
    kept, alone = nn.Parameter(weights.to(BF16)), nn.Parameter(weights.to(BF16).float())
    ours, theirs = Kahan([kept], torch.optim.AdamW, lr=1e-3), torch.optim.AdamW([alone], lr=1e-3)
    for _ in range(50):
        kept.grad = torch.randn(500).to(BF16)
        alone.grad = kept.grad.float()
        ours.step()
        theirs.step()
    (found,) = ours.state_dict()["masters"]
    torch.testing.assert_close(found, alone.detach(), rtol=50 * 2.0**-17, atol=1e-6)
    assert (kept.float() - alone).abs().max() > 10 * (found - alone).abs().max()


# The bits of chance.


@pytest.mark.parametrize("number", [1 + 0.3 * 2**-7, -3.001, 1e-3, 2.0**-135 + 2.0**-140, 300.123, 0.0, -0.0])
def test_of_all_noises_as_many_round_up_as_the_number_is_nearer_to_it(number):
    x = torch.tensor([number])
    rounded = cut(x.expand(CUT).contiguous(), torch.arange(CUT, dtype=torch.int32))
    down, up = rounded.abs().min(), rounded.abs().max()
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert rounded.double().mean() == x.double(), "exactly"
    assert up == down or {down.item(), up.item()} == set(
        round_to(x.expand(256).contiguous(), "bf16", "stochastic").abs().tolist()
    )


def test_what_is_a_number_of_bf16_stays_and_so_do_infinities_and_nan():
    numbers = torch.arange(2**16).to(torch.int16).view(BF16).float()
    rounded = cut(numbers, torch.randint(CUT, numbers.shape, dtype=torch.int32))
    assert torch.equal(rounded[~numbers.isnan()], numbers[~numbers.isnan()])
    assert rounded[numbers.isnan()].isnan().all()
    worst = torch.tensor([0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)  # NaN, whose bits would carry over
    assert cut(worst, torch.full((2,), CUT - 1, dtype=torch.int32)).isnan().all()


@pytest.mark.parametrize("kind", [MasterWeights, Kahan, StochasticRounding])
def test_replicas_stay_alike_whatever_else_ranks_draw(kind):
    def program():
        torch.manual_seed(0)
        model = DDP(nn.Linear(8, 8, dtype=BF16))
        optimizer = kind(model.parameters(), torch.optim.AdamW, lr=1e-3)
        torch.manual_seed(dist.get_rank())  # for dropout, say
        for _ in range(5):
            torch.rand(dist.get_rank() + 1)
            optimizer.zero_grad()
            model(torch.randn(4, 8, dtype=BF16)).sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    first, *others = tinydist.launch(program, 3).results
    assert all(torch.equal(mine, its) for other in others for mine, its in zip(other, first))


def test_seeds_are_noises():
    draws = [descend(StochasticRounding, torch.ones(100), 2.0**-9, 1, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


# Bytes.


@pytest.mark.parametrize(
    "kind, beside",
    [(FP32Optimizer, 8), (MasterWeights, 12), (Kahan, 10), (StochasticRounding, 8)],
    ids=lambda it: str(it),
)
def test_bytes_a_parameter_beside_weight_and_gradient(kind, beside):
    def program():
        weights = [nn.Parameter(torch.ones(1000, dtype=BF16)) for _ in range(4)]
        optimizer = kind(weights, torch.optim.AdamW, lr=0.1)
        for p in weights:
            p.grad = torch.ones_like(p)
        optimizer.step()
        return weights, optimizer

    memory = tinydist.launch(program, 1, backend="simulated").memory[0]
    held = sum(list(memory.over_time())[-1][1].values())
    assert held == (2 + 2 + beside) * 4000 + 4 * 4  # and Adam's counts
    assert memory.peak <= held + 8 * 4 * 1000 * 2, "what a step makes is of one tensor"


# Use.


@ALL
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been(kind):
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(5, 3, dtype=BF16)), nn.Parameter(torch.randn(3))]  # and one in fp32
    others = [nn.Parameter(torch.zeros_like(p)) for p in weights]
    ours, theirs = (kind(each, torch.optim.AdamW, lr=1e-3) for each in (weights, others))

    def go_on(optimizer, parameters, seed):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(3):
            for p in parameters:
                p.grad = torch.randn(p.shape, generator=draw).to(p.dtype)
            optimizer.step()

    go_on(ours, weights, 0)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    for seed in (1, 2):
        assert all(torch.equal(p, q) for p, q in zip(weights, others))
        go_on(ours, weights, seed)
        go_on(theirs, others, seed)


@ALL
def test_parameters_of_fp32_are_stepped_on_as_they_are(kind):
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.linspace(0, 1, 9)) for _ in range(2))
    optimizers = kind([ours], torch.optim.AdamW, lr=0.01), torch.optim.AdamW([theirs], lr=0.01)
    for _ in range(3):
        ours.grad = torch.randn(9)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_chance_is_for_bf16():
    rule = r"StochasticRounding: parameters must be bfloat16 or float32, got torch\.float16"
    with pytest.raises(ValueError, match=rule):
        StochasticRounding([nn.Parameter(torch.ones(2, dtype=torch.float16))])
