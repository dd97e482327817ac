"""A GPT's MLPs become MoE layers: which, and that each rank makes its own experts, the same on any number of ranks."""

import pytest
import torch
from torch import nn

import tinydist
from tinydist.experts import MoE, with_experts
from tinydist.model import GPT, GPTConfig


def gpt(**options):
    torch.manual_seed(0)
    return with_experts(GPT(GPTConfig(layers=4, dim=8, heads=2)), 8, 2, **options)


def test_every_second_block():
    kinds = [isinstance(block.mlp, MoE) for block in gpt(every=2).blocks]
    assert kinds == [False, True, False, True]


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_makes_its_own_experts_whatever_the_number_of_ranks(ranks):
    def program():
        model = gpt(shared=1, gated=True)
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    whole = program()
    found = {}
    for each in tinydist.launch(program, ranks, observe=False).results:
        assert len([name for name in each if "experts" in name]) == 4 * 3 * 8 // ranks
        assert all(torch.equal(each[name], whole[name]) for name in each)
        found |= each
    assert found.keys() == whole.keys()
    weights = [parameter for name, parameter in whole.items() if ".up." in name]
    assert len({weight.sum().item() for weight in weights}) == len(weights)


def test_experts_draw_from_generators_of_their_own():
    """So what follows draws the same on ranks with other experts."""
    before = torch.get_rng_state()
    with_experts(GPT(GPTConfig(layers=1, dim=8, heads=2)), 4, 1)
    torch.set_rng_state(before)
    GPT(GPTConfig(layers=1, dim=8, heads=2))
    expected = torch.rand(3)
    torch.set_rng_state(before)
    with_experts(GPT(GPTConfig(layers=1, dim=8, heads=2)), 4, 1)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_without_blocks():
    with pytest.raises(ValueError, match="Linear has no blocks: make an MoE for each layer yourself"):
        with_experts(nn.Linear(2, 2))
