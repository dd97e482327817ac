"""What programs hold, against published peaks, and by the rules that each has."""

from dataclasses import replace

import pytest

from tinydist.hardware import find_device
from tinydist.planner import DEEPSPEED, FSDP, MEGATRON_LM, PROGRAMS, TORCHTITAN, Model, Plan, find_model, memory
from tinydist.planner.memory import room
from tinydist.planner.published import MEGATRON_DEEPSPEED

GIB = 2**30

# GiB at the peak of the highest rank, by torch.cuda.max_memory_allocated: Megatron-LM, 8 x B200, sequences of 4,096
# tokens, the loss fused. Model, layers, its vocabulary padded, tp, pp, dp.
SIMUMAX = "MooreThreads/SimuMax@4dcaae51 docs/b200/b200_release_v1.2_summary.json (read)"
PEAKS = [
    ("Llama 3 70B", 12, 128384, 1, 2, 4, 66.55),
    ("Llama 3 70B", 12, 128512, 2, 1, 4, 60.68),
    ("Llama 3 70B", 12, 128512, 4, 1, 2, 39.07),
    ("Llama 3 405B", 4, 128512, 2, 1, 4, 81.59),
    ("Llama 3 405B", 4, 129024, 8, 1, 1, 38.57),
]


def of_simumax(name, layers, vocabulary, tp, pp, dp):
    heads = dict(kv_heads=16) if name == "Llama 3 405B" else {}  # as they ran it
    model = replace(find_model(name), layers=layers, tokens=4096, vocabulary=vocabulary, **heads)
    how = dict(zero=int(dp > 1), sequence_parallel="regather" if tp > 1 else None, precision="bf16")
    return model, Plan(tp=tp, pp=pp, dp=dp, microbatches=4, **how)


@pytest.mark.parametrize("name, layers, vocabulary, tp, pp, dp, peak", PEAKS)
def test_megatron_holds_what_was_measured(name, layers, vocabulary, tp, pp, dp, peak):
    model, plan = of_simumax(name, layers, vocabulary, tp, pp, dp)
    program = replace(MEGATRON_LM, loss="fused")
    found = max(memory(model, plan, rank, program).held for rank in {0, pp - 1})
    assert found / GIB == pytest.approx(peak, rel=0.0025)


def test_without_the_places_of_weight_gradients_it_would_hold_less_than_was_measured():
    model, plan = of_simumax(*PEAKS[3][:-1])
    without = replace(MEGATRON_LM, loss="fused", holds=replace(MEGATRON_LM.holds, in_flight=0))
    assert memory(model, plan, 0, without).held / GIB < 0.95 * PEAKS[3][-1]


# BLOOM's trials on A100s of 80 GB (bigscience@9e64edec train/tr11-176B-ml/chronicles-prequel.md lines 792, 793, 918,
# read): one in bf16 has no room for the fp32 gradients of BF16_Optimizer.
TRIAL = dict(zero=1, recompute="full", precision="fp16")


def trial(layers, width, precision="fp16", **plan):
    model = Model("a trial", layers, width, 64, 250880, 2048, positions="alibi", dropout=0.1)
    program = replace(MEGATRON_DEEPSPEED, loss="cross_entropy")
    return memory(model, Plan(**TRIAL | plan | {"precision": precision}), 0, program).total


def test_trials_of_bloom_that_ran_out_of_memory_do_not_fit():
    has = room(find_device("A100 80GB"))
    assert trial(72, 14336, tp=8, dp=48, microbatches=42) > has
    assert trial(72, 14336, tp=8, dp=24, pp=2, microbatch=2, microbatches=42) < has
    deep = dict(tp=4, dp=16, pp=6, microbatches=128)
    assert trial(100, 12288, **deep) < has < trial(100, 12288, "bf16", **deep)


# Runs of llm-foundry that ran, those of which the planner expects most of their device: layers, width, heads, tokens;
# GPUs, sequences of a microbatch, choices.
FOUNDRY = "mosaicml/llm-foundry@8c8dd48f scripts/train/benchmarking/README.md, lines 100, 123, 244, 272, 293 (read)"
RAN = [
    ("H100", (48, 7168, 56, 8192), 8, 1, dict(recompute="full", microbatches=21)),
    ("H100", (32, 2560, 20, 8192), 8, 3, dict(microbatches=6)),
    ("A100 40GB", (40, 5120, 40, 512), 8, 16, dict(recompute="full", microbatches=16)),
    ("A100 40GB", (24, 2048, 16, 2048), 32, 10, dict()),
    ("A100 40GB", (24, 1024, 16, 2048), 64, 18, dict()),
]


@pytest.mark.parametrize("device, sizes, gpus, b, choices", RAN)
def test_fsdp_runs_that_ran_fit(device, sizes, gpus, b, choices):
    *sizes, tokens = sizes
    model = Model("an MPT", *sizes, 50368, tokens)
    plan = Plan(dp=gpus, zero=3, microbatch=b, precision="bf16", **choices)
    share = memory(model, plan, 0, FSDP).total / room(find_device(device))
    assert 0.85 < share <= 1


# Rules.

GPT = find_model("Megatron 7.5B")


def terms(program, model=GPT, rank=0, **plan):
    return memory(model, Plan(**{"precision": "bf16", "recompute": "full"} | plan), rank, program).terms


def states(program, **plan):
    """Bytes a parameter."""
    found = terms(program, **plan)
    return sum(found[what] for what in ("parameters", "gradients", "optimizer states")) / GPT.parameters


@pytest.mark.parametrize(
    "program, plan, bytes_each",
    [
        (MEGATRON_LM, dict(), 18),
        (MEGATRON_LM, dict(dp=8, zero=1), 6 + 12 / 8),
        (MEGATRON_LM, dict(precision="fp16"), 16),
        (DEEPSPEED, dict(dp=8, zero=1), 4 + 12 / 8),
        (MEGATRON_DEEPSPEED, dict(dp=8, zero=1), 8 + 12 / 8),
        (DEEPSPEED, dict(dp=8, zero=1, precision="fp16"), 4 + 12 / 8),
        (FSDP, dict(dp=8, zero=3), 16 / 8),
        (FSDP, dict(dp=8, zero=2), 2 + 16 / 8),  # SHARD_GRAD_OP: parameters stay gathered
        (TORCHTITAN, dict(dp=8, zero=3), 16 / 8),
        (FSDP, dict(dp=8, zero=3, precision="fp32"), 16 / 8),
    ],
)
def test_bytes_a_parameter(program, plan, bytes_each):
    assert states(program, **plan) == pytest.approx(bytes_each, rel=1e-9)


def test_fsdp_gathers_two_blocks_and_what_is_outside_of_blocks():
    one, many = (replace(GPT, layers=layers) for layers in (4, 40))
    given = dict(dp=64, zero=3)
    assert terms(FSDP, many, **given)["working"] == terms(FSDP, one, **given)["working"]
    assert terms(FSDP, many, **given)["working"] > 2 * (2 * GPT.dense_layer + GPT.ends)


def test_a_fused_loss_is_smaller():
    held = [terms(replace(MEGATRON_LM, loss=loss), recompute="none")["working"] for loss in ("vocab_parallel", "fused")]
    logits = GPT.tokens * GPT.vocabulary
    assert 0 < held[0] - held[1] <= 4 * logits


def test_deepspeed_keeps_the_outputs_of_stages():
    freed = replace(DEEPSPEED, holds=replace(DEEPSPEED.holds, outputs=False))
    plan = dict(pp=4, dp=8, zero=1, microbatches=8)
    more = terms(DEEPSPEED, **plan)["activations"] - terms(freed, **plan)["activations"]
    assert more == 4 * GPT.tokens * GPT.width * 2
    assert terms(DEEPSPEED, rank=3, **plan) == terms(freed, rank=3, **plan)


STAGES = {"FSDP": (0, 2, 3), "torchtitan": (0, 2, 3)}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_of_more_there_is_never_less(program):
    def held(**plan):
        model = replace(find_model("Llama 3 8B"), tokens=2048)
        return memory(model, Plan(**{"dp": 4, "precision": "bf16", "microbatches": 4} | plan), 0, program).held

    by_stage = [held(zero=zero) for zero in STAGES.get(program.name, (0, 1, 2, 3))]
    assert by_stage == sorted(by_stage, reverse=True) and by_stage[-1] < 0.6 * by_stage[0]
    assert held(microbatch=4, zero=2) > held(microbatch=2, zero=2) > held(zero=2)
    assert held(zero=2) > held(zero=2, recompute="full")
    if program.name != "FSDP":
        assert held() > held(tp=2) > held(tp=4)


def test_a_process_has_98_percent_of_a_gpus_gib():
    for name, gib in {"A100 80GB": 79.15, "A100 40GB": 39.41, "H100": 79.10, "V100": 31.74}.items():
        assert 0.99 * gib <= room(find_device(name)) / GIB <= gib, name
    assert room(find_device("laptop CPU")) == find_device("laptop CPU").memory


def test_what_it_holds_is_checked():
    with pytest.raises(ValueError, match="in_flight"):
        replace(MEGATRON_LM.holds, in_flight=-1)
    with pytest.raises(TypeError, match="holds must be a Holds or None"):
        replace(MEGATRON_LM, holds=18)
