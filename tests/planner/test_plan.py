"""Plans, and the equation of each that makes no sense."""

import pytest

from tinydist.planner import Plan, check, find_model

SMALL = find_model("GPT-2")

REFUSED = {
    r"heads \(12\) must be divisible by tp \(8\)": dict(tp=8),
    r"a stage has 1 or more layers, but pp\(13\) x chunks\(1\) = 13 > 12": dict(pp=13),
    r"pp\(2\) x dp\(2\) x tp\(2\) = 8 ranks, but there are 6": dict(pp=2, dp=2, tp=2),
    r"cp is not planned yet": dict(cp=2),
    r"fp8 is not planned yet": dict(precision="fp8"),
    r"offload is not planned yet": dict(offload=True),
}
NO_PLAN = {
    r"dp \(6\) must be divisible by replicate \(4\)": dict(dp=6, zero=1, replicate=4),
    r"ZeRO 0 shards nothing, so replicate = dp, but 2 is not 4": dict(dp=4, replicate=2),
    r"1f1b with 2 stages a rank: interleaved has 2 or more, others 1": dict(pp=2, chunks=2),
    r"sequence parallelism cuts tokens over the ranks of a tensor group, but tp = 1": dict(sequence="regather"),
    r"Plan: pp must be an integer >= 1, got 0": dict(pp=0),
    r"precision must be one of fp32, fp16, bf16, fp8, got 'int4'": dict(precision="int4"),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_a_model_that_cannot_be_dealt_out_so(rule):
    plan = Plan(**REFUSED[rule])
    with pytest.raises(ValueError, match=rule):
        check(plan, SMALL, 6 if "there are 6" in rule else None)


@pytest.mark.parametrize("rule", NO_PLAN)
def test_a_plan_that_is_none(rule):
    with pytest.raises(ValueError, match=rule):
        Plan(**NO_PLAN[rule])


def test_experts_and_latents_are_counted_and_refused():
    with pytest.raises(ValueError, match="Mixtral 8x7B has experts: parameters are counted, time is not"):
        check(Plan(), find_model("Mixtral 8x7B"))


def test_a_batch_that_does_not_divide():
    assert Plan(dp=4, microbatch=2).with_batch(32).microbatches == 4
    with pytest.raises(ValueError, match=r"batch \(30\) must be divisible by dp \(4\) x microbatch \(2\)"):
        Plan(dp=4, microbatch=2).with_batch(30)


def test_layers_are_dealt_out_the_first_stages_have_more():
    assert Plan(pp=5).layers(SMALL) == (3, 3, 2, 2, 2)
    assert Plan(pp=2, chunks=4, schedule="interleaved").layers(SMALL) == (6, 6)
    assert Plan(pp=2, chunks=5, schedule="interleaved").layers(SMALL) == (6, 6)


def test_the_training_plan_has_the_same_names():
    from dataclasses import fields

    from tinydist.training import Plan as Training

    theirs = {field.name for field in fields(Training)} - {"layers", "max_norm", "reduce_each"}
    assert theirs <= {field.name for field in fields(Plan)}
