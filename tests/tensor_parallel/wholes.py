"""A GPT whose sizes are awkward, on one process and sharded: losses, gradients, weights after some steps."""

import torch
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel import gathered, shard

RANKS = (1, 2, 3, 4, 8)
WAYS = (None, "save", "regather", "overlap")
# 24 heads divide by all of RANKS; the vocabulary by none but 1.
CONFIG = GPTConfig(vocab_size=257, context=24, layers=2, heads=24, dim=72)


def whole(dtype=torch.float32, config=CONFIG):
    """Biases and norms count, too: a model that has just been made has none of the former."""
    torch.manual_seed(0)
    model = GPT(config)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.3)
    return model.to(dtype)


def text(step=0, rows=2):
    tokens = torch.randint(CONFIG.vocab_size, (rows, 25), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:]


def gradient(parameter):
    return parameter.grad


def one_backward(model, gather):
    loss = model.loss(*text())
    loss.backward()
    return loss.detach(), gather(model, of=gradient)


def steps(model, gather, optimizer, count=10):
    optimizer, losses = optimizer(model.parameters()), []
    for step in range(count):
        losses.append(model.loss(*text(step)))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).detach(), gather(model)


def named(model, of=lambda parameter: parameter):
    return {name: of(parameter).detach().clone() for name, parameter in model.named_parameters()}


def alone(program, *arguments, **options):
    return program(whole(**options), named, *arguments)


def on_ranks(program, ranks, *arguments, dtype=torch.float32, config=CONFIG, **how):
    """Results, by rank."""

    def sharded():
        return program(shard(whole(dtype, config), **how), gathered, *arguments)

    return tinydist.launch(sharded, ranks, observe=False).results
