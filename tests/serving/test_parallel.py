"""Several ranks write what one writes, and send what the formula says; replicas write what one engine writes."""

import pytest
import torch
from torch import nn

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.serving import ContinuousBatching, Request
from tinydist.serving.engine import LLMEngine
from tinydist.serving.parallel import ROUTES, Replicas, bytes_sent_per_token, tensor_parallel_engine

CONFIG = DecoderConfig(vocab_size=31, layers=2, heads=8, kv_heads=2, dim=32)


def model(config=CONFIG):
    """With weights so large that what it writes depends on all that was before."""
    torch.manual_seed(0)
    made = Decoder(config)
    for parameter in made.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return made.double()


def requests(number=6):
    random = torch.Generator().manual_seed(1)
    prompts = [torch.randint(31, (3 + 5 * i % 11,), generator=random).tolist() for i in range(number)]
    return [
        Request(prompt, max_new_tokens=4 + i, seed=i, temperature=0.7 * (i % 2), n=1 + (i == 3))
        for i, prompt in enumerate(prompts)
    ]


TIGHT = dict(policy=ContinuousBatching(4, 12), num_blocks=8, block_size=4)  # so that some are preempted


def one():
    return LLMEngine(model(), ContinuousBatching(4, 12), 8, 4)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_write_what_one_writes(ranks):
    """With preemption, prompts in pieces, samples that share their prompt; of two heads of keys on four ranks, too."""
    expected, preempted = one().run(requests()), []

    def program():
        engine = tensor_parallel_engine(model(), **dict(TIGHT, policy=ContinuousBatching(4, 12)))
        preempt = engine.scheduler.preempt
        engine.scheduler.preempt = lambda sequence: (preempted.append(1), preempt(sequence))
        return engine.run(requests()), engine.caches.nbytes, len(engine.pool.free)

    results = tinydist.launch(program, ranks, observe=False).results
    whole = one().caches.nbytes
    assert results == [(expected, whole // min(ranks, 2), 8)] * ranks
    assert preempted and len({token for samples in expected for each in samples for token in each}) > 8


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_token_sends_what_the_formula_says(ranks):
    """All that a rank sends while it serves, over the rows that it computed."""
    rows = []

    def program(serving):
        engine = tensor_parallel_engine(model(), **dict(TIGHT, policy=ContinuousBatching(4, 12)))
        for each in requests(3) if serving else ():
            engine.add(each)
        while not engine.idle:
            engine.step()
        rows.append(engine.rows)

    before, all_of_it = (
        tinydist.launch(program, ranks, serving, observe="communication").traffic for serving in (False, True)
    )
    sent = sum(map(sum, all_of_it)) - sum(map(sum, before))
    assert sent == sum(rows) * bytes_sent_per_token(CONFIG, ranks, torch.float64)
    assert bytes_sent_per_token(CONFIG, 1) == 0
    assert bytes_sent_per_token(CONFIG, 2) == (5 * 32 + 16) * 4


@pytest.mark.parametrize("route", ROUTES)
def test_replicas_write_what_one_engine_writes(route):
    replicas = Replicas([one() for _ in range(3)], route)
    assert replicas.run(requests()) == one().run(requests())
    assert replicas.idle and not replicas.engine_of and all(len(each.pool.free) == 8 for each in replicas.engines)


def routed(route, prompts, max_new_tokens=4):
    replicas = Replicas([one() for _ in range(2)], route)
    return [replicas.choose(replicas.add(Request(prompt, max_new_tokens)).request) for prompt in prompts], replicas


def test_each_route_has_its_way():
    replicas = Replicas([one() for _ in range(2)], "in turn")
    assert [replicas.choose(Request([1])) for _ in range(5)] == [0, 1, 0, 1, 0]
    replicas = Replicas([one() for _ in range(2)], "least left")
    assert replicas.choose(Request([1] * 10, 5)) == 0
    replicas.add(Request([1] * 10, 5))  # 14 tokens left
    for _ in range(3):  # of 3, 3 and 3
        assert replicas.choose(Request([1, 2], 2)) == 1
        replicas.add(Request([1, 2], 2))
    replicas.add(Request([1] * 9))
    assert replicas.choose(Request([1], 1)) == 0
    replicas = Replicas([one() for _ in range(2)], "same prefix")
    of = {replicas.choose(Request([first, 2, 3, 4, last])) for first in range(9) for last in range(3)}
    same = {replicas.choose(Request([1, 2, 3, 4, last])) for last in range(9)}
    assert of == {0, 1} and len(same) == 1


def test_who_leaves_a_replica_leaves_its_blocks():
    replicas = Replicas([one() for _ in range(2)])
    served = replicas.add(Request([1] * 8, 8))
    replicas.step()
    replicas.cancel(served)
    assert replicas.idle and all(len(each.pool.free) == 8 for each in replicas.engines)


def test_errors():
    with pytest.raises(ValueError, match="Replicas: engines must be a non-empty list, each item a LLMEngine, got"):
        Replicas([])
    with pytest.raises(ValueError, match="Replicas: route must be one of in turn, least left, same prefix, got 'hash'"):
        Replicas([one()], "hash")
    with pytest.raises(ValueError, match=r"shard: num_kv_heads \(2\) must divide, or be divisible by"):
        tinydist.launch(lambda: tensor_parallel_engine(model(DecoderConfig(31, 1, 6, 2, 12))), 3, observe=False)
