"""Vocabulary-parallel cross-entropy: each rank has the logits of a part of the vocabulary, none has all.

    loss = log sum exp z - z[target]

    needed of each token                 the largest logit, so that exp does not overflow      all-reduce, maximum
                                         sum exp, z[target] (whose rank has it; 0 elsewhere)   all-reduce, sum

2 or 3 values per token are sent instead of V. (Megatron-LM uses three all-reduces.) Backward sends nothing: the
gradient of a rank's logits is exp(z - log sum exp), minus one at the target, if it is here.

Logits may be in 16 bits: exponentials and sums are in fp32. Saved for backward are the logits, and one value per token.
With label smoothing e, the target is 1 - e at the token and e/V everywhere: one more sum is sent.
Source: Shoeybi et al., Megatron-LM, 2019, section 3; megatron/core/tensor_parallel/cross_entropy.py.
"""

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..rules import floats, integer, one_of, part, stated, validate, within
from .cuts import Cut
from .embedding import local
from .layouts import Replicated

token = stated("a 64-bit integer", lambda value: integer(value) and -(2**63) <= value < 2**63)


@validate(logits=floats, targets=torch.Tensor, vocab_size=within(1, 2**31), group=dist.ProcessGroup, ignore_index=token)
@validate(label_smoothing=part, reduction=one_of(["mean", "sum", "none"]))
def cross_entropy(logits, targets, vocab_size, group=None, *, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """What ``F.cross_entropy`` gives for the logits of all ``vocab_size`` tokens, on every rank.

    logits:   [N, V/t], this rank's; as ColumnParallelLinear cuts them, which gives the first ranks one more if need be.
    targets:  [N], tokens of the whole vocabulary; those that are ``ignore_index`` do not count.
    """
    cut = Cut.among(Replicated(group), 0, vocab_size)
    if logits.ndim != 2 or targets.shape != logits.shape[:1] or logits.shape[1] != len(cut.places):
        raise ValueError(
            f"cross_entropy: expected targets [N] and logits [N, {len(cut.places)}], of {vocab_size} on {cut.parts} "
            f"ranks, got {list(targets.shape)} and {list(logits.shape)}"
        )
    counts = targets != ignore_index
    losses = Losses.apply(logits, targets.masked_fill(~counts, 0), cut, group, float(label_smoothing))
    losses = losses.masked_fill(~counts, 0)
    if reduction == "none":
        return losses.to(logits.dtype)
    total = losses.sum()
    return (total / counts.sum() if reduction == "mean" else total).to(logits.dtype)


class Losses(Function):
    """[N], one for each token, in fp32 at least."""

    @staticmethod
    def forward(ctx, logits, targets, cut, group, smoothing):
        wide = torch.promote_types(logits.dtype, torch.float32)
        rows, elsewhere = local(targets, cut)
        largest = logits.amax(-1).to(wide)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        exponentials = (logits - largest[:, None]).exp_()  # [N, V/t], the only one in fp32
        target = logits.gather(1, rows[:, None])[:, 0].to(wide).masked_fill(elsewhere, 0)
        sums = torch.stack([exponentials.sum(-1), target, *([logits.sum(-1, dtype=wide)] if smoothing else [])])
        dist.all_reduce(sums, group=group)
        log_sum = sums[0].log() + largest
        loss = log_sum - (1 - smoothing) * sums[1]
        ctx.save_for_backward(logits, log_sum, rows, elsewhere)
        ctx.smoothing, ctx.size = smoothing, cut.size
        return loss - smoothing * sums[2] / cut.size if smoothing else loss

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        logits, log_sum, rows, elsewhere = ctx.saved_tensors
        chances = (logits - log_sum[:, None]).exp_()  # [N, V/t]
        if ctx.smoothing:
            chances -= ctx.smoothing / ctx.size
        here = (~elsewhere).to(chances.dtype) * (1 - ctx.smoothing)
        chances.scatter_add_(1, rows[:, None], -here[:, None])
        return chances.mul_(gradient[:, None]).to(logits.dtype), None, None, None, None
