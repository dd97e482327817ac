"""The exercises on mixed precision: references are right, and what they are tried on is what it is said to be."""

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from lab import measured_recipes as recipes
from lab.registered import solved

import tinydist
from tinydist.lab import judge
from tinydist.lab.errors import Wrong
from tinydist.precision import FORMATS, encode_bits
from tinydist.syllabus.registry import find, load

# Rounding.


def test_the_reference_is_torchs_cast_for_each_upper_half_and_what_decides_below():
    reference = find("round_to_bfloat16")
    x = reference.module.of_bits(range(1 << 15), reference.module.AROUND)
    (mine, _), (right, _) = (reference.program(each, x) for each in (reference.reference, round_by_torch))
    assert torch.equal(mine, right)


def round_by_torch(x):
    return x.bfloat16().float()


def test_zeros_of_both_signs_and_all_sorts_of_nan_are_tried():
    x = torch.cat([case.arguments(0)[0].flatten() for case in find("round_to_bfloat16").cases])
    assert {x[x == 0].signbit().any().item(), x[x == 0].signbit().all().item()} == {True, False}
    upper = x[x.isnan()].view(torch.int32) & 0x7FFFFF
    assert (upper < 1 << 16).any() and (upper == 0x7FFFFF).any()


# Updates.

UPDATES = find("lost_updates").cases


@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_the_reference_predicts_what_rounding_does(case):
    """Some updates are lost and others not; after so many steps, and no fewer, the weight changes."""
    weights, updates, format = case.arguments(0)
    pairs = list(zip(weights.tolist(), updates.tolist()))
    assert [encode_bits(w, format).value for w, _ in pairs] == weights.tolist() and updates.all()
    lost, steps = find("lost_updates").reference(weights, updates, format)
    assert lost.tolist() == [stays(w, u, format) for w, u in pairs] and 5 <= lost.sum() <= len(pairs) - 5
    for (w, u), count in zip(pairs, steps.tolist()):
        assert not stays(w, count * u, format) and stays(w, (count - 1) * u, format)


def stays(w, u, format):
    return encode_bits(w + u, format).value == w


@pytest.mark.parametrize("weight, update, steps", [(1.0, 2.0**-11, 2), (1.0, 2.0**-13, 5), (2048.0, 1.0, 2)])
def test_steps_of_the_solution_in_fp16_by_hand(weight, update, steps):
    """The spacing is 2^-10 at 1, and 2 at 2048; half of it is a tie, and goes back to an even mantissa."""
    lost, found = find("lost_updates").reference(torch.tensor([weight]), torch.tensor([update]), FORMATS["fp16"])
    assert lost.tolist() == [True] and found.tolist() == [steps]


# Autocast and Kahan summation.

KAHAN = find("kahan_step")


@pytest.mark.parametrize("case", KAHAN.cases, ids=str)
def test_the_reference_casts_as_torch_does_and_moves_as_far_as_weights_in_fp32(case):
    """With autocast the first loss is the same bit for bit; a master weight goes where weight and rest go, in a third
    of the band."""
    moved, _, losses, *_ = KAHAN.right(case).returned[0]
    weights, x, targets, lr, steps = case.arguments(0)
    masters = [each.float() for each in weights]
    start = torch.cat([each.flatten() for each in masters])
    for step in range(steps):
        weights = [each.bfloat16().requires_grad_() for each in masters]
        with torch.autocast("cpu", torch.bfloat16):
            normal = F.layer_norm(F.linear(x, weights[0]).float(), (32,))
            loss = F.cross_entropy(F.linear(normal, weights[1]), targets)
        if step == 0:
            assert loss.item() == losses[0]
        for master, gradient in zip(masters, torch.autograd.grad(loss, weights)):
            master -= lr * gradient.float()
    right = torch.cat([each.flatten() for each in masters]) - start
    assert (moved - right).norm() <= KAHAN.module.BAND / 3 * right.norm()


# The scaler.

SCALER, PARTS = find("scaled_step"), load("04_mixed_precision", "parts")


@pytest.mark.parametrize("case", [case for case in SCALER.cases if not case.facts.again], ids=str)
def test_the_reference_does_what_torchs_scaler_does(case):
    """In one process that has the parts of all ranks."""
    plan, part = case.facts, PARTS
    parts = [part.parameters_of(rank) for rank in range(plan.ranks)]
    optimizer = torch.optim.SGD([p for mine in parts for p in mine], lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=plan.scale, growth_interval=plan.window)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": plan.good_steps})
    scales = [plan.scale]
    for step in range(plan.steps):
        scale = scaler.scale(torch.ones(())).item()
        for rank, mine in enumerate(parts):
            if rank != plan.idle:
                part.plant(mine, rank, step, scale, plan.planted.get(step, {}))
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([p for mine in parts for p in mine], plan.max_norm)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        for mine, history in zip(parts, SCALER.right(case).returned):
            weights, *numbers, _ = history[step + 1]
            assert numbers == [scales[-1], scaler.state_dict()["_growth_tracker"]]
            assert weights.allclose(part.flat(mine), 1e-5, 1e-6)  # torch adds 1e-6 to the norm
    assert {b / a for a, b in pairwise(scales)} >= ({0.5, 2} if plan.planted else {2})


def test_overflows_are_planted_on_each_rank_alone():
    """One that no other shares: only so is it seen whether the decision is shared."""
    for ranks in (2, 3, 4):
        alone = {next(iter(each)) for each in PARTS.by_turns(ranks).values() if len(each) == 1}
        assert {0, 1, ranks - 1} <= alone


def test_a_wrong_scale_is_drawn():
    def scaled_step(optimizer, scale, good_steps, window, max_norm):
        return SCALER.reference(optimizer, scale, good_steps, window + 100, max_norm)

    case, scale = SCALER.cases[0], next(each for each in SCALER.targets if each.name == "scale")
    with pytest.raises(Wrong) as wrong:
        scale.judge(SCALER, SCALER.trial(scaled_step, case), SCALER.right(case))
    figure = wrong.value.picture()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "step" and [each.get_text() for each in axes.get_legend().get_texts()][:2] == [
        "GradScaler",
        "yours",
    ]
    plt.close(figure)


@pytest.mark.parametrize(
    ("name", "call"), [("scaled_step", "all_reduce(squares)"), ("mended_fp16_step", "all_reduce(g)")]
)
def test_who_does_not_wait_is_told_so_and_not_what_follows(name, call):
    verdict = judge(solved(name, call, call.replace(")", ", async_op=True)")))
    assert verdict.state == "wrong" and "does not wait for" in str(verdict)


# The step in fp16.

STEP, fp16 = find("mended_fp16_step"), load("04_mixed_precision", "fp16_step")


def in_fp32(plan):
    """In one process that has all microbatches: weights before the first step and after each."""
    model = fp16.build()
    history = [fp16.flat(model.parameters())]
    for step in range(plan.steps):
        if not any(overflow[0] == step for overflow in plan.overflows):
            everything = [each for rank in range(plan.ranks) for each in fp16.data(plan, step, rank)]
            loss = sum(F.mse_loss(model(x.float()), y) for x, y in everything) / len(everything)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            factor = min(1.0, plan.max_norm / fp16.flat(gradients).norm().item())
            with torch.no_grad():
                for p, gradient in zip(model.parameters(), gradients):
                    p -= plan.lr * factor * gradient
        history.append(fp16.flat(model.parameters()))
    return history


@pytest.mark.parametrize("case", STEP.cases, ids=str)
def test_the_reference_follows_one_process_in_fp32_in_half_of_the_band(case):
    start, *right = in_fp32(case.facts)
    for _, *history in STEP.right(case).returned:
        for (_, model, masters), weights in zip(history, right):
            way = weights - start
            for rounding, mine in ((STEP.module.ROUNDING, model), (0, masters)):
                assert (mine - weights).norm() <= (STEP.module.BAND * way.norm() + rounding * start.norm()) / 2


def test_gradients_are_as_small_as_it_is_said():
    (plan,) = [plan for about, plan in STEP.module.PLANS.items() if "2^-26" in about]
    start, end = in_fp32(plan)
    assert 2.0**-28 < ((end - start) / plan.lr).abs().median() < 2.0**-25


def test_the_bugs_of_the_given_step_do_not_keep_the_loss_from_falling():
    torch.manual_seed(0)
    model, x = fp16.build(torch.float16), torch.randn(16, fp16.WIDTH).half()
    y = torch.randn(16, 2)
    masters = [p.detach().float() for p in model.parameters()]
    given = STEP.variant(*[each for each in STEP.mistakes if each.given])
    losses = []

    def program():
        for _ in range(30):
            losses.append(F.mse_loss(model(x).float(), y).item())
            given(model, masters, [(x, y)], 4.0, 0.5, 2.0)

    tinydist.launch(program, 1, backend="simulated")
    assert losses[-1] < losses[0] / 5 and losses[:5] == sorted(losses[:5], reverse=True)


# The budget.

# name -> bytes per parameter, by the papers (ZeRO, section 3.1) and by Megatron-LM; 8 bits with a scale for each 256
KNOWN = {
    "fp32, SGD": 8,
    "fp32, SGD with momentum": 12,
    "fp32, Adam": 16,
    "pure bf16, Adam": 8,
    "mixed precision, SGD with momentum": 12,
    "mixed precision, Adam": 16,
    "bf16 with gradients added up in fp32, Adam": 18,
    "fp16 with gradients in both, Adam": 20,
    "fp32, 8-bit Adam": 10 + 8 / 256,
    "mixed precision, 8-bit Adam": 10 + 8 / 256,
    "mixed precision, 8-bit momentum": 13 + 4 / 256,
    "mixed precision, SGD": 12,
}


@pytest.mark.parametrize("recipe", recipes.RECIPES, ids=lambda recipe: recipe.name)
def test_what_is_predicted_is_what_is_measured_and_known(recipe):
    sizes = [(recipes.BLOCK * 4, recipes.BLOCK * 12), (recipes.BLOCK * 30,)]
    n = sum(map(math.prod, sizes))
    held = find("training_bytes").reference(recipe, n)
    assert held == recipes.measured(recipe, sizes)
    assert sum(held.values()) == KNOWN[recipe.name] * n


def test_15_gigabytes_of_weights_need_120_to_train():
    """As the ledger has it, on fake tensors."""
    (recipe,) = [each for each in recipes.RECIPES if each.name == "mixed precision, Adam"]
    n = 7_500_000_000 // recipes.BLOCK * recipes.BLOCK
    held = recipes.measured(recipe, (n,))
    assert held == find("training_bytes").reference(recipe, n)
    assert held["parameters"] == pytest.approx(15e9, rel=1e-6) and sum(held.values()) == pytest.approx(120e9, rel=1e-6)


def test_the_measured_training_trains():
    """Not only held: its moments are read, its weights move."""
    for recipe in recipes.RECIPES:
        *_, masters, optimizer = recipes.train(recipe, (recipes.BLOCK * 2,))
        moments = [recipes.read(moment) for moment in optimizer.moments[0]]
        assert len(moments) == recipes.MOMENTS[recipe.optimizer] and all((m > 0.1).all() for m in moments)
        assert (masters[0] < 1).all() or recipe.name == "pure bf16, Adam"  # where the update is swallowed
