"""Valid calls of ``tinydist.serving``."""

import torch
from nonsense.calls import Call

from tinydist import serving
from tinydist.attention import Decoder, DecoderConfig, attention
from tinydist.hardware import find_device, find_link
from tinydist.planner import find_model
from tinydist.serving import (
    ALPACA,
    BlockPool,
    BlockTable,
    ContinuousBatching,
    Lengths,
    LLMEngine,
    Orca,
    Replicas,
    Request,
    Scheduler,
    StaticBatching,
    StepCost,
    TraceRequest,
)

COST = StepCost(find_model("GPT-2"), find_device("H100"))


def small():
    torch.manual_seed(0)
    return Decoder(DecoderConfig(vocab_size=16, layers=1, heads=2, kv_heads=1, dim=8))


def table(**given):
    return BlockTable(BlockPool(4, 2), **given)


def sizes(pool):
    return [pool.num_blocks, pool.block_size, pool.allocate()]


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
        scheduler.update(scheduler.schedule(), lambda ready: [0] * len(ready))


def trace():
    return [TraceRequest(0.0, 5, 3), TraceRequest(0.1, 9, 2)]


def verified():
    p = torch.full((3, 4), 0.25)
    return dict(drafted=torch.tensor([1, 2]), q=p[:2], p=p, draws=torch.full((3,), 0.5))


CALLS = {
    "TraceRequest": Call(TraceRequest, lambda: dict(arrival=0.5, prompt=3, output=4)),
    "Lengths": Call(
        lambda **given: serving.make_trace(Lengths(**given), 3),
        lambda: dict(name="", prompt=9.0, output=8.0, prompt_spread=0.5, output_spread=1.0, longest=20),
        fits=("name",),
    ),
    "Replicas": Call(
        lambda request, **given: Replicas(**given).run([request]),
        lambda: dict(engines=[LLMEngine(small())], route="least left", request=asked()),
    ),
    "StepCost": Call(
        lambda **given: StepCost(**given).seconds([(5, 1)], True),
        lambda: dict(
            model=find_model("GPT-2"),
            device=find_device("H100"),
            dtype="float16",
            ranks=2,
            link=find_link("NVLink 4"),
            paging=0.2,
            overhead=1e-3,
            algorithm="fastest",
            execution="eager",
            vocab_parallel=False,
        ),
    ),
    "StepCost.room": Call(COST.room, lambda: dict(memory=0.9)),
    "StepCost.seconds": Call(COST.seconds, lambda: dict(parts=[(3, 1), (0, 4)], paged=True)),
    "StepCost.bytes_sent": Call(COST.bytes_sent, lambda: dict(tokens=3)),
    "bytes_sent_per_token": Call(
        serving.bytes_sent_per_token, lambda: dict(config=small().config, ranks=2, dtype=torch.float32)
    ),
    "expected_tokens": Call(serving.expected_tokens, lambda: dict(acceptance=0.5, num_draft_tokens=4)),
    "expected_waste": Call(serving.expected_waste, lambda: dict(tokens=78.0, block_size=4)),
    "make_trace": Call(serving.make_trace, lambda: dict(lengths=ALPACA, requests=3, per_second=2.0, seed=1)),
    "replay": Call(
        lambda **given: serving.replay(**given).summary(),
        lambda: dict(policy=ContinuousBatching(4, 16), trace=trace(), pool=BlockPool(16, 4), cost=COST),
    ),
    "speculate": Call(
        lambda **given: serving.speculate(**given).tokens,
        lambda: dict(
            target=small(),
            draft=small(),
            prompt=torch.tensor([1, 2]),
            count=3,
            num_draft_tokens=2,
            temperature=0.5,
            generator=torch.Generator().manual_seed(0),
        ),
    ),
    "speedup": Call(serving.speedup, lambda: dict(acceptance=0.5, num_draft_tokens=4, cost=0.1)),
    "tensor_parallel_engine": Call(
        lambda **given: serving.tensor_parallel_engine(**given).run([asked()]),
        lambda: dict(model=small(), group=None, policy=ContinuousBatching(2, 4), num_blocks=8, block_size=4),
        ranks=2,
    ),
    "verify": Call(serving.verify, verified),
    "waste_in_blocks": Call(serving.waste_in_blocks, lambda: dict(trace=trace(), block_size=4)),
    "BlockPool": Call(
        lambda **given: sizes(BlockPool(**given)), lambda: dict(num_blocks=4, block_size=2, prefix_cache=True)
    ),
    "BlockPool.reserve": Call(BlockPool(4, 2).reserve, lambda: dict(number=0)),
    "BlockTable": Call(
        lambda **given: BlockTable(**given).allocate_slots(1),
        lambda: dict(pool=BlockPool(4, 2), cache_salt="a"),
        fits=("cache_salt",),
    ),
    "BlockTable.allocate_slots": Call(lambda **given: table().allocate_slots(**given), lambda: dict(num_tokens=3)),
    "BlockTable.reserve": Call(lambda **given: table().reserve(**given), lambda: dict(num_tokens=3)),
    "ContinuousBatching": Call(
        lambda **given: steps(ContinuousBatching(**given)),
        lambda: dict(max_num_seqs=2, max_num_batched_tokens=8, chunked_prefill=True),
    ),
    "LLMEngine": Call(
        lambda **given: LLMEngine(**given).run([asked()]),
        lambda: dict(
            model=small(), policy=StaticBatching(2), num_blocks=8, block_size=2, prefix_cache=True, attend=attention
        ),
    ),
    "LLMEngine.add": Call(lambda request: LLMEngine(small()).add(request).output_tokens, lambda: dict(request=asked())),
    "LLMEngine.run": Call(lambda requests: LLMEngine(small()).run(requests), lambda: dict(requests=[asked()])),
    "LLMEngine.stream": Call(lambda request: [*LLMEngine(small()).stream(request)], lambda: dict(request=asked())),
    "Orca": Call(lambda **given: steps(Orca(**given)), lambda: dict(max_num_seqs=2, reserve=16)),
    "PagedCaches": Call(
        lambda **given: serving.PagedCaches(**given).nbytes,
        lambda: dict(model=small(), pool=BlockPool(4, 2), attend=attention),
    ),
    "Request": Call(
        lambda **given: LLMEngine(small(), num_blocks=8, block_size=2).run([Request(**given)]),
        lambda: dict(
            prompt=[1, 2],
            max_new_tokens=3,
            seed=1,
            temperature=1.0,
            top_k=3,
            top_p=0.9,
            stop=[2],
            n=2,
            cache_salt="a",
        ),
        fits=("cache_salt",),
    ),
    "Scheduler": Call(
        lambda **given: Scheduler(**given).add(asked()).output_tokens,
        lambda: dict(policy=StaticBatching(2), pool=BlockPool(4, 2)),
    ),
    "Scheduler.add": Call(
        lambda request: Scheduler(StaticBatching(2), BlockPool(4, 2)).add(request).output_tokens,
        lambda: dict(request=asked()),
    ),
    "StaticBatching": Call(
        lambda **given: steps(StaticBatching(**given)), lambda: dict(max_num_seqs=2, reserve="exact")
    ),
    "paged_attention": Call(
        serving.paged_attention,
        lambda: dict(
            q=torch.ones(1, 2, 1, 4),
            keys=torch.ones(3, 1, 2, 4),
            values=torch.ones(3, 1, 2, 4),
            tables=[[2, 0]],
            offset=[3],
            window=2,
            scale=0.5,
        ),
        signed=True,
    ),
}
REASONS = {
    **dict.fromkeys(["ALPACA", "SHAREGPT"], "lengths"),
    "OutOfBlocks": "an error",
    "SchedulingPolicy": "what policies are made from",
    "Replay": "what replay gives",
    **dict.fromkeys(["RequestState", "SchedulerOutput", "Sequence"], "what a scheduler makes"),
    "memory_of": "of a scheduler, in each step of a replay",
}
