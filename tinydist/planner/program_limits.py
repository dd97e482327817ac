"""What a program cannot run beyond its choices, in words; and where each rule was read.

interleaved     of L layers each of pp ranks has several parts: L, and the microbatches, in equal parts
ZeRO            what holds whole gradients through a pipeline is at most ZeRO 1 for the planner
"""

# All were read at the commit that is named.

# megatron/training/arguments.py: divisible layers, --use-megatron-fsdp, what --overlap-param-gather needs. In
# megatron/core: pipeline_parallel/schedules.py has 1F1B, and interleaved 1F1B of groups of pp microbatches;
# tensor_parallel/layers.py saves the tokens of its rank, and gathers all again in backward;
# transformer/transformer_config.py knows the granularities "full" and "selective". Megatron-FSDP is documented with
# tensor, context and expert parallelism, and not with a pipeline (docs/user-guide/features/megatron_fsdp.md).
# transformer/moe/moe_layer.py: experts with tensor parallelism need sequence parallelism.
MEGATRON_LM = "NVIDIA/Megatron-LM@d98e8a64"
# In deepspeed/runtime, pipe/engine.py: "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism";
# pipe/schedule.py has 1F1B alone; pipe/module.py recomputes whole layers, elsewhere the model's code does;
# zero/mics.py has the replica groups, of stage 3. Stages 1 and 2 all-reduce a bucket, of which each rank keeps its
# part (zero/stage_1_and_2.py, average_tensor, with use_multi_rank_bucket_allreduce, the default), in the dtype of the
# parameters. In module_inject/layers.py tensor parallelism is an all-reduce: tokens are not split.
# sequence_parallel/ulysses_sp.py: Ulysses, of models of transformers, without a pipeline or tensor parallelism.
DEEPSPEED = "deepspeedai/DeepSpeed@edaa7221"
# composer/distributed/mosaic_parallelism.py: NO_SHARD, SHARD_GRAD_OP, FULL_SHARD and two hybrids, for ZeRO 0, 2, 3;
# there is no pipeline. llmfoundry/tp: one strategy of tensor parallelism, which splits MLPs only.
# llmfoundry/models/utils/act_ckpt.py: blocks, or modules by name, are recomputed.
FSDP = "mosaicml/composer@64051888, mosaicml/llm-foundry@8c8dd48f"
# In torchtitan, config/configs.py: the choices; distributed/fsdp.py: fsdp_reshard_after_forward "always" is ZeRO 3,
# "never" ZeRO 2. In a pipeline its default is "never", and torch reduces gradients after the last microbatch and keeps
# parameters until then (pytorch 2.13, distributed/pipelining/stage.py, backward_maybe_with_nosync): ZeRO 1 for the
# planner. models/common/decoder_sharding.py: gathered tokens are an ordinary input, which autograd saves.
# distributed/activation_checkpoint.py: SelectiveAC is per_op, and recomputation has no early stop.
# distributed/pipeline_parallel.py: stages have equally many layers, where embedding and head count as one each.
# distributed/context_parallel/api.py: tokens are cut by torch's context parallelism, which gathers keys and values
# (pytorch 2.13, distributed/tensor/experimental/_context_parallel/_attention.py: rotate_method is "allgather").
TORCHTITAN = "pytorch/torchtitan@b5bcd76c"


def none(plan, model):
    return ()


def megatron_lm(plan, model):
    if plan.pp > 1 and ends_counted(plan, model) is None:
        stages = f"pp ({plan.pp}) x chunks ({plan.chunks})"
        yield f"layers ({model.layers}), with embedding and head ({model.layers + 2}), must be divisible by {stages}"
    if plan.chunks > 1 and plan.microbatches % plan.pp:
        yield f"interleaved 1F1B: microbatches ({plan.microbatches}) must be divisible by pp ({plan.pp})"
    if model.experts and plan.tp > 1 and not plan.sequence_parallel:
        yield f"experts with tp ({plan.tp}) > 1 need sequence_parallel (--sequence-parallel)"
    if plan.overlap_param_gather and not plan.overlap_comm:
        yield "overlap_param_gather (--overlap-param-gather) needs overlap_comm (--overlap-grad-reduce)"


def ends_counted(plan, model):
    """How many of embedding and head count as a layer, so that all stages have equally many; None: there is no way."""
    return next((ends for ends in (0, 1, 2) if (model.layers + ends) % plan.stages == 0), None)


def deepspeed(plan, model):
    if plan.cp > 1 and plan.pp * plan.tp > 1:
        yield f"Ulysses goes with data parallelism alone: pp ({plan.pp}) and tp ({plan.tp}) must be 1 with cp > 1"
    if plan.replicas > 1 and plan.zero in (1, 2):
        yield f"replica groups (MiCS) are for ZeRO 3: replicate ({plan.replicas}) must be 1 with zero = {plan.zero}"
    if plan.overlap_param_gather:
        yield "it gathers parameters after the optimizer's step: overlap_param_gather must be False"


def fsdp(plan, model):
    if plan.pp > 1:
        yield f"it has no pipeline: pp ({plan.pp}) must be 1"
    if plan.tp > 1:
        yield f"its tensor parallelism splits MLPs only: tp ({plan.tp}) must be 1"


def torchtitan(plan, model):
    if plan.precision == "fp16":
        yield "training.mixed_precision_param is bfloat16 or float32: precision='fp16' is neither"
    if plan.pp > 1 and layers_per_stage(plan, model) is None:
        yield f"no number of layers per stage makes {plan.stages} stages of {model.layers} + 2 layers"


def layers_per_stage(plan, model):
    """Of embedding, layers and head, so that there are as many stages as the plan has; None: there is no way."""
    each = -(-(model.layers + 2) // plan.stages)
    return each if -(-(model.layers + 2) // each) == plan.stages else None


def tinydist(plan, model):
    if not plan.overlap_comm:
        yield "gradients are reduced in backward: overlap_comm must be True"
