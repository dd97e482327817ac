"""The references of planning a run beside the planner, and what was published."""

from dataclasses import replace

import pytest

from tinydist.planner import MEGATRON_LM, Model, Plan, find_model, goodput, young
from tinydist.planner.activations import in_flight, shapes_of
from tinydist.planner.memory import moments
from tinydist.planner.shares import layers_of
from tinydist.syllabus.registry import find

GIB = 2**30
PROGRAM = replace(MEGATRON_LM, flash=False)  # attention writes its weights down


def each_case(name, wanted=lambda case: True):
    return pytest.mark.parametrize("case", [case for case in find(name).cases if wanted(case)], ids=str)


def given(case):
    return case.arguments(0)


def result(name, case):
    return find(name).reference(*given(case))


# mfu_of_run


@each_case("mfu_of_run")
def test_flops_are_those_of_the_planner(case):
    sizes, recompute, *_ = given(case)
    how = dict(tied=False, biases=False, inner=sizes.inner, gated=sizes.gated, kv_heads=sizes.kv_heads)
    model = Model("a model", sizes.layers, sizes.width, sizes.heads, sizes.vocabulary, sizes.sequence, **how)
    found = result("mfu_of_run", case)
    assert found["model FLOPs"] * sizes.sequence == pytest.approx(model.flops(1), rel=1e-12)
    assert found["hardware FLOPs"] * sizes.sequence == pytest.approx(model.flops(1, recompute), rel=1e-12)


@each_case("mfu_of_run", lambda case: case.facts and case.facts[0] == "MFU, HFU")
def test_mfu_is_the_published_one_and_counting_the_recomputed_three_times_gives_the_published_hfu(case):
    mfu, hfu = (percent / 100 for percent in case.facts[1])
    found = result("mfu_of_run", case)
    assert found["MFU"] == pytest.approx(mfu, abs=0.002)
    assert found["MFU"] + 3 * (found["HFU"] - found["MFU"]) == pytest.approx(hfu, abs=0.002)
    assert found["HFU"] < hfu - 0.004


@each_case("mfu_of_run", lambda case: case.facts and case.facts[0] == "FLOP/s")
def test_what_is_computed_is_what_was_published(case):
    peak = given(case)[-1]
    assert result("mfu_of_run", case)["HFU"] * peak == pytest.approx(case.facts[1], rel=0.01)


def test_models_are_those_of_the_planner():
    names = {"BLOOM 176B": "BLOOM 176B", "LLaMA 65B": "LLaMA 65B", "Llama 2 70B": "Llama 2 70B"}
    names |= {"Llama 3.1 405B": "Llama 3 405B", "the GPT-3 175B": "GPT-3 175B", "the 22B": "Megatron 22B"}
    for begin, name in names.items():
        model = next(given(case)[0] for case in find("mfu_of_run").cases if str(case).startswith(begin))
        its = find_model(name)
        assert model == (
            its.layers, its.width, its.heads, its.kv_heads, its.inner, its.gated, its.vocabulary, its.tokens
        )  # fmt: skip


# bytes_of_plan


def in_planner(model, plan):
    sizes = model.layers, model.width, model.heads, model.vocabulary, model.sequence
    how = dict(pp=plan.pp, tp=plan.tp, dp=plan.dp, zero=plan.zero)
    how |= dict(microbatches=plan.microbatches, microbatch=plan.microbatch)
    how |= dict(sequence_parallel="regather" if plan.sequence_parallel else None)
    how |= dict(recompute="selective" if plan.selective else "none", precision="bf16")
    return Model("a GPT", *sizes, dropout=0.1), Plan(**how)


@each_case("bytes_of_plan")
def test_states_are_those_of_the_planner(case):
    """When the optimizer steps, all gradients are there."""
    *sizes, rank = given(case)
    model, plan = in_planner(*sizes)
    states, found = moments(model, PROGRAM, plan, rank)
    gradients = next(held for moment, _, held, _ in found if moment == "step")
    its = sum(states.values()) + gradients
    assert result("bytes_of_plan", case)["states"] == pytest.approx(its, rel=0.02)


@each_case("bytes_of_plan")
def test_activations_are_those_of_the_planners_layers(case):
    *sizes, rank = given(case)
    model, plan = in_planner(*sizes)
    a_layer = shapes_of(model, PROGRAM, plan).block
    its = in_flight(plan, rank) * layers_of(plan, model)[rank] * a_layer
    assert result("bytes_of_plan", case)["activations"] == pytest.approx(its, rel=1e-9)
    assert its <= max(live for _, live, _, _ in moments(model, PROGRAM, plan, rank)[1]) * (1 + 1e-9)


def test_activations_are_those_of_the_paper():
    """Korthikanti et al. 2022, figure 1, in GiB."""
    published = {"22B, pp 1, tp 8, dp 1, zero 0, microbatches 1, microbatch 4": 59.25, "1T, pp 64, tp 8, dp 1": 131.25}
    for begin, gib in published.items():
        case = next(case for case in find("bytes_of_plan").cases if str(case).startswith(begin))
        assert result("bytes_of_plan", case)["activations"] / GIB == pytest.approx(gib, abs=0.01)


# impossible_rows


def test_a_row_without_its_wrong_column_is_right():
    """What the solution puts there makes all agree."""
    exercise = find("impossible_rows")
    for case in exercise.cases:
        (rows,) = given(case)
        found = exercise.reference(rows)
        mended = [row._replace(**{found[row.name][0]: found[row.name][1]}) for row in rows if mendable(found, row)]
        assert exercise.reference(mended) == {}


def mendable(found, row):
    return row.name in found and found[row.name][1] is not None


def test_every_column_is_wrong_in_some_row():
    columns = [found[0] for case in find("impossible_rows").cases for found in result("impossible_rows", case).values()]
    assert all(columns.count(name) >= 2 for name in ("tokens", "teraflops", "mfu", "seconds", "all"))


def test_flops_of_published_rows_are_those_of_the_planner():
    names = {"22B": "Megatron 22B", "530B": "Megatron 529.6B", "1T": "Megatron 1008B", "BLOOM": "BLOOM 176B"}
    names |= {each: each for each in ("GPT-3 175B", "LLaMA 65B")} | {"Llama 3.1 405B": "Llama 3 405B"}
    for case in find("impossible_rows").cases:
        for row in given(case)[0]:
            if row.name in names:
                model = find_model(names[row.name])
                assert row.flops == pytest.approx(model.flops(1) / model.tokens, rel=0.005), row.name


# plan_for_budget


@each_case("plan_for_budget", lambda case: find("plan_for_budget").reference(*case.arguments(0)))
def test_interval_and_goodput_are_those_of_the_planner(case):
    plans, _, _, checkpoint, restart, between_failures = given(case)
    found = result("plan_for_budget", case)
    (plan, *_) = (each for each in plans if each.name == found["plan"])
    between = between_failures / plan.gpus
    assert found["interval"] == pytest.approx(young(checkpoint, between))
    assert found["goodput"] == pytest.approx(goodput(checkpoint, between, restart, found["interval"]))


def test_every_place_in_the_list_is_chosen_and_sometimes_none():
    chosen = set()
    for case in find("plan_for_budget").cases:
        names, found = [plan.name for plan in given(case)[0]], result("plan_for_budget", case)
        chosen.add(names.index(found["plan"]) if found else None)
    assert chosen == {0, 1, 2, None}
