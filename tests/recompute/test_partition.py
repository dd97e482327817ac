"""Each rank keeps 1/t of an input, and the gradients are those of whole inputs."""

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import Partitioned, recompute

CONFIG = GPTConfig(vocab_size=32, context=16, layers=3, heads=4, dim=32, dropout=0.2)
TOKENS = torch.arange(30).view(2, 15)


def gradients(keep=None):
    torch.manual_seed(0)
    model = GPT(CONFIG)
    recompute(model.blocks, keep=keep)
    model.loss(TOKENS, TOKENS).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_the_same_gradients(ranks):
    run = tinydist.launch(lambda: gradients(Partitioned()), ranks)
    for found in run.results:
        torch.testing.assert_close(found, gradients(), rtol=0, atol=0)


def test_groups_are_passed():
    def program():
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        torch.manual_seed(dist.get_rank() // 2)
        x = torch.randn(3, 5, requires_grad=True)
        layer = torch.nn.Linear(5, 5)
        recompute([layer], keep=Partitioned(pairs[dist.get_rank() // 2]))
        layer(2 * x).square().sum().backward()
        other = torch.nn.Linear(5, 5)
        other.load_state_dict(layer.state_dict())
        return torch.equal(layer.weight.grad, torch.autograd.grad(other(2 * x).square().sum(), other.weight)[0])

    assert tinydist.launch(program, 4).results == [True] * 4


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_bytes_held_and_sent(ranks):
    """A block's input has 2 x 16 x 32 numbers of 4 bytes: 1/t is held, and (t - 1)/t sent for each block."""

    def program():
        model = GPT(CONFIG)
        recompute(model.blocks, keep=Partitioned())
        x = torch.ones(2, 16, 32, requires_grad=True)
        tinydist.mark("before")
        y = 1 * x
        for block in model.blocks:
            y = block(y)
        tinydist.mark("after")
        y.sum().backward()

    run = tinydist.launch(program, ranks)
    of_block = 2 * 16 * 32 * 4
    held = run.memory[0].at("after")["activations"] - run.memory[0].at("before")["activations"]
    assert held == of_block + 3 * of_block // ranks  # the output, too
    assert sum(run.traffic[0]) == 3 * of_block // ranks * (ranks - 1)


def test_leaves_and_parameters():
    def program():
        weight = torch.nn.Parameter(torch.ones(3))
        x = torch.arange(3.0, requires_grad=True)
        with Partitioned():
            (weight * x).sum().backward()
        return weight.grad.tolist(), x.grad.tolist()

    assert tinydist.launch(program, 2).results == [([0, 1, 2], [1, 1, 1])] * 2
