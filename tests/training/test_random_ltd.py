"""Random-LTD: what a layer computes, its gradients, its schedule and its FLOPs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tinydist.model import GPT, GPTConfig
from tinydist.training.meters import flops_of_step, flops_per_token
from tinydist.training.random_ltd import RandomLTD, kept_places, kept_schedule, layer_tokens, random_ltd

CONFIG = GPTConfig(context=12, layers=4, dim=8, heads=2)


def made(kept):
    torch.manual_seed(0)
    model = GPT(CONFIG).double()
    random_ltd(model)(kept)
    return model


def row_by_row(block, x, places):
    """The slow obvious one."""
    found = x.clone()
    for row, kept in enumerate(places):
        found[row, kept] = block(x[row, kept].unsqueeze(0))[0]
    return found


def test_kept_tokens_are_computed_alone_and_the_others_go_round():
    layer = RandomLTD(made(None).blocks[0])
    layer.kept = 5
    x = torch.randn(3, 12, 8, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    found = layer(x)
    torch.manual_seed(1)
    right = row_by_row(layer.block, x, kept_places(3, 12, 5))
    torch.testing.assert_close(found, right, rtol=0, atol=1e-12)
    weights = torch.randn_like(found)
    parameters = [x, *layer.parameters()]
    ours, slow = (torch.autograd.grad((each * weights).sum(), parameters) for each in (found, right))
    torch.testing.assert_close(ours, slow, rtol=0, atol=1e-12)


@given(some.integers(1, 4), some.integers(1, 20), some.data())
def test_places_are_in_order_and_different(rows, length, data):
    kept = data.draw(some.integers(1, length))
    places = kept_places(rows, length, kept)
    assert places.shape == (rows, kept) and places.min() >= 0 and places.max() < length
    assert (places.diff(dim=1) > 0).all()


def test_each_place_is_kept_equally_often():
    torch.manual_seed(0)
    counts = kept_places(4000, 8, 2).flatten().bincount(minlength=8)
    assert (counts - 1000).abs().max() < 5 * (4000 * 2 / 8 * 6 / 8) ** 0.5


@pytest.mark.parametrize("kept", [None, 12, 99])
def test_with_all_tokens_it_is_the_plain_model(kept):
    torch.manual_seed(0)
    plain, tokens = GPT(CONFIG).double(), torch.arange(24).view(2, 12)
    assert torch.equal(made(kept)(tokens), plain(tokens))


def test_nothing_is_dropped_in_eval_mode():
    tokens = torch.arange(24).view(2, 12)
    assert torch.equal(made(5).eval()(tokens), made(None).eval()(tokens))


def test_the_first_and_the_last_layer_stay_as_they_are():
    assert [isinstance(block, RandomLTD) for block in made(5).blocks] == [False, True, True, False]


def test_the_schedule_is_the_one_that_deepspeed_0_19_8_gave():
    kept = kept_schedule(128, 2048, 100)
    assert [kept(step) for step in (0, 1, 2, 50, 99, 100)] == [128, 144, 160, 1088, 2016, 2048]
    assert sum(layer_tokens(2, kept(step), 2048, 22, 24) for step in range(201)) == 15_464_704


@pytest.mark.parametrize("kept", [5, 12])
@pytest.mark.parametrize("rows, length", [(2, 12), (3, 9)])
def test_flops_by_formula_are_those_that_torch_counts(rows, length, kept):
    """In its math backend: of fused attention on CPUs torch counts nothing."""
    model, tokens = made(kept), torch.zeros(rows, length, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    kept = min(kept, length)
    assert counter.get_total_flops() == flops_of_step(CONFIG, rows, length, [length, kept, kept, length])


def test_flops_of_a_whole_step_are_those_of_its_tokens():
    assert flops_of_step(CONFIG, 3, 12, [12] * 4) == 3 * 12 * flops_per_token(GPT(CONFIG))


def test_layer_tokens_are_those_that_layers_compute():
    assert layer_tokens(2, 10, 5, 3, 4) == layer_tokens(2, 5, 5, 3, 4) == 2 * 5 * 4


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda: layer_tokens(2, 3, 5, 7, 4), r"^layer_tokens: dropping \(7\) must be <= layers \(4\)$"),
        (lambda: kept_schedule(128, 16, 10), r"^kept_schedule: least \(128\) must be <= most \(16\)$"),
        (lambda: made(0), "^keep: tokens must be an integer >= 1, or None, got 0$"),
    ],
)
def test_numbers_that_no_run_has(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def test_more_tokens_than_there_are():
    with pytest.raises(ValueError, match=r"^kept_places: kept \(9\) must be <= length \(8\)$"):
        kept_places(1, 8, 9)
