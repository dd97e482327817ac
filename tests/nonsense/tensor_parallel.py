"""Valid calls of ``tinydist.tensor_parallel``, on two ranks."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import tensor_parallel
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel import (
    ColumnParallelLinear,
    Replicated,
    RNGTracker,
    RowParallelLinear,
    SequenceParallel,
    ShardedDropout,
    VocabParallelEmbedding,
    clip_grad_norm_,
    gathered,
    shard,
)
from tinydist.tensor_parallel.shard import GPT as TABLE


def gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=8, context=4, layers=1, heads=2, dim=4))


def step(model, **options):
    """Sharded, and a backward: so that what is wrong cannot wait."""
    sharded = shard(model, **options)
    tokens = torch.zeros(1, 4, dtype=torch.long)
    output = sharded(tokens) if options.get("gather_logits") is True else sharded.loss(tokens, tokens)
    output.sum().backward()
    return output.detach()


def backward():
    model = shard(gpt())
    tokens = torch.zeros(1, 4, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    return model


def dropped(**given):
    return ShardedDropout(**given)(torch.ones(3))


def drawn(group):
    with RNGTracker(group).fork():
        return torch.rand(2)


def around(layout, x):
    return layout.leave(layout.enter(x).clone())


def call(function, arguments, **options):
    return Call(function, arguments, ranks=2, signed=True, **options)


CALLS = {
    "ColumnParallelLinear": call(
        lambda **given: ColumnParallelLinear(**given)(torch.ones(1, 2, 4)),
        lambda: dict(linear=nn.Linear(4, 6), layout=Replicated(), entered=False, gather_output=True, cut=None),
    ),
    "RowParallelLinear": call(
        lambda **given: RowParallelLinear(**given)(torch.ones(1, 2, 2)),
        lambda: dict(linear=nn.Linear(4, 6), layout=Replicated()),
    ),
    "VocabParallelEmbedding": call(
        lambda **given: VocabParallelEmbedding(**given)(torch.tensor([[1, 2]])),
        lambda: dict(embedding=nn.Embedding(4, 2), group=None),
    ),
    "ShardedDropout": call(dropped, lambda: dict(dropout=nn.Dropout(0.5), tracker=RNGTracker())),
    "RNGTracker": call(drawn, lambda: dict(group=None)),
    "Replicated": call(
        lambda **given: around(Replicated(**given), torch.ones(1, 2, 3)),
        lambda: dict(group=None, async_grad_reduce=True),
    ),
    "SequenceParallel": call(
        lambda **given: around(SequenceParallel(**given), torch.ones(1, 2, 3)),
        lambda: dict(group=None, async_grad_reduce=True, dim=1, way="regather"),
    ),
    "clip_grad_norm_": call(
        lambda model, **given: clip_grad_norm_(backward() if isinstance(model, GPT) else model, **given),
        lambda: dict(model=gpt(), max_norm=1.0, group=None),
    ),
    "gathered": call(
        lambda model, **given: gathered(shard(model) if isinstance(model, GPT) else model, **given),
        lambda: dict(model=gpt(), group=None, of=lambda parameter: parameter),
    ),
    "cross_entropy": call(
        tensor_parallel.cross_entropy,
        lambda: dict(
            logits=torch.ones(3, 2),
            targets=torch.tensor([0, 1, 3]),
            vocab_size=4,
            group=None,
            ignore_index=-100,
            label_smoothing=0.1,
            reduction="sum",
        ),
    ),
    "shard": call(
        step,
        lambda: dict(
            model=gpt(),
            group=None,
            sequence_parallel="save",
            async_grad_reduce=True,
            gather_logits=False,
            table=dict(TABLE),
        ),
    ),
}
REASONS = {}
