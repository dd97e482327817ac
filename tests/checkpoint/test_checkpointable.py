"""A plain model and its optimizer, for checkpoints."""

import pytest
import torch
from torch import nn
from zero.ladder import stage_0

from tinydist import checkpoint
from tinydist.checkpoint import UnshardedModel
from tinydist.precision import Kahan, MasterWeights, StochasticRounding


def test_an_optimizer_of_another_module():
    with pytest.raises(
        ValueError, match=r"UnshardedModel: the optimizer has parameters that are not in the module: \[3, 2\]"
    ):
        UnshardedModel(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 3, bias=False).parameters()))


def test_steps_are_counted():
    zero = stage_0(nn.Linear(2, 2))
    for _ in range(3):
        zero.module(torch.ones(2)).sum().backward()
        zero.step()
    assert zero.steps == checkpoint.sharded(zero)["step"] == 3


@pytest.mark.parametrize("optimizer", [torch.optim.NAdam, torch.optim.ASGD, torch.optim.Adafactor])
def test_what_has_another_shape_is_kept_as_it_is(optimizer):
    """Counts; and of Adafactor, a row and a column for each matrix."""

    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.scale = nn.Parameter(torch.tensor(2.0))  # one number, as a count is

        def forward(self, x):
            return super().forward(x) * self.scale

    one, two = stage_0(Scaled(), optimizer, lr=0.01), stage_0(Scaled(), optimizer, lr=0.02)
    for _ in range(2):
        one.module(torch.ones(3)).sum().backward()
        one.step()
    checkpoint.load(two, checkpoint.gathered(one))
    found, expected = two.optimizer.state_dict(), one.optimizer.state_dict()
    torch.testing.assert_close(found["state"], expected["state"], rtol=0, atol=0)
    assert found["param_groups"] == expected["param_groups"]


@pytest.mark.parametrize("kind", [MasterWeights, Kahan, StochasticRounding])
def test_weights_of_16_bits_and_what_is_kept_beside_them(kind):
    """And an fp32 one among them."""

    def made():
        module = nn.Sequential(nn.Linear(3, 2, dtype=torch.bfloat16), nn.Linear(2, 2))
        return UnshardedModel(module, kind(module.parameters(), torch.optim.AdamW, lr=1e-3))

    one, two = made(), made()
    for _ in range(3):
        for parameter in one.module.parameters():
            parameter.grad = torch.randn_like(parameter)
        one.optimizer.step()
    checkpoint.load(two, checkpoint.gathered(one))
    for mine, its in zip(one.module.parameters(), two.module.parameters()):
        assert torch.equal(mine, its) and torch.equal(one.optimizer.upcast(mine), two.optimizer.upcast(its))
    found, expected = (each.optimizer.optimizer.state_dict()["state"] for each in (two, one))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
