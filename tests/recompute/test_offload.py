"""Activations that the host keeps: the same gradients, exact bytes, and time that compute hides."""

import pytest
import torch
from torch import nn

import tinydist
from tinydist.hardware import Link
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import Offloaded, recompute

CONFIG = GPTConfig(vocab_size=32, context=16, layers=5, heads=4, dim=32, dropout=0.2)
TOKENS = torch.arange(32).view(2, 16)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def gradients(keep, device="cpu"):
    torch.manual_seed(0)
    model = GPT(CONFIG).to(device)
    recompute(model.blocks, keep=keep)
    for _ in range(2):
        model.loss(TOKENS.to(device), TOKENS.to(device)).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ahead", [1, 2, 9])
def test_the_same_gradients(ahead, device):
    torch.testing.assert_close(gradients(Offloaded(ahead=ahead), device), gradients(None, device), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_around_any_forward(device):
    """Without recomputation: all that is saved goes, but for parameters; twice through a graph that is retained."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(device)
    x = torch.randn(4, 8, device=device)
    keep = Offloaded()
    with keep:
        loss = layers(x).square().sum()
    assert keep.moved == {"to host": 4 * 4 * 8 * 4}  # x, what tanh gives (twice), and the output
    first = torch.autograd.grad(loss, [*layers.parameters()], retain_graph=True)
    again = torch.autograd.grad(loss, [*layers.parameters()])
    theirs = torch.autograd.grad(layers(x).square().sum(), [*layers.parameters()])
    torch.testing.assert_close(first, theirs, rtol=0, atol=0)
    torch.testing.assert_close(again, theirs, rtol=0, atol=0)


def test_a_graph_that_is_dropped_is_forgotten():
    keep = Offloaded()
    layer = nn.Linear(8, 8)
    recompute([layer], keep=keep)
    for _ in range(3):
        layer(2 * torch.ones(1, 8))
    assert len(keep.known) == len(keep.leaving) == 1  # the last one is on its way


WIDTH, TOKENS_OF_ONE = 1024, 4096
BYTES = WIDTH * TOKENS_OF_ONE * 2


def step(layers, keep, inside):
    torch.set_default_dtype(torch.bfloat16)
    blocks = [nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(inside))) for _ in range(layers)]
    if inside:
        recompute(blocks, keep=keep)
    x = torch.empty(TOKENS_OF_ONE, WIDTH, requires_grad=True)
    tinydist.mark("start")
    y = 1 * x
    for block in blocks:
        y = block(y)
    tinydist.mark("between")
    y.backward(torch.empty_like(y))
    return dict(keep.moved) if keep else {}


def observed(layers, link, inside=6, ahead=1):
    keep = Offloaded(link, ahead) if link else None
    return tinydist.launch(step, 1, layers, keep, inside, fake=True)


def seconds_and_bytes(run):
    memory = run.memory[0]
    return run.seconds, memory.at("between")["activations"] - memory.at("start")["activations"]


def test_bytes_held_do_not_grow_with_the_layers_and_time_is_hidden():
    fast = Link("fast", 0.0, 1e12)
    held = [seconds_and_bytes(observed(layers, fast))[1] for layers in (4, 8)]
    assert held[0] == held[1] == 2 * BYTES  # the input on its way, and the output
    stays = [seconds_and_bytes(observed(layers, None)) for layers in (4, 8)]
    assert [each[1] for each in stays] == [5 * BYTES, 9 * BYTES]
    assert observed(8, fast).seconds == pytest.approx(stays[1][0], rel=1e-9)


def test_a_slow_link_is_what_the_step_waits_for():
    """Each layer sends its input, but the last, which backward wants at once, and that which never left."""
    link = Link("slow", 0.0, 1e8)
    run = observed(8, link)
    moved = run.results[0]
    assert moved == {"to host": 8 * BYTES, "to device": 7 * BYTES}
    least = (7 + 7) * BYTES / link.bandwidth  # the last one leaves while the one before it comes back
    assert least <= run.seconds <= least + observed(8, None).seconds


def sent_without_recomputation(ahead):
    """Branches: backward takes what is saved in another order than the reverse one."""
    keep = Offloaded(ahead=ahead)
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    x = 1 * torch.ones(4, 8, requires_grad=True)
    with keep:
        y = first(x).tanh() * second(x).tanh()
        y = first(y).tanh() * second(y).tanh()
    y.sum().backward()
    return keep.moved


@pytest.mark.parametrize("ahead", [1, 3])
def test_nothing_comes_back_twice(ahead):
    moved = sent_without_recomputation(ahead)
    assert moved["to device"] <= moved["to host"]


def test_errors():
    with pytest.raises(TypeError, match="Offloaded: link must be a Link, got 3"):
        Offloaded(3)
    with pytest.raises(ValueError, match="Offloaded: ahead must be an integer >= 1, got 0"):
        Offloaded(ahead=0)
