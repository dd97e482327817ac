"""A model of 7.5 billion parameters on 8 ranks, by the ledger, with fake tensors: bytes at rest, and at the peak."""

import pytest
import torch

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.precision import MasterWeights
from tinydist.tensor_parallel import shard

RANKS, T = 8, 2048
GRADIENTS, ALL = 2, 16  # bytes a parameter: in 16 bits; with weights, Adam's states and master weights, too
WIDE = GPTConfig(vocab_size=8192, context=T, layers=6, heads=64, dim=10240, dropout=0.1)  # fewer operators than DEEP
WIDER = GPTConfig(vocab_size=8192, context=T, layers=2, heads=64, dim=17600, dropout=0.1)
WIDEST = GPTConfig(vocab_size=8192, context=T, layers=1, heads=64, dim=24576, dropout=0.1)
DEEP = GPTConfig(vocab_size=51200, context=T, layers=36, heads=32, dim=4096, dropout=0.1)


def parameters(config, t):
    """On each rank: matrices, their biases by columns and the vocabulary in parts; the rest are copies."""
    V, L, D = config.vocab_size, config.layers, config.dim
    return (V * D + L * (12 * D * D + 7 * D)) / t + T * D + L * 6 * D + 2 * D


def layer(config, t, sequence):
    """Activations of one, in bytes a number of the residual stream: Korthikanti et al. 2022, table 2."""
    scores = 5 * config.heads * config.context / (config.dim * t)
    return {None: 10 + 24 / t, "save": 4 + 30 / t, "regather": 34 / t}[sequence] + scores


def peak(config, B, t, sequence):
    """Where backward has just made the gradient of an ``up``, or of a ``qkv``: in the last block, with which it begins,
    or in the first.

    Beside states, weights and activations there is what Korthikanti et al. leave out: gradients of what is done, and
    what backward works with. With wide layers and few tokens gradients come faster than activations go.
    """
    V, L, D, number = config.vocab_size, config.layers, config.dim, B * config.context * config.dim
    own = 1 / t if sequence else 1  # of what is between layers
    pieces = 2 if B > 1 else 0  # what is gathered is copied, to be one tensor
    of_block, matrix = number * layer(config, t, sequence), GRADIENTS * D * D / t
    inputs = {None: 4, "save": 2 + 2 / t, "regather": 4 / t}[sequence]  # of the norm, and of the product behind it
    works = {None: 4, "save": 2 + 4 / t, "regather": 4 + pieces + 4 / t}[
        sequence
    ]  # of two inputs the gradients; gathered
    up = of_block + 8 * matrix + number * (works + 8 / t - own - 16 / t)  # a mask is gone; GELU's input, and output
    qkv = 12 * matrix + number * (inputs + works + 6 / t)
    ends = own * number + GRADIENTS * V * D / t  # the first mask; the head's gradient waits for that of the embedding
    others = (L - 1) * max(12 * matrix, of_block)  # of all other blocks the gradients, or the activations
    return (ALL - GRADIENTS) * parameters(config, t) + ends + others + max(up, qkv)


def training(config, B, sequence):
    torch.set_default_dtype(torch.bfloat16)
    model = shard(GPT(config), sequence_parallel=sequence)
    optimizer = MasterWeights(model.parameters())
    tokens = torch.zeros(B, T, dtype=torch.long)
    for step in range(2):
        tinydist.mark(f"step {step}")
        model.loss(tokens, tokens).backward()
        tinydist.mark(f"backward {step} is over")
        optimizer.step()
        optimizer.zero_grad()


exhaustive = pytest.mark.exhaustive


@pytest.mark.parametrize(
    "config, B, sequence",
    [
        (WIDE, 1, None),
        (WIDER, 2, None),
        (WIDER, 2, "save"),
        (WIDER, 2, "regather"),
        (WIDEST, 1, None),
        pytest.param(DEEP, 1, None, marks=exhaustive),
        pytest.param(DEEP, 1, "regather", marks=exhaustive),
    ],
    ids=lambda value: f"{value.layers} layers" if isinstance(value, GPTConfig) else str(value),
)
def test_bytes_at_rest_and_at_the_peak_are_those_of_the_formula(config, B, sequence):
    assert 7.4e9 < parameters(config, 1) < 7.9e9
    memory = tinydist.launch(training, RANKS, config, B, sequence, fake=True, only=[0]).memory[0]
    at_rest = sum(memory.at("backward 1 is over").values())
    assert at_rest == pytest.approx(ALL * parameters(config, RANKS), rel=1e-3)
    found = memory.peak_between("step 1", "backward 1 is over")
    assert found == pytest.approx(peak(config, B, RANKS, sequence), rel=2e-3)
