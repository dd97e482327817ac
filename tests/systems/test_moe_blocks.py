"""Mixtral's and DeepSeek-V3's blocks of Hugging Face with the same weights: outputs and all gradients, on any ranks."""

import pytest
import torch
import torch.distributed as dist
from experts.moe import drawn

import tinydist
from tinydist.experts import Expert, MoE, Router

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
D, F, E, TOKENS = 24, 16, 16, (2, 12)


def mixtral():
    from transformers.models.mixtral.modeling_mixtral import MixtralConfig, MixtralSparseMoeBlock

    return MixtralSparseMoeBlock(
        MixtralConfig(hidden_size=D, intermediate_size=F, num_local_experts=E, num_experts_per_tok=2)
    )


def deepseek():
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Config, DeepseekV3MoE

    sizes = dict(hidden_size=D, moe_intermediate_size=F, n_routed_experts=E, num_experts_per_tok=4, n_shared_experts=2)
    return DeepseekV3MoE(DeepseekV3Config(**sizes, n_group=4, topk_group=2))


ROUTERS = {
    mixtral: dict(top_k=2),
    deepseek: dict(top_k=4, score="sigmoid", bias=True, groups=4, kept_groups=2, scale=2.5),
}


def theirs(block):
    """Drawn: their parameters are empty until a model initializes them."""
    torch.manual_seed(0)
    block = block().double()
    for name, parameter in block.named_parameters():
        parameter.data.normal_(0, 0.5, generator=drawn(len(name)))
    if hasattr(block.gate, "e_score_correction_bias"):
        block.gate.e_score_correction_bias.normal_(0, 0.2, generator=drawn(1))
    return block


def ours(block, options):
    """``block``: theirs, of which this rank takes its experts' weights."""
    gate = Router(D, E, **options).double()
    gate.weight.data = block.gate.weight.detach().clone()
    if gate.bias is not None:
        gate.bias = block.gate.e_score_correction_bias.clone()

    def make(number):
        weights = (*block.experts.gate_up_proj[number].detach().chunk(2), block.experts.down_proj[number].detach())
        return filled(Expert(D, F, gated=True), *weights)

    shared = getattr(block, "shared_experts", None)
    if shared is not None:
        of_shared = (getattr(shared, f"{name}_proj").weight.detach() for name in ("gate", "up", "down"))
        shared = filled(Expert(D, 2 * F, gated=True), *of_shared)
    return MoE(gate, make, shared=shared)


def filled(expert, gate, up, down):
    for layer, weight in ((expert.gate, gate), (expert.up, up), (expert.down, down)):
        layer.weight = torch.nn.Parameter(weight.clone())
    return expert


def tokens():
    return torch.randn(*TOKENS, D, generator=drawn(2), dtype=torch.float64)


def passed(block, x):
    x.requires_grad_()
    y = block(x)
    (y * torch.linspace(1, 2, D, dtype=y.dtype)).sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("block", ROUTERS, ids=lambda block: block.__name__)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_same_outputs_and_gradients(block, ranks):
    """Their routers compute scores in float32: within its rounding of ours."""

    def program():
        moe = ours(theirs(block), ROUTERS[block])
        y, dx = passed(moe, tokens().chunk(ranks)[dist.get_rank()].clone())
        experts = {n: [p.grad * ranks for p in expert.parameters()] for n, expert in moe.experts.items()}
        return y, dx, moe.router.weight.grad, experts

    reference = theirs(block)
    y, dx = passed(reference, tokens())
    found = tinydist.launch(program, ranks, observe=False).results
    assert y.abs().max() > 1
    close = dict(rtol=0, atol=64 * torch.finfo(torch.float32).eps * max(y.abs().max(), dx.abs().max()).item())
    torch.testing.assert_close(torch.cat([each[0] for each in found]), y, **close)
    torch.testing.assert_close(torch.cat([each[1] for each in found]), dx, **close)
    torch.testing.assert_close(sum(each[2] for each in found), reference.gate.weight.grad, rtol=1e-4, atol=1e-4)
    experts = {number: grads for each in found for number, grads in each[3].items()}
    for number, (gate, up, down) in experts.items():
        theirs_of = reference.experts.gate_up_proj.grad[int(number)], reference.experts.down_proj.grad[int(number)]
        scale = max(each.abs().max().item() for each in theirs_of)
        torch.testing.assert_close(torch.cat([gate, up]), theirs_of[0], rtol=0, atol=1e-5 * max(1, scale))
        torch.testing.assert_close(down, theirs_of[1], rtol=0, atol=1e-5 * max(1, scale))
