"""Valid calls of ``tinydist.context_parallel``, on two ranks."""

import torch
import torch.distributed as dist
from nonsense.calls import Call

from tinydist import context_parallel
from tinydist.context_parallel import positions, shard_attention, shard_sequence, unshard_sequence
from tinydist.model import GPT, GPTConfig


def call(function, arguments, **options):
    return Call(function, arguments, ranks=2, signed=True, **options)


def parts(**more):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 3, 4) for heads in (4, 2, 2))
    return dict(q=q, k=k, v=v, group=None, causal=True, balanced=True, tokens=6, scale=0.5) | more


def alone():
    """A group of this rank alone."""
    return [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]


def attention(name):
    return call(getattr(context_parallel, name), parts)


def gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=8, context=8, layers=1, heads=2, dim=4))


def loss(**given):
    tokens = torch.zeros(1, 4, dtype=torch.long)
    return shard_attention(**given).loss(tokens, tokens).detach()


CALLS = {
    "positions": call(positions, lambda: dict(tokens=8, group=None, balanced=True)),
    "shard_sequence": call(
        shard_sequence, lambda: dict(tensor=torch.arange(8.0).view(1, 8), group=None, dim=1, balanced=True)
    ),
    "unshard_sequence": call(
        unshard_sequence,
        lambda: dict(tensor=torch.arange(4.0).view(1, 4), group=None, dim=1, balanced=True, tokens=8),
    ),
    "ring_attention": attention("ring_attention"),
    "gather_attention": attention("gather_attention"),
    "ulysses_attention": attention("ulysses_attention"),
    "hybrid_attention": call(context_parallel.hybrid_attention, lambda: parts(within=alone())),
    "shard_attention": call(
        loss, lambda: dict(model=gpt(), group=None, kind="ring", balanced=True, tokens=8, within=None)
    ),
}
REASONS = {}
