"""Valid calls of ``tinydist.data_parallel``, on two ranks."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import data_parallel
from tinydist.data_parallel import DDP, Bucket, DataParallel, Sampler, hooks


def model():
    torch.manual_seed(0)
    return nn.Linear(2, 2)


def parameters():
    made = list(model().parameters())
    for parameter in made:
        parameter.grad = torch.ones_like(parameter)
    return made


def on_ranks(function, arguments):
    return Call(function, arguments, ranks=2, signed=True)


def trained(module, **options):
    """Made, and a step: so that what is wrong cannot wait."""
    ddp = DDP(module, **options)
    ddp(torch.ones(2, 2)).sum().backward()
    return [parameter.grad for parameter in ddp.parameters()]


def replicated(module, **options):
    made = DataParallel(module, **options)
    return made(torch.ones(2, 2)).sum().backward()


def sampled(samples, epoch=0, **options):
    sampler = Sampler(samples, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def joined(ddp):
    with data_parallel.join(ddp):
        ddp(torch.ones(2, 2)).sum().backward()


def hooked(bucket, share, group):
    hooks.all_reduce(bucket, share, group)()
    return bucket.flat


def compressed(dtype):
    bucket = Bucket(parameters())
    hooks.compressed(dtype)(bucket, 0.5)()
    return bucket.flat


CALLS = {
    "DDP": on_ranks(
        trained,
        lambda: dict(
            module=model(),
            group=None,
            bucket_bytes=2**20,
            find_unused_parameters=False,
            static_graph=True,
            hook=hooks.all_reduce,
            grad_dtype=torch.float32,
        ),
    ),
    "DataParallel": on_ranks(replicated, lambda: dict(module=model(), root=0, group=None)),
    "DataParallel.forward": on_ranks(lambda rows: DataParallel(model())(rows), lambda: dict(rows=torch.ones(4, 2))),
    "Bucket": Call(Bucket, lambda: dict(parameters=parameters())),
    "in_buckets": Call(
        data_parallel.in_buckets, lambda: dict(parameters=parameters(), size=100, first=10), signed=True
    ),
    "unused": Call(
        data_parallel.unused,
        lambda: dict(parameters=parameters(), output=torch.ones(2)),
        signed=True,
        kept=("output",),  # of any structure
    ),
    "Sampler": on_ranks(sampled, lambda: dict(samples=7, epoch=1, group=None, shuffle=True, seed=3, drop_last=False)),
    "shard_batch": on_ranks(
        data_parallel.shard_batch, lambda: dict(batch=[torch.ones(4, 2), torch.ones(4)], group=None)
    ),
    "sample_weight": on_ranks(data_parallel.sample_weight, lambda: dict(count=3, group=None)),
    "average_each": on_ranks(data_parallel.average_each, lambda: dict(parameters=parameters(), group=None)),
    "average_flat": on_ranks(data_parallel.average_flat, lambda: dict(parameters=parameters(), group=None)),
    "join": on_ranks(joined, lambda: dict(ddp=DDP(model()))),
    "hooks.all_reduce": on_ranks(hooked, lambda: dict(bucket=Bucket(parameters()), share=0.5, group=None)),
    "hooks.compressed": on_ranks(compressed, lambda: dict(dtype=torch.bfloat16)),
}
REASONS = {}
