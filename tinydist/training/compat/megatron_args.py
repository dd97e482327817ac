"""Megatron-LM's command-line arguments (the supported ones), mapped to a plan and a learning-rate schedule.

    world = pp x dp x tp        global batch = micro batch x microbatches x dp

Source: Megatron-LM of June 2023, megatron/arguments.py, microbatches.py, optimizer_param_scheduler.py. Experts: those
of ``train``.
"""

import argparse
import difflib
import math
import sys

import torch
import torch.distributed as dist

from ...plan import Plan
from .. import expert_options

STYLES = ("constant", "linear", "cosine", "inverse-square-root")
NUMBERS = {  # name -> default
    int: dict(
        num_layers=None, hidden_size=None, num_attention_heads=None, seq_length=None, max_position_embeddings=None,
        vocab_size=256, micro_batch_size=None, global_batch_size=None, train_iters=None, seed=1234,
        tensor_model_parallel_size=1, pipeline_model_parallel_size=1, num_layers_per_virtual_pipeline_stage=None,
        expert_model_parallel_size=1, context_parallel_size=1, lr_decay_iters=None, lr_warmup_iters=0,
        save_interval=None, log_interval=100, eval_iters=100, eval_interval=1000, local_rank=None,
        make_vocab_size_divisible_by=128,
    ),
    float: dict(
        lr=None, min_lr=0.0, lr_warmup_fraction=None, weight_decay=0.01, clip_grad=1.0, adam_beta1=0.9,
        adam_beta2=0.999, adam_eps=1e-8, sgd_momentum=0.9, hidden_dropout=0.1, attention_dropout=0.1,
    ),
    str: dict(
        lr_decay_style="linear", optimizer="adam", recompute_granularity=None, save=None, load=None, split="969, 30, 1",
        tokenizer_type=None, vocab_file=None, merge_file=None, data_impl="infer", data_cache_path=None,
        distributed_backend="nccl", DDP_impl="local",
    ),
}  # fmt: skip
FLAGS = (
    "fp16", "bf16", "sequence_parallel", "use_distributed_optimizer", "recompute_activations", "eod_mask_loss",
    "reset_position_ids", "reset_attention_mask", "mmap_warmup", "use_flash_attn",
)  # fmt: skip
PATHS = ("data_path", "train_data_path", "valid_data_path", "test_data_path")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(f"pretrain: {message}{self._nearest(message)}")

    def _nearest(self, message):
        wrong = [word for word in message.split() if word.startswith("--")]
        close = difflib.get_close_matches(wrong[0], self._option_string_actions, 1) if wrong else []
        return f"; did you mean {close[0]}" if close else ""


def parse(extra_args_provider=None, defaults=None, words=None):
    """Parse the arguments. Raises ``ValueError`` for invalid ones, with the violated rule."""
    parser = Parser(prog="pretrain", allow_abbrev=False)
    for kind, names in NUMBERS.items():
        for name, default in names.items():
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=kind, default=default)
    expert_options.add_options(parser)
    parser.add_argument("--local_rank", dest="local_rank", type=int)
    for name in FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    for name in PATHS:
        parser.add_argument(f"--{name.replace('_', '-')}", nargs="*")
    parser = extra_args_provider(parser) if extra_args_provider else parser
    args = parser.parse_args(sys.argv[1:] if words is None else words)
    for name, value in (defaults or {}).items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    return validated(args)


def validated(args):
    args.rank, args.world_size = dist.get_rank(), dist.get_world_size()
    for holds, words in rules(args):
        if not holds:
            raise ValueError(f"pretrain: {words}")
    model = args.tensor_model_parallel_size * args.pipeline_model_parallel_size
    args.data_parallel_size = args.world_size // model
    args.global_batch_size = args.global_batch_size or args.micro_batch_size * args.data_parallel_size
    args.recompute_granularity = "selective" if args.recompute_activations else args.recompute_granularity
    args.num_microbatches = num_microbatches(args.global_batch_size, args.micro_batch_size, args.data_parallel_size)
    return args


def rules(args):
    needed = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings")
    for name in (*needed, "micro_batch_size", "train_iters", "lr"):
        yield getattr(args, name) is not None, f"--{name.replace('_', '-')} must be given"
    tp, pp, world = args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.world_size
    yield world % (tp * pp) == 0, f"world size ({world}) must be divisible by tensor ({tp}) x pipeline ({pp})"
    context, length = args.max_position_embeddings, args.seq_length
    yield context >= length, f"--max-position-embeddings({context}) must be --seq-length({length}) or more"
    yield not (args.fp16 and args.bf16), "--fp16 and --bf16 are mutually exclusive: a parameter has one dtype"
    yield args.lr_decay_style in STYLES, f"--lr-decay-style must be one of {', '.join(STYLES)}"
    yield args.optimizer in ("adam", "sgd"), f"--optimizer must be adam or sgd, got {args.optimizer}"
    once = args.lr_warmup_fraction is None or not args.lr_warmup_iters
    yield once, "--lr-warmup-fraction and --lr-warmup-iters are mutually exclusive"
    resets = args.reset_position_ids or args.reset_attention_mask
    yield not resets, "--reset-position-ids and --reset-attention-mask: not supported, attention is purely causal"
    words = f"--context-parallel-size({args.context_parallel_size}) must be 1: a program brings whole sequences here"
    yield args.context_parallel_size == 1, words
    yield from expert_options.rules(args)
    drops = args.hidden_dropout, args.attention_dropout
    yield (
        drops[0] == drops[1],
        f"--hidden-dropout={drops[0]} must equal --attention-dropout={drops[1]}",
    )


def num_microbatches(global_batch, micro_batch, data_parallel):
    """Of one data rank in a step."""
    if global_batch % (micro_batch * data_parallel):
        product = f"micro batch size ({micro_batch}) x data parallel size ({data_parallel})"
        raise ValueError(f"pretrain: global batch size ({global_batch}) must be divisible by {product}")
    return global_batch // (micro_batch * data_parallel)


def plan_of(args):
    chunks = 1
    if args.num_layers_per_virtual_pipeline_stage:
        chunks = args.num_layers // args.pipeline_model_parallel_size // args.num_layers_per_virtual_pipeline_stage
    return Plan(
        pp=args.pipeline_model_parallel_size,
        dp=args.data_parallel_size,
        tp=args.tensor_model_parallel_size,
        ep=args.expert_model_parallel_size,
        zero=1 if args.use_distributed_optimizer else 0,
        microbatches=args.num_microbatches,
        schedule="interleaved" if chunks > 1 else "1f1b",
        chunks=chunks,
        sequence_parallel="regather" if args.sequence_parallel and args.tensor_model_parallel_size > 1 else None,
        recompute=args.recompute_granularity or "none",
        precision="fp16" if args.fp16 else "bf16" if args.bf16 else "fp32",
        max_norm=args.clip_grad or None,
    )


def optimizer_of(args):
    """The class, and its options."""
    common = dict(lr=args.lr, weight_decay=args.weight_decay)
    if args.optimizer == "sgd":
        return torch.optim.SGD, common | {"momentum": args.sgd_momentum}
    return torch.optim.AdamW, common | {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_eps}


def rate_of(args, step):
    """After ``step`` steps that were taken. Megatron counts samples: so do the divisions here."""
    samples, decay = step * args.global_batch_size, (args.lr_decay_iters or args.train_iters) * args.global_batch_size
    fraction = args.lr_warmup_fraction
    warmup = args.lr_warmup_iters * args.global_batch_size if fraction is None else fraction * decay
    if warmup > 0 and samples <= warmup:
        return args.lr * samples / warmup
    if args.lr_decay_style == "constant":
        return args.lr
    if samples > decay:
        return args.min_lr
    if args.lr_decay_style == "inverse-square-root":
        return max(args.min_lr, args.lr * max(warmup, 1) ** 0.5 / max(samples, 1) ** 0.5)
    gone = (samples - warmup) / (decay - warmup)
    left = 1.0 - gone if args.lr_decay_style == "linear" else 0.5 * (math.cos(math.pi * gone) + 1.0)
    return args.min_lr + left * (args.lr - args.min_lr)
