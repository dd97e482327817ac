"""What programs in Megatron-LM's shape call: of the arguments, the tensor group, the data ranks. By its names.

Source: Megatron-LM of June 2023, pretrain_gpt.py, and what it imports.
"""

import enum
import threading
from types import SimpleNamespace

import torch
import torch.distributed as dist

from ...model import GPT, GPTConfig
from ...torch_internals import device_of_group
from ..data import broadcast_data


class OfRank(threading.local):
    """What a program asks for by a function without arguments."""

    args = engine = None


of_rank = OfRank()
ModelType = enum.Enum("ModelType", ["encoder_or_decoder"])


def get_args():
    if of_rank.args is None:
        raise RuntimeError("get_args() called before pretrain() parsed the arguments")
    return of_rank.args


def get_tokenizer():
    """Bytes, of which 0 ends a document."""
    return SimpleNamespace(eod=0, vocab_size=get_args().vocab_size)


def get_timers():
    """Timers that nobody reads: a run has a timeline."""
    return lambda name, log_level=0: SimpleNamespace(start=lambda **_: None, stop=lambda **_: None)


def print_rank_0(message):
    if dist.get_rank() == 0:
        print(message, flush=True)


def core_transformer_config_from_args(args):
    return GPTConfig(
        vocab_size=args.vocab_size,
        context=args.max_position_embeddings,
        layers=args.num_layers,
        heads=args.num_attention_heads,
        dim=args.hidden_size,
        dropout=args.hidden_dropout,
    )


def GPTModel(config, num_tokentypes=0, parallel_output=True, pre_process=True, post_process=True):
    """All of it on every rank, whatever its stage: pipelines are cut later."""
    return GPT(config)


def broadcast(keys, data, datatype):
    """Megatron's ``broadcast_data``: of the tensor group's rank 0, which alone has ``data``."""

    def read():
        wrong = [key for key in keys if data[key].dtype != datatype]
        if wrong:
            raise ValueError(f"broadcast_data: {wrong[0]} must be {datatype}, got {data[wrong[0]].dtype}")
        return {key: data[key] for key in keys}

    return {key: each.to(device_of_group()) for key, each in broadcast_data(read, tensor_group()).items()}


def tensor_group():
    return of_rank.engine.mesh.get_group("tp")


tensor_parallel = SimpleNamespace(broadcast_data=broadcast)


def average_losses_across_data_parallel_group(losses):
    """The mean of each over data ranks, of which every one has its own."""
    averaged = torch.stack([loss.detach().reshape(()) for loss in losses])
    for axis in ("replicate", "shard"):
        dist.all_reduce(averaged, group=of_rank.engine.mesh.get_group(axis))
    return averaged / of_rank.engine.plan.dp
