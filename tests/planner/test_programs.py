"""What one types to run a plan; and what recomputation by operator costs."""

import json
from dataclasses import replace

import pytest

from tinydist.hardware import find_cluster
from tinydist.planner import (
    DEEPSPEED,
    FSDP,
    MEGATRON_LM,
    PROGRAMS,
    TINYDIST,
    TORCHTITAN,
    Plan,
    evaluate,
    find_model,
    find_program,
)

LLAMA = find_model("Llama 3 8B")
PIPED = Plan(pp=4, dp=2, tp=2, zero=1, microbatches=8, chunks=2, schedule="interleaved", precision="bf16")
SHARDED = Plan(dp=8, zero=3, replicate=2, microbatch=2, microbatches=4, recompute="full", precision="bf16")


def has(text, *words):
    return all(f"{each} " in text.replace("\n", " ") + " " for each in words)


def test_flags_of_megatron_lm():
    plan = replace(PIPED, sequence_parallel="regather", recompute="selective")
    text = MEGATRON_LM.options(plan, LLAMA)
    assert has(text, "--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 4", "--sequence-parallel")
    assert has(text, "--num-layers-per-virtual-pipeline-stage 4", "--recompute-activations", "--bf16")
    assert has(text, "--use-distributed-optimizer", "--overlap-grad-reduce")
    assert has(text, "--micro-batch-size 1", "--global-batch-size 16") and "fsdp" not in text
    text = replace(MEGATRON_LM, fp8=True).options(SHARDED, LLAMA)
    assert has(
        text, "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params", "--fp8-format hybrid"
    )
    assert has(text, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    assert has(text, "--num-distributed-optimizer-instances 2")


def test_megatron_lm_gathers_parameters_in_forward_if_the_plan_does():
    def has_flag(**how):
        return has(MEGATRON_LM.options(Plan(dp=8, precision="bf16", **how), LLAMA), "--overlap-param-gather")

    assert has_flag(zero=1, overlap_param_gather=True) and has_flag(zero=2, overlap_param_gather=True)
    assert not has_flag(zero=1) and not has_flag(zero=3) and not has_flag(zero=0)  # of 3 it is the default


def test_the_ends_of_a_model_count_as_layers_where_it_is_not_divisible_otherwise():
    text = MEGATRON_LM.options(Plan(pp=16), find_model("Llama 3 405B"))  # 126 layers
    assert has(text, "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")


def test_flags_of_context_parallelism():
    plan, cut = Plan(dp=2, cp=4, precision="bf16", zero=3), "--parallelism.context_parallel_degree 4"
    assert has(
        MEGATRON_LM.options(plan, LLAMA), "--context-parallel-size 4 --cp-comm-type p2p", "--global-batch-size 2"
    )
    plan = replace(plan, context="gather")
    assert has(MEGATRON_LM.options(plan, LLAMA), "--cp-comm-type all_gather") and has(
        TORCHTITAN.options(plan, LLAMA), cut, "--parallelism.data_parallel_shard_degree 2"
    )
    plan = replace(plan, context="ulysses")
    assert has(MEGATRON_LM.options(plan, LLAMA), "--cp-comm-type a2a")
    assert '"sequence_parallel_size": 4' in DEEPSPEED.options(plan, LLAMA)
    assert has(TINYDIST.options(plan, LLAMA), "--mesh dp=2,cp=4", "--context-parallel ulysses")
    with pytest.raises(ValueError, match="torchtitan cannot run context='ulysses': choose gather"):
        TORCHTITAN.options(plan, LLAMA)
    with pytest.raises(ValueError, match="FSDP cannot run context='ulysses': choose cp = 1"):
        FSDP.options(plan, LLAMA)


def test_keys_of_ds_config():
    config = json.loads(DEEPSPEED.options(replace(SHARDED, tp=2, recompute="none"), LLAMA))
    assert (config["train_batch_size"], config["gradient_accumulation_steps"]) == (64, 4)
    assert config["zero_optimization"] == {"stage": 3, "overlap_comm": True, "mics_shard_size": 4}
    assert config["tensor_parallel"] == {"autotp_size": 2} and config["bf16"] == {"enabled": True}
    text = DEEPSPEED.options(Plan(pp=4, dp=2, tp=2, zero=1, recompute="full"), LLAMA)
    assert "PipeModelDataParallelTopology(num_pp=4, num_mp=2, num_dp=2), activation_checkpoint_interval=1)" in text


def test_configuration_of_fsdp():
    text = FSDP.options(SHARDED, LLAMA)
    assert has(text, "sharding_strategy: FULL_SHARD", "activation_checkpointing: true", "precision: amp_bf16")
    assert has(text, "data_parallel_shard_degree: 4", "data_parallel_replicate_degree: 2")
    assert has(text, "global_train_batch_size: 64", "device_train_microbatch_size: 2")


def test_flags_of_torchtitan():
    text = replace(TORCHTITAN, compiled=True).options(replace(PIPED, recompute="per_op", chunks=3, pp=3), LLAMA)
    assert has(text, "--parallelism.tensor_parallel_degree 2", "--parallelism.pipeline_parallel_degree 3")
    assert has(text, "--parallelism.pipeline_parallel_schedule Interleaved1F1B", "activation-checkpoint:selective")
    assert has(text, "--parallelism.pipeline_parallel_layers_per_stage 4", "--parallelism.no-enable_sequence_parallel")
    assert has(text, "--training.num_tokens_per_train_step 131072", "--compile.enable")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_a_program_is_found_by_its_name_and_names_its_source(program):
    assert find_program(program.name.lower()) is program and len(program.source) > 20


@pytest.mark.parametrize("model", [LLAMA, find_model("GPT-3 175B")], ids=str)
@pytest.mark.parametrize("sequence_parallel", [None, "save"])
def test_recomputation_by_operator_is_between_none_and_full(model, sequence_parallel):
    plan = Plan(dp=8, tp=8, zero=3, sequence_parallel=sequence_parallel, precision="bf16")
    ways = [replace(plan, recompute=each) for each in ("none", "per_op", "full")]
    found = [evaluate(model, each, find_cluster("H100 node").pod(8), TORCHTITAN) for each in ways]
    seconds, held = [each.seconds for each in found], [each.memory.terms["activations"] for each in found]
    assert seconds == sorted(seconds) and held == sorted(held, reverse=True)
    assert seconds[0] < seconds[1] < seconds[2] and held[0] > held[1] > held[2]
