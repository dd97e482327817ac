"""Valid calls of ``tinydist.serving``."""

from functools import cache

import torch
from nonsense.calls import Call

from tinydist import serving
from tinydist.attention import Decoder, DecoderConfig
from tinydist.hardware import find_device, find_link
from tinydist.planner import find_model
from tinydist.serving import (
    ALPACA,
    Ask,
    BlockPool,
    BlockTable,
    Continuous,
    Engine,
    Lengths,
    Orca,
    Replicas,
    Request,
    Scheduler,
    Static,
    StepCost,
)

CONFIG = DecoderConfig(vocab_size=8, layers=1, heads=2, kv_heads=1, dim=8)
COST = StepCost(find_model("GPT-2"), find_device("H100"))
TRACE = (Ask(0.0, 5, 3), Ask(0.1, 9, 2))


@cache
def model():
    torch.manual_seed(0)
    return Decoder(CONFIG)


def engine():
    return Engine(model(), Continuous(4, 16), 16, 4)


def table(tokens):
    made = BlockTable(BlockPool(8, 4))
    made.grow(tokens)
    return made


def run(policy, request):
    scheduler = Scheduler(policy, BlockPool(16, 4))
    served = scheduler.add(request)
    while not scheduler.idle:
        scheduler.update(scheduler.step(), lambda ready: [1] * len(ready))
    return served.new


def asked(**given):
    return run(Continuous(4, 16), Request(**given))


def by(policy):
    return lambda **given: run(policy(**given), Request([1, 2, 3], 2))


def replayed(**given):
    found = serving.replay(**given)
    return found.summary()


def added(engines, route, request):
    return Replicas(engines, route).run([request])


def verified():
    p = torch.full((3, 4), 0.25)
    return dict(drafted=torch.tensor([1, 2]), q=p[:2], p=p, draws=torch.full((3,), 0.5))


def written(**given):
    return serving.speculate(**given).tokens


CALLS = {
    "Ask": Call(Ask, lambda: dict(arrival=0.5, prompt=3, output=4)),
    "Lengths": Call(
        lambda **given: serving.make_trace(Lengths(**given), 3),
        lambda: dict(name="", prompt=9.0, output=8.0, prompt_spread=0.5, output_spread=1.0, longest=20),
        fits=("name",),
    ),
    "Replicas": Call(added, lambda: dict(engines=[engine()], route="least left", request=Request([1], 2))),
    "StepCost": Call(
        lambda **given: StepCost(**given).seconds([(5, 1)], True),
        lambda: dict(
            model=find_model("GPT-2"), device=find_device("H100"), dtype="float16", ranks=2, link=find_link("NVLink 4"),
            paging=0.2, overhead=1e-3,
        ),
    ),
    "StepCost.room": Call(COST.room, lambda: dict(memory=0.9)),
    "StepCost.seconds": Call(COST.seconds, lambda: dict(parts=[(3, 1), (0, 4)], paged=True)),
    "StepCost.bytes_sent": Call(COST.bytes_sent, lambda: dict(tokens=3)),
    "acceptance": Call(
        serving.acceptance, lambda: dict(p=torch.full((4,), 0.25), q=torch.full((4,), 0.25)), signed=True
    ),
    "bytes_sent_a_row": Call(serving.bytes_sent_a_row, lambda: dict(config=CONFIG, ranks=2, dtype=torch.float32)),
    "expected_tokens": Call(serving.expected_tokens, lambda: dict(acceptance=0.5, ahead=4)),
    "expected_waste": Call(serving.expected_waste, lambda: dict(tokens=78.0, block_size=4)),
    "make_trace": Call(serving.make_trace, lambda: dict(lengths=ALPACA, requests=3, per_second=2.0, seed=1)),
    "replay": Call(
        replayed, lambda: dict(policy=Continuous(4, 16), trace=list(TRACE), pool=BlockPool(16, 4), cost=COST)
    ),
    "speculate": Call(
        written,
        lambda: dict(
            target=model(), draft=model(), prompt=torch.tensor([1, 2]), count=3, ahead=2, temperature=0.5,
            generator=torch.Generator().manual_seed(0),
        ),
    ),
    "speedup": Call(serving.speedup, lambda: dict(acceptance=0.5, ahead=4, cost=0.1)),
    "tensor_parallel_engine": Call(
        lambda **given: serving.tensor_parallel_engine(**given).run([Request([1], 2)]),
        lambda: dict(model=Decoder(CONFIG), group=None, policy=Continuous(2, 4), blocks=8, block_size=4),
        ranks=2,
    ),
    "verify": Call(serving.verify, verified),
    "waste_in_blocks": Call(serving.waste_in_blocks, lambda: dict(trace=list(TRACE), block_size=4)),
    "waste_reserved": Call(serving.waste_reserved, lambda: dict(trace=list(TRACE), reserved=20)),
}  # fmt: skip
REASONS = {
    **dict.fromkeys(["ALPACA", "SHAREGPT"], "lengths"),
    **dict.fromkeys(["BlockTable", "Policy", "Sequence", "Served", "Step"], "what schedulers make and policies change"),
    "OutOfBlocks": "an error",
    "PagedCaches": "an engine makes it",
    "Replay": "what replay gives",
    "memory_of": "of a scheduler, at every step of a replay",
    "paged_attention": "TODO",
}
