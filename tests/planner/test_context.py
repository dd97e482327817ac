"""Context parallelism: bytes sent by the planner and by a fake run; what a search finds; published rows."""

from dataclasses import replace
from itertools import product

import pytest
from planner.fake_runs import SMALL, model_of, planned, program_of, run

from tinydist.hardware import find_cluster
from tinydist.plan import CONTEXT
from tinydist.planner import MEGATRON_LM, TINYDIST, Plan, evaluate, find_model, search, step_time
from tinydist.planner.buckets import numbers_of
from tinydist.planner.operators import ContextOp, Ring
from tinydist.planner.passes import Operators
from tinydist.planner.published import llama_3_405b

LONG, POD = replace(SMALL, context=1024), find_cluster("H100 node").pod(2)
LLAMA = replace(find_model("Llama 3 8B"), tokens=131072)


def sent(operators):
    """Bytes, by a rank."""
    for each in operators:
        if isinstance(each, Ring):
            yield (each.ranks - 1) * (each.nbytes + each.sums)
        if isinstance(each, ContextOp):
            yield (each.ranks - 1) / each.ranks * each.nbytes


SIZES = [dict(cp=2), dict(cp=4, dp=2, zero=1), dict(cp=2, dp=2, zero=2), dict(cp=4, zero=3)]
FEW = [*zip(SIZES, [*CONTEXT, "ring"])]
MANY = [each for each in product(SIZES, CONTEXT) if each not in FEW]


@pytest.mark.parametrize(
    "sizes, context", [*FEW, *[pytest.param(*each, marks=pytest.mark.exhaustive) for each in MANY]]
)
def test_a_rank_sends_what_the_ledger_has(sizes, context):
    plan, model = planned(2, context=context, **sizes), model_of(LONG)
    found = run(LONG, model, plan).between("step 1", "over")
    block = Operators(model, program_of(LONG), 1, plan.microbatch, None, plan.cp, plan.context)
    states = {0: 2 * 4, 1: 4 + 2, 2: 4 + 2, 3: 4 + 2 + 2}[plan.zero] * numbers_of(model, 1, model.layers, True, True)
    ranks = plan.dp * plan.cp
    expected = model.layers * sum(sent(block.forward() + block.backward())) + states * (ranks - 1) / ranks
    assert sum(found.traffic[0]) == pytest.approx(expected, rel=1e-3)  # buckets are rounded up to equal shards


@pytest.mark.parametrize("program", [MEGATRON_LM, TINYDIST], ids=str)
def test_a_search_cuts_long_sequences(program):
    found = search(LLAMA, POD, 16, program=program, pp=1)
    assert found.best.plan.cp > 1 and {each.plan.context for each in found.fitting} == {*CONTEXT}
    assert all(each.plan.cp == 1 for each in search(replace(LLAMA, tokens=8192), POD, 16, pp=1, tp=8).candidates)


def test_every_rank_computes_its_part():
    ranks = [Plan(tp=8, cp=cp, dp=2 // cp, microbatches=cp, precision="bf16", recompute="full") for cp in (1, 2)]
    one, two = (step_time(LLAMA, plan, POD) for plan in ranks)
    assert one.terms["context group"] == 0 < two.terms["context group"]
    assert two.terms["products"] == pytest.approx(one.terms["products"], rel=0.1)


@pytest.mark.parametrize("row", [*llama_3_405b()], ids=lambda row: row.name)
def test_llama_3_of_405b_is_as_much_too_fast_with_context_parallelism_as_without(row):
    assert 1.1 < row.seconds / evaluate(row.model, row.plan, row.cluster, row.program).seconds < 1.16
