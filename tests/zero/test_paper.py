"""The paper's figure 1, measured: 7.5 billion parameters on 64 ranks, by the ledger, with fake tensors."""

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.data_parallel import average_each
from tinydist.model import GPT, GPTConfig
from tinydist.model.gpt import Block
from tinydist.precision import MasterWeights
from tinydist.zero import Gradients, OptimizerStates, Parameters
from tinydist.zero.estimators import model_states

# Few and wide blocks: as many parameters as in the paper's model, and a third of the operators.
CONFIG = GPTConfig(vocab_size=50257, context=1024, layers=12, heads=55, dim=7040)
RANKS, PSI = 64, 7.5e9


class Replicated:
    """The bottom rung: all of it on every rank."""

    def __init__(self, module):
        self.module, self.optimizer = module, MasterWeights(module.parameters())

    def step(self):
        average_each(self.module.parameters())
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


def by_blocks(module):
    return Parameters(module, units=lambda each: isinstance(each, Block))


def a_step_and_a_backward(rung):
    """Where it ends, all model states are there, and no activations."""
    torch.set_default_dtype(torch.bfloat16)
    module = GPT(CONFIG)
    rung = rung(module)
    tokens = torch.zeros(1, 16, dtype=torch.long)
    module.loss(tokens, tokens).backward()
    rung.step()
    rung.zero_grad()
    module.loss(tokens, tokens).backward()
    padding = sum(bucket.layout.padding for bucket in getattr(rung, "buckets", ()))
    return rung, dist.get_world_size(), padding


@pytest.mark.parametrize(
    "stage, rung, printed",
    [
        pytest.param(0, Replicated, 120, marks=pytest.mark.exhaustive),
        pytest.param(1, OptimizerStates, 31.4, marks=pytest.mark.exhaustive),
        pytest.param(2, Gradients, 16.6, marks=pytest.mark.exhaustive),
        (3, by_blocks, 1.9),
    ],
)
def test_figure_1_by_measurement(stage, rung, printed):
    run = tinydist.launch(a_step_and_a_backward, RANKS, rung, fake=True, only=[0])
    held = list(run.memory[0].over_time())[-1][1]
    _, ranks, padding = run.results[0]
    states = held["parameters"] + held["gradients"] + held["optimizer states"]
    assert states == pytest.approx(model_states(PSI, stage, ranks), rel=0.01)
    assert round(states / 1e9, 1) == printed
    assert 16 * padding < 1e-6 * states
    assert held["activations"] + held["communication"] + held["other"] < 1e-6 * states
