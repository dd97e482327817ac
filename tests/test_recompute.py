"""What is recomputed gives the same loss and gradients, dropout's masks included, and holds its inputs alone."""

import pytest
import torch
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import recompute

CONFIG = GPTConfig(vocab_size=32, context=16, layers=3, heads=4, dim=32, dropout=0.2)
TOKENS = torch.arange(32).view(2, 16)


def full(model):
    recompute(model.blocks)


def selective(model):
    recompute([block.attention for block in model.blocks], "mix")


def trained(change):
    torch.manual_seed(0)
    model = GPT(CONFIG)
    change(model)
    torch.manual_seed(1)
    losses = []
    for _ in range(2):
        losses.append(model.loss(TOKENS, TOKENS))
        losses[-1].backward()
    return torch.stack(losses).detach(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("change", [full, selective])
def test_the_same_losses_and_gradients(change):
    torch.testing.assert_close(trained(change), trained(lambda model: None), rtol=0, atol=0)


def test_what_is_held_and_computed_again():
    """Full: of each block its input, 2 bytes a number in 16 bits. Products are computed 4/3 times, and less with
    selective recomputation, which repeats attention's two.
    """

    def program(change):
        torch.set_default_dtype(torch.bfloat16)
        model = GPT(CONFIG)
        change(model)
        x = torch.ones(2, 16, 32, requires_grad=True)
        tinydist.mark("before")
        for block in model.blocks:
            x = block(x)
        tinydist.mark("after")
        x.sum().backward()

    def of(change):
        run = tinydist.launch(program, 1, change)
        held = run.memory[0].at("after")["activations"] - run.memory[0].at("before")["activations"]
        names = [entry.name for entry in run.record.programs[0] if getattr(entry, "flops", 0)]
        return held, len(names)

    (held, products), (less, more), (least, most) = (of(change) for change in (lambda model: None, selective, full))
    assert least == 3 * 2 * 16 * 32 * 2 < less < held
    assert more - products == 3 * 2 - 3  # the last product of each is not needed again
    assert products < more < most <= products * 4 / 3


def test_a_method_that_is_not_there():
    with pytest.raises(ValueError, match="recompute: Linear has no method 'mix'"):
        recompute([nn.Linear(1, 1)], "mix")
    with pytest.raises(ValueError, match="recompute: modules must be a list, each item a Module, got 3"):
        recompute(3)
