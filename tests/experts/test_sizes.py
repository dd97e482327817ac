"""Parameters of published models, what fine-grained experts leave as it is, and bytes held, by the ledger."""

import pytest
import torch

import tinydist
from tinydist.experts import EvenRouter, Expert, MoE, Sizes

MIXTRAL = Sizes(dim=4096, hidden=14336, experts=8, top_k=2)
DEEPSEEK = Sizes(dim=7168, hidden=2048, experts=256, top_k=8, shared=1)


def test_parameters_of_published_models():
    """Mixtral 8x7B has 46.7 billion, 12.9 active (Mistral AI, 2023): 32 layers, 32 heads, 8 of them for keys. Of
    DeepSeek-V3's 671 billion the routed experts are 653.9, in 58 layers."""
    attention = 2 * 4096**2 + 2 * 4096 * 1024
    rest = 32 * attention + 2 * 32000 * 4096
    assert 32 * MIXTRAL.parameters + rest == pytest.approx(46.7e9, rel=1e-3)
    assert 32 * MIXTRAL.active + rest == pytest.approx(12.9e9, rel=2e-3)
    assert DEEPSEEK.one == 44_040_192 and 58 * 256 * DEEPSEEK.one == pytest.approx(653.9e9, rel=1e-4)


def test_fine_grained_experts_are_as_many_parameters_and_flops():
    """But for the router's."""
    fine = MIXTRAL.split(4)
    assert (fine.experts, fine.top_k, fine.hidden) == (32, 8, 3584)
    router = 4096 * (32 - 8)
    assert fine.parameters - MIXTRAL.parameters == fine.active - MIXTRAL.active == router
    assert fine.flops == 2 * fine.active
    with pytest.raises(ValueError, match=r"hidden \(14336\) must be divisible by parts \(3\)"):
        MIXTRAL.split(3)
    with pytest.raises(ValueError, match=r"top_k \(9\) must be at most experts \(8\)"):
        Sizes(8, 8, 8, 9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("ranks", [1, 4])
def test_bytes_held_for_backward(ranks, gated):
    sizes = Sizes(dim=64, hidden=96, experts=8, top_k=2, gated=gated)
    N = 256

    def program():
        router = EvenRouter(64, 8, 2)
        moe = MoE(router, lambda number: Expert(64, 96, gated=gated))
        x = torch.randn(N, 64, requires_grad=True)
        tinydist.mark("begin")
        y = moe(x)
        tinydist.mark("forward is over")
        moe.routing = None
        return y.shape, sum(moe.load.computed)

    run = tinydist.launch(program, ranks)
    held = sizes.held(sent=2 * N, computed=run.results[0][1])
    memory = run.memory[0]
    before, after = (sum(memory.at(mark).values()) for mark in ("begin", "forward is over"))
    numbers = 2 * N * 8 * 6 + N * 8 * 4 * 3 + 4 * N * 64  # of assignments, the router's scores; and the output
    assert held <= after - before <= held + numbers


def test_dropless_memory_is_bound_only_by_all_tokens_of_all_ranks():
    even, worst = (MIXTRAL.held(sent=8192, computed=rows, itemsize=2) for rows in (8192, 8 * 8192))
    assert worst / even == pytest.approx(7.6, abs=0.2)
