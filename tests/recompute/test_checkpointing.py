"""What is recomputed gives the same loss and gradients, dropout's masks included, and holds its inputs alone."""

import pytest
import torch
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import Run, recompute, recompute_runs, runs_of

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


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_runs_of_blocks(k):
    """One input for k blocks; the same gradients."""

    def change(model):
        model.blocks = recompute_runs(model.blocks, runs_of(k, 3))

    (losses, gradients), (theirs, others) = trained(change), trained(lambda model: None)
    torch.testing.assert_close(losses, theirs, rtol=0, atol=0)
    torch.testing.assert_close([*gradients.values()], [*others.values()], rtol=0, atol=0)
    assert [run.layers for run in runs_of(k, 3)] == {1: [1, 1, 1], 2: [2, 1], 3: [3], 5: [3]}[k]


def test_the_square_root_of_layers():
    """Of 16 blocks in runs of k: 16/k inputs between the passes; in backward, k blocks' activations at the peak."""

    def program(k):
        blocks = nn.ModuleList(nn.Sequential(*(nn.Tanh() for _ in range(4))) for _ in range(16))
        if k:
            blocks = recompute_runs(blocks, runs_of(k, 16))
        x = torch.ones(250, requires_grad=True)  # 1,000 bytes
        tinydist.mark("start")
        y = 1 * x
        for block in blocks:
            y = block(y)
        tinydist.mark("between")
        y.backward(torch.ones(250))

    def held(k):
        memory = tinydist.launch(program, 1, k).memory[0]
        return (memory.at("between")["activations"] - memory.at("start")["activations"]) // 1000, memory.peak // 1000

    assert [held(k)[0] for k in (None, 1, 2, 4, 8, 16)] == [64, 17, 9, 5, 3, 2]
    peaks = {k: held(k)[1] for k in (1, 2, 4, 8, 16)}
    assert min(peaks, key=peaks.get) == 2  # sqrt(16 / 4)


def test_options_and_errors_of_runs():
    class Scaled(nn.Module):
        def forward(self, x, by=1):
            return by * x

    blocks = recompute_runs([Scaled(), Scaled(), Scaled()], [Run(2, True), Run(1, False)])
    x = torch.ones(2, requires_grad=True)
    y = x
    for block in blocks:
        y = block(y, by=3)
    assert y.tolist() == [27, 27]
    with pytest.raises(ValueError, match="recompute_runs: runs have 2 layers, but there are 3"):
        recompute_runs([Scaled()] * 3, runs_of(2, 2))
    with pytest.raises(ValueError, match="runs_of: k must be an integer >= 1, got 0"):
        runs_of(0, 3)
    with pytest.raises(TypeError, match="recompute: keep must be a saved_tensors_hooks or None, got 3"):
        recompute([Scaled()], keep=3)
