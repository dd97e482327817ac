"""Losses and a bias that balance: what they are where the load is even and where it is not, and what they do."""

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist
from experts.moe import drawn, layer, own, tokens
from torch import nn

import tinydist
from tinydist.experts import (
    Router,
    Routing,
    auxiliary_loss,
    balance_loss,
    max_violation,
    update_biases,
    with_experts,
    z_loss,
)  # fmt: skip
from tinydist.model import GPT, GPTConfig


def even(k, E=8, N=16):
    chosen = torch.arange(N * k).view(N, k) % E
    scores = torch.full((N, E), 1 / E)
    return Routing.of_choices(chosen, scores.gather(1, chosen), E, scores=scores, logits=scores.log())


@pytest.mark.parametrize("k", [1, 2, 4])
def test_balance_is_1_if_even_for_any_k_and_E_if_one_expert_has_all(k):
    assert balance_loss(even(k)).item() == pytest.approx(1)
    scores = torch.eye(8)[[0] * 5]
    worst = Routing.of_choices(torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, 1), 8, scores=scores)
    assert balance_loss(worst).item() == pytest.approx(8)


def test_switchs_formula_and_its_gradient():
    """alpha E sum f P: d/d P_i = E f_i; what an expert counts is a constant."""
    logits = torch.randn(32, 4, generator=drawn(0), dtype=torch.float64).requires_grad_()
    scores = logits.softmax(1)
    routing = Routing.of_choices(scores.topk(2).indices, scores.topk(2).values, 4, scores=scores, logits=logits)
    f = torch.tensor([sum(n in row for row in scores.topk(2).indices.tolist()) for n in range(4)]) / 64
    expected = 4 * (f * scores.mean(0)).sum()
    assert balance_loss(routing).item() == pytest.approx(expected.item(), rel=1e-12)
    (found,) = torch.autograd.grad(balance_loss(routing), scores, retain_graph=True)
    direct = (4 * f / 32).expand(32, 4)  # through scores of sum 1: less their mean
    torch.testing.assert_close(found, direct - (direct * scores).sum(1, keepdim=True), rtol=1e-6, atol=1e-12)
    assert z_loss(routing).item() == pytest.approx((logits.exp().sum(1).log() ** 2).mean().item())


def test_over_a_group_it_is_that_of_the_batch():
    """Its f: the mean over ranks of the losses is the loss of all tokens."""

    def program():
        moe = layer()
        moe(own(tokens()))
        return balance_loss(moe.routing, dist.group.WORLD).item(), balance_loss(moe.routing).item()

    moe = layer()
    moe(tokens())
    whole, own_only = zip(*tinydist.launch(program, 4, observe=False).results)
    assert sum(whole) / 4 == pytest.approx(balance_loss(moe.routing).item(), rel=1e-12)
    assert sum(own_only) / 4 > sum(whole) / 4


def test_descending_on_the_loss_evens_the_load():
    moe = layer(skew=0)
    moe.router.weight.data[0] += 1
    violations = []
    optimizer = torch.optim.SGD([moe.router.weight], lr=0.5)
    for _ in range(60):
        moe(tokens() + 1)
        violations.append(max_violation(moe.load.by_expert))
        auxiliary_loss(moe, balance=1.0, z=1e-3).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert violations[-1] < violations[0] / 2


def test_a_bias_moves_by_its_rate_towards_the_mean_of_all_ranks():
    def program():
        moe = layer(skew=1)
        before = moe.router.bias.clone()
        moe(own(tokens()))
        update_biases(moe, rate=0.25)
        return moe.router.bias - before, moe.load.by_expert, moe.router.seen

    results = tinydist.launch(program, 4, observe=False).results
    loads = [sum(each) for each in zip(*(by_expert for _, by_expert, _ in results))]
    expected = [0.25 * (n < 15) - 0.25 * (n > 15) for n in loads]
    for moved, _, seen in results:
        assert moved.tolist() == pytest.approx(expected) and seen == [0] * 8
    assert len(set(expected)) > 1


def test_biases_even_the_load_without_a_gradient():
    moe = layer(skew=1)
    violations = []
    for _ in range(100):
        moe(tokens(rows=40))
        violations.append(max_violation(moe.load.by_expert))
        update_biases(moe, rate=0.01)
    assert violations[-1] < violations[0] / 2


def test_max_violation():
    """2408.15664, section 4.1."""
    assert max_violation([4, 4, 4, 4]) == max_violation([0, 0]) == 0
    assert max_violation([12, 0, 0, 0]) == 3
    assert math.isclose(max_violation([5, 4, 3]), 0.25)


def test_losses_of_all_layers_are_added():
    model = with_experts(GPT(GPTConfig(layers=2)), 4, 2, router=partial(Router, bias=True))
    text = torch.zeros(2, 8, dtype=torch.long)
    with pytest.raises(ValueError, match="no MoE layer of the model has run forward"):
        auxiliary_loss(model, balance=1.0)
    model(text)
    both = sum(balance_loss(block.mlp.routing) + 0.1 * z_loss(block.mlp.routing) for block in model.blocks)
    assert auxiliary_loss(model, balance=1.0, z=0.1).item() == pytest.approx(both.item())
    with pytest.raises(ValueError, match="no router of the model has a bias"):
        update_biases(nn.Linear(1, 1))
