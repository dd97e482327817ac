"""Megatron-LM's functions for training scripts (get_args, get_tokenizer, broadcast_data ...), under their names.

    loss mask      0 after the end of a document, if requested; a microbatch's loss is a mean over the rest
    iterator       sample by sample: of each micro batch x dp consecutive ones, data rank r takes the r-th micro batch

Source: Megatron-LM of June 2023, pretrain_gpt.py, and what it imports.
"""

import enum
import threading
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.utils.data import default_collate

from ...model import GPTConfig
from ...torch_internals import device_of_group
from ..data import Batches, broadcast_data
from ..expert_options import gpt_of
from ..job import open_tokens


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
    """Dummy timers: use the timeline of the run instead."""
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
    """The full model on every rank; ``parallelize`` splits it into stages later."""
    args = get_args()
    return gpt_of(config, args, args.seed)


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
    """All-reduce: the mean of each loss over the data-parallel ranks."""
    averaged = torch.stack([loss.detach().reshape(()) for loss in losses])
    for axis in ("replicate", "shard"):
        dist.all_reduce(averaged, group=of_rank.engine.mesh.get_group(axis))
    return averaged / of_rank.engine.plan.dp


# Data: samples {"text": T + 1 tokens}, masks, one reader per tensor-parallel group.


def get_ltor_masks_and_position_ids(data, eod_token, reset_position_ids, reset_attention_mask, eod_mask_loss):
    """Of tokens [B, T]: who is not seen, bool [1 or B, 1, T, T]; the loss mask, positions [B, T].

    With ``reset_attention_mask`` no token sees another document, with ``reset_position_ids`` each begins at 0. A
    document ends with its ``eod_token``.
    """
    places = torch.arange(data.shape[1], device=data.device)
    ends = data == eod_token
    document = ends.cumsum(1) - ends.long()  # [B, T]: how many ended before
    unseen = (places[None, :] > places[:, None])[None, None]  # [1, 1, T, T]
    if reset_attention_mask:
        unseen = unseen | (document[:, None, :, None] != document[:, None, None, :])
    positions = places.expand_as(data)
    if reset_position_ids:
        after = torch.where(ends, places + 1, 0).cummax(1).values  # where the next document begins
        positions = positions - torch.cat([torch.zeros_like(after[:, :1]), after[:, :-1]], 1)
    mask = (~ends).float() if eod_mask_loss else torch.ones_like(data, dtype=torch.float)
    return unseen, mask, positions


class Windows:
    """A part of all windows of a file of tokens, or of a text, in the order of ``Batches``."""

    def __init__(self, batches, first, samples):
        self.batches, self.first, self.samples = batches, first, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, number):
        batches, place = self.batches, self.first + number
        start = int(batches.windows_at(place, place + 1)[0]) * batches.context
        return {"text": torch.as_tensor(batches.tokens[start : start + batches.context + 1].astype("int64"))}


def build_train_valid_test_datasets(
    data_prefix=None,
    splits_string="969, 30, 1",
    train_valid_test_num_samples=(0, 0, 0),
    seq_length=None,
    seed=0,
    **of_its_files,
):
    """Three datasets. ``data_prefix``: a file of tokens, or a text; None: one that is on every machine."""
    tokens, *_ = open_tokens(data_prefix[0] if data_prefix else None)
    shares = [float(part) for part in splits_string.split(",")]
    ends = [round(len(tokens) * sum(shares[: number + 1]) / sum(shares)) for number in range(len(shares))]
    parts = [tokens[first:last] for first, last in zip([0, *ends], ends)]
    return tuple(
        Windows(Batches(part, 1, seq_length, seed), 0, samples) if samples and len(part) > seq_length else None
        for part, samples in zip(parts, train_valid_test_num_samples)
    )


def iterator(dataset, micro_batch, rank, ranks, consumed=0):
    """The micro batches of data rank ``rank``, from the sample after ``consumed`` on."""
    for start in range(consumed, len(dataset) - micro_batch * ranks + 1, micro_batch * ranks):
        first = start + rank * micro_batch
        yield default_collate([dataset[number] for number in range(first, first + micro_batch)])
