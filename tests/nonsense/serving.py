"""Valid calls of ``tinydist.serving``."""

import torch
from nonsense.calls import Call

from tinydist import serving
from tinydist.attention import Decoder, DecoderConfig, attention
from tinydist.serving import BlockPool, BlockTable, Continuous, Engine, Orca, Request, Scheduler, Static


def small():
    torch.manual_seed(0)
    return Decoder(DecoderConfig(vocab_size=16, layers=1, heads=2, kv_heads=1, dim=8))


def table(**given):
    return BlockTable(BlockPool(4, 2), **given)


def sizes(pool):
    return [pool.blocks, pool.block_size, pool.allocate()]


def asked():
    return Request([1, 2], 3)


def steps(policy):
    """How many until two are served."""
    scheduler = Scheduler(policy, BlockPool(16, 4))
    for each in (asked(), asked()):
        scheduler.add(each)
    for step in range(100):
        if scheduler.idle:
            return step
        scheduler.update(scheduler.step(), lambda ready: [0] * len(ready))


CALLS = {
    "BlockPool": Call(
        lambda **given: sizes(BlockPool(**given)), lambda: dict(blocks=4, block_size=2, prefix_cache=True)
    ),
    "BlockPool.reserve": Call(BlockPool(4, 2).reserve, lambda: dict(number=0)),
    "BlockTable": Call(
        lambda **given: BlockTable(**given).grow(1), lambda: dict(pool=BlockPool(4, 2), salt="a"), fits=("salt",)
    ),
    "BlockTable.grow": Call(lambda **given: table().grow(**given), lambda: dict(tokens=3)),
    "BlockTable.reserve": Call(lambda **given: table().reserve(**given), lambda: dict(tokens=3)),
    "Continuous": Call(lambda **given: steps(Continuous(**given)), lambda: dict(slots=2, budget=8, chunked=True)),
    "Engine": Call(
        lambda **given: Engine(**given).run([asked()]),
        lambda: dict(model=small(), policy=Static(2), blocks=8, block_size=2, prefix_cache=True, attend=attention),
    ),
    "Engine.add": Call(lambda request: Engine(small()).add(request).new, lambda: dict(request=asked())),
    "Engine.run": Call(lambda requests: Engine(small()).run(requests), lambda: dict(requests=[asked()])),
    "Engine.stream": Call(lambda request: [*Engine(small()).stream(request)], lambda: dict(request=asked())),
    "Orca": Call(lambda **given: steps(Orca(**given)), lambda: dict(slots=2, reserve=16)),
    "PagedCaches": Call(
        lambda **given: serving.PagedCaches(**given).nbytes,
        lambda: dict(model=small(), pool=BlockPool(4, 2), attend=attention),
    ),
    "Request": Call(
        lambda **given: Engine(small(), blocks=8, block_size=2).run([Request(**given)]),
        lambda: dict(
            prompt=[1, 2], max_new=3, arrival=1.0, seed=1, temperature=1.0, top_k=3, top_p=0.9, stop=[2], n=2, salt="a"
        ),
        fits=("salt",),
    ),
    "Scheduler": Call(
        lambda **given: Scheduler(**given).add(asked()).new, lambda: dict(policy=Static(2), pool=BlockPool(4, 2))
    ),
    "Scheduler.add": Call(
        lambda request: Scheduler(Static(2), BlockPool(4, 2)).add(request).new, lambda: dict(request=asked())
    ),
    "Static": Call(lambda **given: steps(Static(**given)), lambda: dict(slots=2, reserve="exact")),
    "paged_attention": Call(
        serving.paged_attention,
        lambda: dict(
            q=torch.ones(1, 2, 1, 4),
            keys=torch.ones(3, 1, 2, 4),
            values=torch.ones(3, 1, 2, 4),
            tables=[[2, 0]],
            past=[3],
            window=2,
            scale=0.5,
        ),
        signed=True,
    ),
}
REASONS = {
    "OutOfBlocks": "an error",
    "Policy": "what policies are made from",
    **dict.fromkeys(["Sequence", "Served", "Step"], "what a scheduler makes"),
}
