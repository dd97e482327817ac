"""1-bit Adam, 0/1 Adam, LAMB, 1-bit LAMB: their schedules, what they send, what all ranks agree on."""

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist
from tiny_training import tiny_mlp, train
from unobserved import launch

import tinydist
from tinydist.compression import Lamb, OneBitAdam, OneBitLamb, ZeroOneAdam

SENDERS = {"OneBitAdam": OneBitAdam, "OneBitLamb": OneBitLamb, "ZeroOneAdam": ZeroOneAdam}
FREEZE = {"OneBitAdam": "freeze_step", "OneBitLamb": "freeze_step", "ZeroOneAdam": "var_freeze_step"}


def trained(name, steps, **options):
    model = tiny_mlp()
    optimizer = SENDERS[name](model.parameters(), lr=0.01, **options)
    return train(model, optimizer, steps=steps), optimizer


@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_ranks_agree(name, ranks):
    (first, _), *others = launch(partial(trained, **{FREEZE[name]: 3}), ranks, name, 6).results
    for weights, _ in others:
        torch.testing.assert_close(weights, first, rtol=0, atol=1e-6 if name == "ZeroOneAdam" else 0)


def adam(grads, lr, steps, b1=0.9, b2=0.999, eps=1e-8):
    """Without bias correction; in numbers."""
    m = v = w = 0.0
    for step in range(steps):
        m, v = b1 * m + (1 - b1) * grads[step], b2 * v + (1 - b2) * grads[step] ** 2
        w -= lr * m / (math.sqrt(v) + eps)
    return w


def numbers(make, steps, gradients):
    """One number; its gradient is the given one of the step, times 1, 3, ... by rank: the mean on two is double."""
    w = torch.zeros(1, requires_grad=True)
    optimizer = make([w])
    for step in range(steps):
        w.grad = torch.tensor([gradients[step] * (1.0 + 2 * dist.get_rank())])
        optimizer.step()
    return w.item(), optimizer.state[w]


@pytest.mark.parametrize("make", [OneBitAdam, ZeroOneAdam])
def test_in_the_warm_up_it_is_adam_without_bias_correction(make):
    gradients = [0.5, -1.0, 2.0]
    for found, _ in launch(numbers, 2, lambda w: make(w, lr=0.1), 3, gradients).results:
        assert found == pytest.approx(adam([2 * each for each in gradients], 0.1, 3), rel=1e-5)


def test_from_the_freeze_on_the_variance_stays():
    def variance(steps):
        make = lambda w: OneBitAdam(w, freeze_step=2)  # noqa: E731
        return launch(numbers, 2, make, steps, [1.0, 2.0, 30.0, 40.0]).results[0][1]["exp_avg_sq"].item()

    assert variance(1) < variance(2) == variance(3) == variance(4)


@pytest.mark.parametrize("name", SENDERS)
def test_without_a_variance_there_is_no_step(name):
    """It would be m / eps: 1e8 times too long, without an error."""

    def program():
        seen, late, empty = (torch.nn.Parameter(torch.ones(size)) for size in (8, 8, 0))
        optimizer = SENDERS[name]([seen, late, empty], **{FREEZE[name]: 1})
        seen.grad, empty.grad = torch.ones(8), torch.ones(0)
        optimizer.step()
        optimizer.step()
        late.grad = torch.ones(8)
        optimizer.step()

    with pytest.raises(ValueError, match=rf"{name}: a parameter of shape \[8\] had no gradient in the warm-up"):
        tinydist.launch(program, 2)


@pytest.mark.parametrize("name", [*SENDERS, "Lamb"])
@pytest.mark.parametrize("option, number", [("betas", (0.9, 1.0)), ("betas", 0.9), ("eps", -1.0)])
def test_options_that_would_divide_by_0(name, option, number):
    with pytest.raises(ValueError, match=f"^{name}: {option} must be"):
        (SENDERS | {"Lamb": Lamb})[name]([torch.ones(2)], **{option: number})


def test_zero_one_adam_sends_everything_then_bits_then_nothing():
    """The variance moves in steps 1 to 2, 4, 6 (interval 2); from step 7 on every second step sends."""

    def program():
        w = torch.zeros(64, requires_grad=True)
        optimizer = ZeroOneAdam([w], var_freeze_step=6, var_update_scaler=2, local_step_scaler=1, local_step_clipper=2)
        for step in range(10):
            tinydist.mark(f"step {step}")
            w.grad = torch.ones_like(w)
            optimizer.step()
        tinydist.mark("step 10")

    run = tinydist.launch(program, 2)
    sent = [sum(run.between(f"step {step}", f"step {step + 1}").traffic[0]) for step in range(10)]
    whole, bits = 4 * 64, 2 * (64 // 2 // 8 + 4)
    assert sent == [whole, whole, bits, whole, bits, whole, bits, bits, 0, bits]


def bytes_of(name, steps, **options):
    if not steps:
        return 0
    return sum(tinydist.launch(partial(trained, **options), 2, name, steps).traffic[0])


@pytest.mark.parametrize("name", ["OneBitAdam", "OneBitLamb"])
def test_after_the_warm_up_a_step_sends_bits(name):
    numel = [p.numel() for p in tiny_mlp().parameters()]
    one_more = bytes_of(name, 3, freeze_step=2) - bytes_of(name, 2, freeze_step=2)
    buffers = numel if name == "OneBitAdam" else [sum(numel)]
    assert one_more == sum(2 * (-(-each // 16) * 16 // 2 // 8 + 4) for each in buffers)
    assert bytes_of(name, 1, freeze_step=2) == 4 * sum(numel)


@pytest.mark.parametrize("decay, expected", [(0.0, (2.64645, 3.64645)), (0.01, (2.64816, 3.64474))])
def test_one_step_of_lamb_by_hand(decay, expected):
    """The direction of Adam is (1, 1), of norm sqrt(2), and the weights' norm 5."""
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    w.grad = torch.tensor([1.0, 2.0])
    Lamb([w], lr=0.1, weight_decay=decay).step()
    assert w.tolist() == pytest.approx(expected, abs=1e-4)


def test_lamb_leaves_weights_of_zero_their_adam_step():
    w = torch.zeros(2, requires_grad=True)
    w.grad = torch.tensor([1.0, 2.0])
    Lamb([w], lr=0.1).step()
    assert w.tolist() == pytest.approx([-0.1, -0.1], rel=1e-4)


@pytest.mark.parametrize("name", SENDERS)
def test_a_state_dict_goes_on_with_its_errors(name):
    def program(cut):
        model = tiny_mlp()
        optimizer = SENDERS[name](model.parameters(), lr=0.01, **{FREEZE[name]: 2})
        train(model, optimizer, steps=4)
        if cut:
            state = optimizer.state_dict()
            optimizer = SENDERS[name](model.parameters(), lr=0.01, **{FREEZE[name]: 2})
            optimizer.load_state_dict(state)
        return train(model, optimizer, steps=2)

    whole, cut = (launch(program, 2, each).results[0] for each in (False, True))
    assert all(torch.equal(whole[each], cut[each]) for each in whole)


def test_in_a_world_of_another_size_errors_begin_at_zero():
    def first():
        return trained("OneBitAdam", 4, freeze_step=1)[1].state_dict()

    def second(state):
        model = tiny_mlp()
        optimizer = OneBitAdam(model.parameters(), freeze_step=1)
        optimizer.load_state_dict(state)
        train(model, optimizer, steps=1)
        return [len(optimizer.state[p]["worker_error"]) for p in model.parameters()]

    state = launch(first, 2).results[0]
    numel = [p.numel() for p in tiny_mlp().parameters()]
    assert launch(second, 4, state).results[0] == [-(-each // 32) * 32 for each in numel]
