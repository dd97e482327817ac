"""Over any ranks the layer is what one rank computes densely: outputs, gradients; and no assignment is lost."""

import pytest
import torch
import torch.distributed as dist
from experts.moe import DIM, EXPERTS, TOP_K, drawn, expert, layer, on_nodes, own, passed, tokens
from hypothesis import given
from hypothesis import strategies as st
from rounding import between_orders

import tinydist
from tinydist.experts import ExpertChoice, MoE, dense
from tinydist.recompute import recompute

PLACES = [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (8, 4)]  # ranks, nodes


def program(nodes, options, dtype=torch.float64):
    moe = on_nodes(nodes, dtype=dtype, **options)
    y, dx = passed(moe, own(tokens(dtype)))
    gradients = {name: p.grad for name, p in moe.named_parameters()}
    of_experts = {name: g * dist.get_world_size() for name, g in gradients.items() if name.startswith("experts")}
    return y, dx, of_experts, {n: g for n, g in gradients.items() if n not in of_experts}, moe.load


def whole(results):
    """What all ranks have found, as one rank would."""
    y, dx, of_experts, others, loads = zip(*results)
    gradients = {name: g for each in of_experts for name, g in each.items()}
    gradients |= {name: sum(each[name] for each in others) for name in others[0]}
    return torch.cat(y), torch.cat(dx), gradients, loads


def reference(options, dtype=torch.float64):
    moe = layer(dtype=dtype, **options)
    y, dx = passed(lambda x: dense(moe, x), tokens(dtype))
    return y, dx, {name: p.grad for name, p in moe.named_parameters()}


def assert_close(found, expected, atol):
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=atol)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=atol)
    assert found[2].keys() == expected[2].keys()
    for name, gradient in expected[2].items():
        torch.testing.assert_close(found[2][name], gradient, rtol=0, atol=atol * max(1, gradient.abs().max().item()))


@pytest.mark.parametrize("ranks, nodes", PLACES)
@pytest.mark.parametrize("skew", [0, 1, 1000], ids=["even", "uneven", "five experts are empty"])
def test_it_is_the_dense_layer(ranks, nodes, skew):
    results = tinydist.launch(program, ranks, nodes, {"skew": skew}, observe=False).results
    found = whole(results)
    expected = reference({"skew": skew})
    assert expected[0].abs().max() > 1 and all(g.abs().max() > 0.01 for n, g in expected[2].items() if "shared" in n)
    assert_close(found, expected, 1e-10)
    loads = found[3]
    assert sum(load.combined for load in loads) == TOP_K * 8 * 5 == sum(sum(load.computed) for load in loads)
    if skew == 1000:
        assert sum(n == 0 for n in loads[0].by_expert) == EXPERTS - TOP_K
        assert any(sum(load.computed) == 0 for load in loads) == (ranks > 1)


@pytest.mark.parametrize("ranks, nodes", [(4, 1), (8, 2)])
def test_without_deduplication_and_with_microbatches_of_one_token(ranks, nodes):
    found = whole(tinydist.launch(program, ranks, nodes, {"deduplicate": False}, observe=False).results)
    assert_close(found, reference({}), 1e-10)


@pytest.mark.parametrize("ranks, nodes", [(1, 1), (4, 1), (8, 2)])
def test_in_float32_within_the_bound_of_rounding(ranks, nodes):
    """Of what rounds: products of D and of F numbers, k summands and the shared one; gradients sum over tokens, too."""
    found = whole(tinydist.launch(program, ranks, nodes, {}, torch.float32, observe=False).results)
    exact = reference({})
    terms = 2 * (DIM + 10) + TOP_K + 1 + 8 * 5
    bound = between_orders(torch.float32, terms, 1.0)
    for mine, theirs in ((found[0], exact[0]), (found[1], exact[1]), *((found[2][n], g) for n, g in exact[2].items())):
        assert (mine.double() - theirs).norm() <= bound * theirs.norm()


@pytest.mark.parametrize("ranks, nodes", [(1, 1), (4, 1), (8, 2)])
@pytest.mark.parametrize("by", ["position", "weight"])
def test_what_is_over_the_capacity_is_dropped_by_each_rank_and_counted(ranks, nodes, by):
    options = {"capacity_factor": 1.0, "drop_by": by}
    results = tinydist.launch(program, ranks, nodes, options, observe=False).results
    for rank, (y, *_, load) in enumerate(results):
        moe, mine = layer(**options), tokens().chunk(ranks)[rank]
        torch.testing.assert_close(y, dense(moe, mine).detach(), rtol=0, atol=1e-10)
        assert load.assigned == TOP_K * mine[..., 0].numel() == load.combined + load.dropped
        assert load.dropped > 0


@pytest.mark.parametrize("ranks, nodes", [(3, 1), (4, 2)])
@pytest.mark.parametrize("chooses", ["tokens", "experts"])
def test_ranks_may_have_different_numbers_of_tokens_or_none(ranks, nodes, chooses):
    def chosen(moe):
        if chooses == "experts":
            moe.router = ExpertChoice(DIM, 12, generator=drawn(100)).double()
        return moe

    def program():
        moe, rank = chosen(on_nodes(nodes, experts=12)), dist.get_rank()
        y, dx = passed(moe, tokens()[rank : 2 * rank].clone())
        return y, dx, moe.load.assigned - moe.load.combined

    for rank, (y, dx, lost) in enumerate(tinydist.launch(program, ranks, observe=False).results):
        alone = chosen(layer(experts=12))
        expected, gradient = passed(lambda x: dense(alone, x), tokens()[rank : 2 * rank].clone())
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(dx, gradient, rtol=0, atol=1e-10)
        assert lost == 0


@pytest.mark.parametrize("nodes", [1, 2])
def test_computed_again_in_backward(nodes):
    """Tokens travel once more; nothing else changes."""

    def program(again):
        moe = on_nodes(nodes)
        recompute([moe] if again else [])
        y, dx = passed(moe, own(tokens()))
        return y, dx, [parameter.grad for parameter in moe.parameters()]

    kept, computed = (tinydist.launch(program, 4, again, observe=False).results for again in (False, True))
    torch.testing.assert_close(computed, kept, rtol=0, atol=0)


@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from([1, 2, 4]), st.integers(0, 30), st.booleans())
def test_every_assignment_is_combined_or_dropped(rows, top_k, ranks, skew, drops):
    def passes():
        moe = layer(top_k=top_k, skew=skew, capacity_factor=1.0 if drops else None)
        moe(tokens(rows=rows))
        return moe.load

    for load in tinydist.launch(passes, ranks, observe=False).results:
        assert load.assigned == top_k * rows * 5 == load.combined + load.dropped == sum(load.by_expert)
        assert load.dropped == 0 or drops


def test_where_experts_choose_each_has_as_many_rows_and_tokens_may_have_none():
    def program():
        router = ExpertChoice(DIM, EXPERTS, capacity_factor=1.0).double()
        moe = MoE(router, expert)
        mine = own(tokens())
        y = moe(mine)
        untouched = set(range(10)) - set(moe.routing.tokens.tolist())
        torch.testing.assert_close(y.flatten(0, 1)[list(untouched)], torch.zeros(len(untouched), DIM).double())
        alone = MoE(router, expert, group=dist.new_subgroups(1)[0])
        return (y - dense(alone, mine)).abs().max().item(), moe.load, len(untouched)

    for difference, load, untouched in tinydist.launch(program, 4, observe=False).results:
        assert difference < 1e-12
        assert load.by_expert == (2,) * EXPERTS and load.computed == (8,) * 2 and untouched > 0


def test_an_expert_that_loses_rows_is_found_out():
    class Lossy(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x)[1:]

    with pytest.raises(RuntimeError, match=r"Experts: expert 0 made \[\d+, 6\] of \[\d+, 6\]"):
        layer(make=lambda number: Lossy(DIM, DIM).double())(tokens())


def test_a_lost_assignment_is_an_error(monkeypatch):
    def loses_one(rows, routing):
        yield
        return rows, routing.assigned - 1

    moe = layer()
    monkeypatch.setattr(moe, "moved", loses_one)
    with pytest.raises(RuntimeError, match=r"a token was lost: 120 assignments, but 119 combined \+ 0 dropped"):
        moe(tokens())


def test_errors_come_before_any_communication():
    def too_few():
        layer(experts=6)

    with pytest.raises(ValueError, match=r"experts \(6\) must be divisible by the ranks that share them \(4\)"):
        tinydist.launch(too_few, 4, observe=False)
    with pytest.raises(ValueError, match=r"Router: expected tokens \[N, 6\], got \[40, 7\]"):
        layer()(torch.ones(8, 5, 7).double())


def test_on_processes():
    found = whole(tinydist.launch(program, 2, 1, {}, backend="gloo").results)
    assert_close(found, reference({}), 1e-10)


@pytest.mark.parametrize("nodes", [1, 2])
def test_on_gpus(nodes):
    """Pretended ones: what is on another device than it must be is an error."""

    def program():
        moe = on_nodes(nodes, skew=1, capacity_factor=2.0).cuda()
        x = own(tokens()).cuda()
        y = moe(x)
        y.sum().backward()
        return y.detach().cpu(), y.is_cuda

    for rank, (y, on_gpu) in enumerate(tinydist.launch(program, 4, gpus=True).results):
        alone = layer(skew=1, capacity_factor=2.0)
        torch.testing.assert_close(y, dense(alone, tokens().chunk(4)[rank]).detach(), rtol=0, atol=1e-10)
        assert on_gpu


def test_autocast_computes_experts_in_16_bits_and_the_router_in_32():
    moe = layer(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = moe(tokens(torch.float32))
    y.float().sum().backward()
    assert moe.routing.logits.dtype is torch.float32
    assert {p.grad.dtype for p in moe.parameters()} == {torch.float32}
