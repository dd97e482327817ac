"""The flags that switch a plan on, as one types them: of a command line, a configuration file, or ds_config.

Each name was read in the source that programs.py names. Sizes of the model and what the plan leaves open, the learning
rate say, are not among them.
"""

import json

from ..plan_options import options_of
from .program_limits import ends_counted, layers_per_stage

GRANULARITY = {
    "none": [],
    "selective": ["--recompute-activations"],
    "full": ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"],
}
COUNTED = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
MEGATRON_FSDP = {2: "optim_grads", 3: "optim_grads_params"}
STRATEGY = {0: "NO_SHARD", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}
CP_COMM_TYPE = {"ring": "p2p", "gather": "all_gather", "ulysses": "a2a"}
RESHARD = {0: "default", 1: "never", 2: "never", 3: "always"}
SCHEDULE = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}


def none(program, plan, model):
    return f"{program} has no flags"


def megatron_lm(program, plan, model):
    """Arguments of pretrain_gpt.py."""
    words = [f"--tensor-model-parallel-size {plan.tp}", f"--pipeline-model-parallel-size {plan.pp}"]
    words += [f"--micro-batch-size {plan.microbatch}", f"--global-batch-size {plan.batch}", f"--{plan.precision}"]
    ends = ends_counted(plan, model)
    words += COUNTED[:ends] if plan.pp > 1 else ()
    if plan.chunks > 1:
        words += [f"--num-layers-per-virtual-pipeline-stage {(model.layers + ends) // plan.stages}"]
    words += ["--sequence-parallel"] * bool(plan.sequence_parallel)
    if plan.cp > 1:
        words += [f"--context-parallel-size {plan.cp} --cp-comm-type {CP_COMM_TYPE[plan.context]}"]
    if model.experts:
        words += [f"--expert-model-parallel-size {plan.ep} --moe-token-dispatcher-type alltoall --moe-grouped-gemm"]
    words += GRANULARITY[plan.recompute]
    words += ["--use-distributed-optimizer"] * (plan.zero > 0)
    if plan.zero > 1:
        words += [f"--use-megatron-fsdp --data-parallel-sharding-strategy {MEGATRON_FSDP[plan.zero]}"]
        words += ["--ckpt-format fsdp_dtensor"]
    words += [f"--num-distributed-optimizer-instances {plan.replicas}"] * (plan.zero > 0 and plan.replicas > 1)
    if plan.overlap_comm and plan.dp * plan.cp > 1:  # without the second, all are gathered after the optimizer's step;
        # Megatron-FSDP sets it itself where it shards them (core 0.16.1, fsdp/src/megatron_fsdp/megatron_fsdp.py)
        words += ["--overlap-grad-reduce"] + ["--overlap-param-gather"] * plan.overlap_param_gather
    words += [f"--attention-backend {'flash' if program.flash else 'unfused'}"] + ["--fp8-format hybrid"] * program.fp8
    return " ".join(["pretrain_gpt.py", *words])


def deepspeed(program, plan, model):
    """The keys of ds_config; and after it what the model's code says."""
    zero = {"stage": plan.zero, "overlap_comm": plan.overlap_comm}
    zero |= {"mics_shard_size": plan.shard} if plan.zero and plan.replicas > 1 else {}
    config = {
        "train_batch_size": plan.batch,
        "train_micro_batch_size_per_gpu": plan.microbatch,
        "gradient_accumulation_steps": plan.microbatches,
        plan.precision: {"enabled": True},
        "zero_optimization": zero,
    }
    if plan.cp > 1:
        config |= {"sequence_parallel_size": plan.cp, "data_parallel_size": plan.dp}
    if plan.tp > 1 and plan.pp == 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    return "\n".join([json.dumps(config, indent=2), *in_code(program, plan)])


def in_code(program, plan):
    if plan.pp > 1:
        sizes = f"num_pp={plan.pp}, num_mp={plan.tp}, num_dp={plan.dp}"
        again = ", activation_checkpoint_interval=1" * (plan.recompute == "full")
        yield f"PipelineModule(layers, topology=PipeModelDataParallelTopology({sizes}){again})"
    elif plan.recompute == "full":
        yield "model.gradient_checkpointing_enable()"
    if plan.cp > 1:
        yield f"UlyssesSPAttentionHF.register_with_transformers(..., sequence_parallel_size={plan.cp})"
    if program.compiled:
        yield "engine.compile()"


def fsdp(program, plan, model):
    """YAML of llm-foundry."""
    again = str(plan.recompute == "full").lower()
    lines = [f"global_train_batch_size: {plan.batch}", f"device_train_microbatch_size: {plan.microbatch}"]
    lines += ["compile_config: {}"] * program.compiled
    lines += [f"precision: amp_{'fp8' if program.fp8 else plan.precision}", "fsdp_config:"]
    lines += [f"  sharding_strategy: {STRATEGY[plan.zero]}", f"  activation_checkpointing: {again}"]
    if plan.zero and plan.replicas > 1:
        lines += [f"  data_parallel_shard_degree: {plan.shard}", f"  data_parallel_replicate_degree: {plan.replicas}"]
    return "\n".join(lines)


def torchtitan(program, plan, model):
    """Options of run_train.sh. They still work at that commit; a configuration in Python has the same names."""
    degree, tokens = "--parallelism.{}_degree {}".format, plan.microbatch * model.tokens
    words = [degree("data_parallel_shard", plan.shard), degree("data_parallel_replicate", plan.replicas)]
    words += [degree("tensor_parallel", plan.tp), degree("pipeline_parallel", plan.pp)]
    words += [degree("context_parallel", plan.cp) + " --parallelism.spmd_backend spmd_types"] * (plan.cp > 1)
    words += [f"--parallelism.fsdp_reshard_after_forward {RESHARD[plan.zero]}"]
    words += ["--parallelism.no-enable_sequence_parallel"] * (plan.tp > 1 and not plan.sequence_parallel)
    if plan.pp > 1:
        words += [f"--parallelism.pipeline_parallel_schedule {SCHEDULE[plan.schedule]}"]
        words += [f"--parallelism.pipeline_parallel_layers_per_stage {layers_per_stage(plan, model)}"]
        words += [f"--parallelism.num_pp_microbatches {plan.microbatches}"]
    words += [f"--training.max_context_length {model.tokens}"]
    words += [f"--training.num_tokens_per_microbatch_per_dp_rank {tokens}"]
    words += [f"--training.num_tokens_per_train_step {plan.batch * model.tokens}"]
    words += ["--compile.enable"] * program.compiled
    again = {"none": "none", "per_op": "selective", "full": "full"}[plan.recompute]
    fp8 = "\n# in the configuration: Float8LinearConverter.Config(model_compile_enabled=True)" * program.fp8
    return " ".join(["./run_train.sh", *words, f"activation-checkpoint:{again}"]) + fp8


def tinydist(program, plan, model):
    """Of ``python -m tinydist train``: a GPT, whatever the model is."""
    sizes = f"layers={model.layers},dim={model.width},heads={model.heads},context={model.tokens}"
    words = {"--model": sizes} | options_of(plan)
    if model.experts:
        words |= {"--num-experts": model.experts.total, "--moe-router-topk": model.experts.active}
    return " ".join(f"{name} {value}".strip() for name, value in words.items())
