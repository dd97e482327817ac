"""A model of 7.5 billion parameters on 8 ranks, by the ledger, with fake tensors: bytes at rest, and at the peak."""

import pytest
import torch

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.precision import MasterWeights
from tinydist.tensor_parallel import shard

RANKS, B, T, WEIGHTS, ALL = (
    8,
    4,
    2048,
    2,
    16,
)  # bytes a parameter: in 16 bits; with gradients, Adam and the master weights
WIDE = GPTConfig(vocab_size=8192, context=T, layers=6, heads=64, dim=10240, dropout=0.1)  # a sixth of the operators
DEEP = GPTConfig(vocab_size=51200, context=T, layers=36, heads=32, dim=4096, dropout=0.1)


def parameters(config, t):
    """On each rank: matrices, their biases by columns and the vocabulary in parts; the rest are copies."""
    V, L, D = config.vocab_size, config.layers, config.dim
    return (V * D + L * (12 * D * D + 7 * D)) / t + T * D + L * 6 * D + 2 * D


def activations(config, B, t, sequence):
    """What Korthikanti et al. 2022 add up in sections 4.2 and 4.3, but logits are held in 16 bits."""
    V, L, D, H = config.vocab_size, config.layers, config.dim, config.heads
    scores = 5 * H * T / (D * t)
    layer = 34 / t + scores if sequence else 10 + 24 / t + scores
    ends = 5 / t if sequence else 5  # the mask of what is embedded; what the last norm, and the head, are given
    return B * T * (D * (layer * L + ends) + 2 * V / t)


def training(config, B, sequence):
    torch.set_default_dtype(torch.bfloat16)
    model = shard(GPT(config), sequence=sequence)
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
    [(WIDE, 2, None), pytest.param(DEEP, 1, None, marks=exhaustive), pytest.param(DEEP, 1, "again", marks=exhaustive)],
    ids=["wide", "deep", "deep, tokens cut"],
)
def test_bytes_at_rest_and_at_the_peak_are_those_of_the_formula(config, B, sequence):
    assert 7.4e9 < parameters(config, 1) < 7.7e9
    memory = tinydist.launch(training, RANKS, config, B, sequence, fake=True, only=[0]).memory[0]
    own = parameters(config, RANKS)
    assert sum(memory.at("backward 1 is over").values()) == pytest.approx(ALL * own, rel=0.01)
    peak = (ALL - WEIGHTS) * own + activations(config, B, RANKS, sequence)
    assert memory.peak_between("step 1", "backward 1 is over") == pytest.approx(peak, rel=0.01)
