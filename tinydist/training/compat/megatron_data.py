"""Data as programs in Megatron-LM's shape ask for it: samples {"text": T + 1 tokens}, masks, one reader a tensor group.

    loss mask      0 after the end of a document, if it is asked for; a microbatch's loss is a mean over what is left
    iterator       sample by sample: of each micro batch x dp in a row, data rank r takes the r-th micro batch

Source: Megatron-LM of June 2023, megatron/utils.py, data/data_samplers.py.
"""

import torch
from torch.utils.data import default_collate

from ..data import Batches
from ..job import open_tokens


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
    tokens, _ = open_tokens(data_prefix[0] if data_prefix else None)
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
