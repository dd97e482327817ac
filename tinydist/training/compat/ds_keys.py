"""The keys of DeepSpeed's ds_config.json: validation, default and effect of each.

    said       in the file; or on the command line, for "auto" (AUTO) and for what the file does not say
    heeded     a Key without `idle`: config.py reads it
    idle       accepted, and nothing comes of it here: `idle` says why; config.ignored lists those of a file
    absent     what would change results and is not here: its rule leaves it off

Sources: DeepSpeed, runtime/config.py, runtime/constants.py, runtime/precision_config.py, runtime/zero/config.py (rules
and defaults); transformers, integrations/deepspeed.py (what fills "auto").
"""

from typing import NamedTuple

from ...precision.loss_scaler import fp32_scale
from ...rules import amount, count, flag, integer, number, one_of, part, positive, stated, whole, within

DEVICES = ("none", "cpu")


class Key(NamedTuple):
    rule: object
    default: object = None
    idle: str = ""


section = stated("an object {...}", lambda value: isinstance(value, dict))
text = stated("a string", lambda value: isinstance(value, str))
off = stated(
    "off: it is not supported here",
    lambda value: isinstance(value, dict) and not value.get("enabled", bool(value)),
)
pair = stated("two numbers >= 0 and < 1", lambda value: _two(value) and all(number(b) and 0 <= b < 1 for b in value))
items = stated("an integer >= 0 (or 5e8)", lambda value: amount(value) and value == int(value))  # as pydantic has it
size = stated("an integer >= 1 (or 5e8)", lambda value: items(value) and value >= 1)
a_list = stated("a list", lambda value: isinstance(value, list))
nullable_text = stated("a string or null", lambda value: value is None or isinstance(value, str))
static_scale = stated("0 (dynamic), or a number up to 3.4e38", lambda n: fp32_scale(n) or (amount(n) and n == 0))
true = stated("true", lambda value: value is True)
false = stated("false: it is not supported here", lambda value: value is False)


a_dtype = stated("fp16, bf16, fp32 or null", lambda value: value is None or one_of(("fp16", "bf16", "fp32"))(value))


def _two(value):
    return isinstance(value, list | tuple) and len(value) == 2


def idle(rule, why, names):
    """Keys that are accepted, and do nothing here."""
    return each(Key(rule, idle=why), names)


def each(key, names):
    return dict.fromkeys(names.split(), key)


def only(value, why):
    return stated(f"{value!r}: {why}", lambda given: given == value and not isinstance(given, bool))


CUTS = "how messages are cut and ordered; results are the same"
PLACES = "where memory is, and when it is freed; results are the same"
BUFFER = "how messages are cut; in DeepSpeed a buffer of so many numbers, two with overlap_comm; results are the same"
ALL_REDUCE = "in DeepSpeed gradients are all-reduced, twice the bytes of the reduce-scatter here; results are the same"
GATHERED = "which parameters stay whole: memory for bytes sent; results are the same"
SAYS = "what is printed, measured or written down"
KERNELS = "which kernel computes it; here it is torch's"
NONE = Key(section, idle=SAYS)
OFF = Key(off, idle="it is off")
OFFLOAD = {
    "device": Key(one_of(DEVICES), "none"),
    "pin_memory": Key(flag, idle=PLACES),
    "buffer_count": Key(items, idle=PLACES),
    "nvme_path": Key(text, idle="it is for a device nvme"),
}
OFFLOAD_PARAM = OFFLOAD | idle(items, PLACES, "buffer_size max_in_cpu")
OFFLOAD_OPTIMIZER = OFFLOAD | {
    **idle(flag, PLACES, "pipeline_read pipeline_write fast_init"),
    **idle(part, PLACES, "ratio cpuadam_cores_perc"),
}
MONITOR = idle(flag, SAYS, "enabled")
REPORTS = {  # sections of what is printed, measured, written down or tuned
    "tensorboard": MONITOR | idle(text, SAYS, "output_path job_name"),
    "csv_monitor": MONITOR | idle(text, SAYS, "output_path job_name"),
    "wandb": MONITOR | idle(nullable_text, SAYS, "group team project"),
    "comet": MONITOR
    | idle(nullable_text, SAYS, "project workspace api_key experiment_name experiment_key mode")
    | {"samples_log_interval": Key(count, idle=SAYS), "online": Key(flag, idle=SAYS)},
    "comms_logger": idle(flag, SAYS, "enabled prof_all verbose debug") | {"prof_ops": Key(a_list, idle=SAYS)},
    "flops_profiler": idle(flag, SAYS, "enabled detailed")
    | idle(integer, SAYS, "profile_step module_depth top_modules")
    | {"output_file": Key(nullable_text, idle=SAYS), "recompute_fwd_factor": Key(amount, idle=SAYS)},
    "timers": {"throughput": idle(flag, SAYS, "enabled synchronized")},
    "aio": idle(count, PLACES, "block_size queue_depth intra_op_parallelism")
    | idle(flag, PLACES, "single_submit overlap_events")
    | {"use_gds": Key(false, idle="it is off")},
    "checkpoint": idle(flag, "checkpoints here are files for any mesh", "load_universal use_node_local_storage")
    | {
        "tag_validation": Key(text, idle=SAYS),
        "parallel_write": {"pipeline_stage": Key(flag, idle=PLACES)},
        "writer": Key(section, idle=PLACES),
    },
    "compile": idle(
        flag,
        KERNELS,
        "deepcompile autoep_non_moe free_activation offload_activation offload_activation_pin_memory "
        "offload_opt_states double_buffer symmetric_memory debug_log offload_parameters sync_before_reduce "
        "sync_after_reduce sync_before_allgather sync_after_allgather keep_int_input_tensors keep_all_input_tensors",
    )
    | {"free_activation_threshold": Key(items, idle=KERNELS), "passes": Key(a_list, idle=KERNELS)},
    "hybrid_engine": {
        "enabled": Key(false, idle="it is off"),
        "max_out_tokens": Key(size, idle="it is off"),
        **idle(integer, "it is off", "inference_tp_size tp_gather_partition_size"),
        **idle(flag, "it is off", "release_inference_cache pin_parameters enable_cuda_graph"),
    },
}

KEYS = {
    "train_batch_size": Key(count),
    "train_micro_batch_size_per_gpu": Key(count),
    "gradient_accumulation_steps": Key(count),
    "gradient_clipping": Key(amount, 1.0),  # 0: none
    "gradient_allreduce_op": Key(only("mean", "gradients are averaged here"), "mean"),
    "optimizer": {
        "type": Key(text, "AdamW"),
        "params": Key(section, {}),
        "legacy_fusion": Key(flag, idle=KERNELS),
    },
    "scheduler": {"type": Key(text), "params": Key(section, {})},
    "fp16": {
        "enabled": Key(flag, False),
        "loss_scale": Key(static_scale, 0),  # 0: dynamic
        "initial_scale_power": Key(within(0, 127), 16),
        "loss_scale_window": Key(count, 1000),
        "hysteresis": Key(count, 2),
        "consecutive_hysteresis": Key(flag, False),
        "min_loss_scale": Key(size, 1),
        "auto_cast": Key(flag, idle="what goes into the model is as the program makes it"),
        "fp16_master_weights_and_grads": Key(false, False),
        "opt_level": Key(text, idle="Apex's"),
    },
    "bf16": {
        "enabled": Key(flag, False),
        "immediate_grad_update": Key(flag, idle="gradients are added in fp32 as they come"),
        "check_grad_overflow": Key(flag, idle="bf16 has the range of fp32: here its gradients are not looked at"),
        "bf16_master_weights_and_grads": Key(false, False),
        "bf16_optimizer_states": Key(false, False),
    },
    "zero_optimization": {
        "stage": Key(within(0, 3), 0),
        "stage3_max_reuse_distance": Key(items, 1e9),
        "offload_optimizer": OFFLOAD_OPTIMIZER,
        "offload_param": OFFLOAD_PARAM,
        "cpu_offload": Key(flag, False),  # before offload_optimizer
        "cpu_offload_param": Key(flag, False),
        **idle(
            flag,
            CUTS,
            "allgather_partitions contiguous_gradients overlap_comm reduce_scatter round_robin_gradients "
            "stage3_allgather_sequential stage3_use_all_reduce_for_fetch_params",
        ),
        "use_multi_rank_bucket_allreduce": Key(flag, idle=ALL_REDUCE),
        **idle(items, CUTS, "allgather_bucket_size"),
        "reduce_bucket_size": Key(size, idle=BUFFER),
        **idle(
            items,
            PLACES,
            "sub_group_size",
        ),
        **idle(
            items,
            GATHERED,
            "stage3_max_live_parameters stage3_model_persistence_threshold stage3_module_granularity_threshold "
            "stage3_param_persistence_threshold stage3_prefetch_bucket_size",
        ),
        **idle(
            flag,
            PLACES,
            "cpu_offload_use_pin_memory enable_sanity_checks ignore_unused_parameters legacy_stage1 "
            "load_from_fp32_weights log_trace_cache_warnings memory_efficient_linear override_module_apply "
            "pipeline_loading_checkpoint",
        ),
        **idle(
            flag,
            "checkpoints here are files for any mesh",
            "elastic_checkpoint stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save",
        ),
        "zero_hpz_partition_size": Key(only(1, "no hpZ here"), 1),
        **{name: Key(false, False) for name in ("zero_quantized_weights", "zero_quantized_gradients")},
        "zero_quantized_nontrainable_weights": Key(false, False),
    },
    "pipeline": {
        "stages": Key(count),
        "activation_checkpoint_interval": Key(whole, 0),  # blocks
        "partition": Key(text, idle="as many blocks in each stage"),
        **idle(flag, CUTS, "pipe_partitioned grad_partitioned"),
        "seed_layers": Key(flag, idle="weights come from the model as it is"),
    },
    "activation_checkpointing": {
        name: Key(rule, idle="it shapes recomputation, which the model, or --recompute, turns on")
        for name, rule in {
            "partition_activations": flag,
            "cpu_checkpointing": flag,
            "contiguous_memory_optimization": flag,
            "number_checkpoints": stated("an integer >= 1, or null", lambda n: n is None or count(n)),
            "synchronize_checkpoint_boundary": flag,
            "profile": flag,
        }.items()
    },
    "zero_allow_untested_optimizer": Key(flag, False),
    "sequence_parallel_size": Key(
        only(1, "sequences are sharded over tensor-parallel groups, by --sequence-parallel"), 1
    ),
    "managed_gradient_accumulation": Key(true, True),
    **each(OFF, "data_efficiency expert_parallel tensor_parallel torch_autocast weight_quantization"),
    **REPORTS,
    "autotuning": NONE,
    **idle(flag, SAYS, "dump_state memory_breakdown wall_clock_breakdown"),
    "steps_per_print": Key(amount, idle=SAYS),
    "log_level": Key(text, idle=SAYS),
    "communication_data_type": Key(a_dtype),  # null: that of the parameters
    "data_types": {
        "grad_accum_dtype": Key(a_dtype),
        "param_dtype": Key(a_dtype, idle="it is that of fp16 and bf16"),
        "buffer_dtype": Key(a_dtype, idle="buffers have that of parameters"),
    },
    "seq_parallel_communication_data_type": Key(text, idle="there is no Ulysses here"),
    "prescale_gradients": Key(flag, idle="a mean is taken as it is"),
    "gradient_predivide_factor": Key(positive, idle="a mean is taken as it is"),
    "dataloader_drop_last": Key(flag, False),
    "disable_allgather": Key(flag, idle=CUTS),
    "zero_force_ds_cpu_optimizer": Key(flag, idle=KERNELS),
    "vocabulary_size": Key(integer, idle=SAYS),
}
ALIASES = {"bfloat16": "bf16"}

INSTEAD = {"max_grad_norm": "gradient_clipping"}  # as DeepSpeed says
REMOVED = each(  # from DeepSpeed itself, and what it says to take instead
    "",
    "compression_training eigenvalue graph_harvesting nebula progressive_layer_drop quantize_training "
    "sparse_attention sparse_gradients",
) | {
    "amp": ": take fp16 or bf16",
    "curriculum_learning": ": take data_efficiency",
    "elasticity": ": set train_batch_size and its parts",
}

# What fills "auto": the option of ``train`` that says it, if there is one, and its value; else transformers' default.
AUTO = {
    "train_batch_size": ("batch", lambda chosen: chosen.batch),
    "train_micro_batch_size_per_gpu": (None, lambda chosen: chosen.batch // (chosen.dp * chosen.microbatches)),
    "gradient_accumulation_steps": ("microbatches", lambda chosen: chosen.microbatches),
    "gradient_clipping": ("max_norm", lambda chosen: 1.0 if chosen.max_norm is None else chosen.max_norm),
    "optimizer.params.lr": ("lr", lambda chosen: chosen.lr),
    "optimizer.params.betas": (None, lambda chosen: [0.9, 0.999]),
    "optimizer.params.eps": (None, lambda chosen: 1e-8),
    "optimizer.params.weight_decay": (None, lambda chosen: 0.0),
    "scheduler.params.warmup_min_lr": (None, lambda chosen: 0.0),
    "scheduler.params.warmup_max_lr": ("lr", lambda chosen: chosen.lr),
    "scheduler.params.warmup_num_steps": ("warmup_steps", lambda chosen: max(1, chosen.warmup_steps)),
    "scheduler.params.total_num_steps": ("steps", lambda chosen: chosen.steps),
    "fp16.enabled": ("precision", lambda chosen: chosen.precision == "fp16"),
    "bf16.enabled": ("precision", lambda chosen: chosen.precision == "bf16"),
    "zero_optimization.stage": ("zero", lambda chosen: chosen.zero),
    "zero_optimization.reduce_bucket_size": (None, lambda chosen: chosen.dim**2),
    "zero_optimization.stage3_prefetch_bucket_size": (None, lambda chosen: int(0.9 * chosen.dim**2)),
    "zero_optimization.stage3_param_persistence_threshold": (None, lambda chosen: 10 * chosen.dim),
    "pipeline.stages": (None, lambda chosen: chosen.pp),
}
