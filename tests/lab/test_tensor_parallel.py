"""The exercises on tensor parallelism: their solutions are the whole layers, and the library's."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tinydist import launch
from tinydist.syllabus.registry import find
from tinydist.tensor_parallel import Replicated, RowParallelLinear


@pytest.mark.parametrize("case", find("f_and_g").cases, ids=str)
def test_between_f_and_g_a_layer_in_parts_is_a_whole_one(case):
    one = find("f_and_g")
    size, *rest = case.arguments(0)
    whole = launch(one.module.train, case.ranks // size, lambda group: (products, same), 1, *rest).results
    for rank, found in enumerate(one.right(case).returned):
        for name in ("what leaves layer 1", "the gradient of x", "the gradient of layer 0's scale"):
            torch.testing.assert_close(found[name], whole[rank // size][name], rtol=1e-4, atol=1e-5)


def same(x):
    return x.view_as(x)


def products(x, *weights):
    return [x @ weight.T for weight in weights]


@pytest.mark.parametrize("case", find("row_linear").cases, ids=str)
def test_a_row_linear_is_the_librarys(case):
    one = find("row_linear")
    tokens, inputs, outputs, dtype = case.arguments(0)

    def program():
        linear = nn.Linear(inputs, outputs, dtype=dtype)
        linear.weight.data = one.module.numbers(outputs, inputs, seed=1, dtype=dtype)
        linear.bias.data = one.module.numbers(outputs, seed=2, dtype=dtype)
        layer = RowParallelLinear(linear, Replicated())
        x = one.module.numbers(tokens, inputs, seed=10, dtype=dtype)
        y = layer(layer.weight.cut.own(x))
        y.pow(2).sum().backward()
        return y.detach(), layer.weight.grad, layer.bias.grad

    names = ("y of step 0", "the gradient of weight in step 0", "the gradient of bias in step 0")
    for found, theirs in zip(one.right(case).returned, launch(program, case.ranks).results):
        torch.testing.assert_close(tuple(found[name] for name in names), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", find("vocabulary_loss").cases, ids=str)
def test_the_loss_is_that_of_all_logits(case):
    one = find("vocabulary_loss")
    parts = [case.arguments(rank)[0].detach() for rank in range(case.ranks)]
    logits, targets = torch.cat(parts, 1).requires_grad_(), case.arguments(0)[1]
    loss = cross_entropy(logits, targets)
    (one.module.SCALE * loss).backward()
    for found, gradient in zip(one.right(case).returned, logits.grad.chunk(case.ranks, 1)):
        torch.testing.assert_close(found["the loss"], loss.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found["the gradient of logits"], gradient, rtol=1e-4, atol=1e-5)


def test_three_numbers_a_token_are_sent():
    one = find("vocabulary_loss")
    (case,) = [case for case in one.cases if case.measured]
    sent = {sum(row) for row in one.right(case).run.traffic}
    assert sent == {2 * (case.ranks - 1) / case.ranks * 3 * one.module.TOKENS * 4}


@pytest.mark.parametrize("case", find("copied_heads").cases, ids=str)
def test_copies_of_a_head_have_its_gradient_in_the_whole_layer(case):
    one, (_, kv_heads, *_), t = find("copied_heads"), case.arguments(0), case.ranks
    whole = one.right(replace(case, ranks=1)).returned[0]
    parts = min(kv_heads, t)
    for rank, found in enumerate(one.right(case).returned):
        for name, tensor in whole.items():
            if "key" in name or "value" in name:
                tensor = tensor.chunk(parts)[rank * parts // t]
            if tensor.shape == found[name].shape:
                torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-6)
