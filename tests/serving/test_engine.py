"""The engine: what is written for a request is what is written for it alone, whoever is served beside it."""

import random
from functools import cache, partial

import pytest
import torch

from tinydist.attention import Decoder, DecoderConfig, Yarn, attention, fused_attention, generate
from tinydist.serving import ContinuousBatching, LLMEngine, Orca, Request, RequestState, Sequence, StaticBatching
from tinydist.serving.sampling import next_tokens

V = 61
KINDS = {
    "MHA": dict(kv_heads=6), "GQA": dict(kv_heads=2), "MQA": dict(kv_heads=1), "MLA": dict(latent=9, rotary_dim=2),
    "GQA, YaRN": dict(kv_heads=2, rotary=Yarn(4, 16)),
}  # fmt: skip
POLICIES = {
    "static": lambda: StaticBatching(4), "Orca": lambda: Orca(4, "power of 2"),
    "continuous": lambda: ContinuousBatching(6, 16),
    "whole prompts": lambda: ContinuousBatching(6, 64, chunked_prefill=False),
}  # fmt: skip
KINDS |= {f"{kind}, window": options | dict(window=7) for kind, options in KINDS.items()}


def model(window=None, **options):
    """With weights so large that what it writes depends on all that was before, or on all in the window."""
    torch.manual_seed(0)
    writer = Decoder(DecoderConfig(vocab_size=V, dim=24, heads=6, **options)).double()
    for block in writer.blocks:
        block.attention.attend = partial(attention, window=window)
        for layer in block.attention.children():
            torch.nn.init.normal_(layer.weight)
    return writer


def requests(number, seed=0):
    """Of mixed lengths and rules; some begin as others do."""
    dice = random.Random(seed)
    beginnings = [[dice.randrange(V) for _ in range(9)], [dice.randrange(V) for _ in range(6)], []]

    def one():
        prompt = dice.choice(beginnings) + [dice.randrange(V) for _ in range(dice.randint(1, 20))]
        drawn = dict(temperature=dice.choice([0.7, 2.0]), top_k=dice.choice([None, 20]), top_p=dice.choice([1.0, 0.9]))
        return Request(
            prompt, dice.randint(1, 24), seed=dice.randrange(100), n=dice.choice([1, 1, 1, 3]),
            stop=dice.choice([[], [5], [[7, 8], 9]]), **dice.choice([{}, drawn]),
        )  # fmt: skip

    return [one() for _ in range(number)]


@cache
def asked_alone(kind, number, seed=0):
    """Requests, and what is written for each by itself."""
    asked = requests(number, seed)
    return asked, [alone(model(**KINDS[kind]), each) for each in asked]


@torch.no_grad()
def alone(writer, request):
    """Each sample by itself, with a contiguous cache."""
    samples = []
    for i in range(request.n):
        sequence, caches = Sequence(RequestState(request), i, None), writer.caches(1, request.longest)
        while sequence.finish_reason is None:
            tokens = torch.tensor([sequence.tokens[caches[0].lengths[0] :]])
            (token,) = next_tokens(writer(tokens, caches)[:, -1], [sequence])
            sequence.append(token)
        samples.append(sequence.output_tokens)
    return samples


class Watched:
    """An engine, and what its scheduler did. ``robbed``: before each fifth pass somebody loses its memory."""

    def __init__(self, monkeypatch, *args, robbed=False, **options):
        self.engine, self.steps, self.robbed = LLMEngine(*args, **options), [], []
        scheduler, dice = self.engine.scheduler, random.Random(0)
        schedule = scheduler.schedule

        def watched():
            running = [each for each in scheduler.running if each.finish_reason is None]
            if robbed and running and len(self.steps) % 5 == 4:
                self.robbed.append(dice.choice(running))
                scheduler.preempt(self.robbed[-1])
            self.steps.append(schedule())
            return self.steps[-1]

        monkeypatch.setattr(scheduler, "schedule", watched)

    def total(self, name):
        return sum(len(getattr(each, name)) for each in self.steps)


def assert_as_alone(kind, policy, number, monkeypatch, seed=0, **options):
    asked, expected = asked_alone(kind, number, seed)
    options = dict(num_blocks=16, block_size=4) | options
    watched = Watched(monkeypatch, model(**KINDS[kind]), POLICIES[policy](), **options)
    assert watched.engine.run(asked) == expected
    assert len(watched.robbed) >= options.get("robbed", 0) * number // 2
    if policy in ("continuous", "whole prompts"):
        assert watched.total("preempted") and (watched.total("copies") or options["block_size"] == 1)
    assert watched.engine.idle and len(watched.engine.pool.free) == options["num_blocks"]


@pytest.mark.parametrize("policy", POLICIES)
def test_many_are_written_as_one_alone(policy, monkeypatch):
    """Even if they lose their memory now and then."""
    assert_as_alone("GQA", policy, 6, monkeypatch, robbed=True)


@pytest.mark.parametrize("kind", ["MQA", "GQA, YaRN", "MLA, window"])
def test_other_kinds_of_attention_write_as_alone(kind, monkeypatch):
    assert_as_alone(kind, "continuous", 6, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_are_written_as_one_alone(kind, policy, monkeypatch):
    assert_as_alone(kind, policy, 200, monkeypatch, seed=1, robbed=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("block_size", range(1, 33))
@pytest.mark.parametrize("kind", ["GQA", "MLA, window"])
def test_blocks_of_any_size_are_the_same_to_what_is_written(kind, block_size, monkeypatch):
    blocks = -(-52 // block_size)  # the longest request just fits
    assert_as_alone(kind, "continuous", 20, monkeypatch, robbed=True, num_blocks=blocks, block_size=block_size)


def test_it_writes_what_generate_does():
    writer, prompts = model(), [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5] * 9)]
    expected = generate(writer, prompts, 12)[:, None]
    assert LLMEngine(writer, num_blocks=32).run([Request(each, 12) for each in prompts]) == expected.tolist()


@pytest.mark.parametrize("kind", ["GQA", "MLA, window"])
def test_attention_may_be_computed_by_torchs_own(kind):
    asked, expected = asked_alone(kind, 6)
    attend = partial(fused_attention, window=KINDS[kind].get("window"))
    assert LLMEngine(model(**KINDS[kind]), num_blocks=64, block_size=4, attend=attend).run(asked) == expected


def test_they_are_not_all_the_same():
    """Or the tests above would say little."""
    samples = LLMEngine(model(), num_blocks=64).run([Request([1, 2, 3], 20, temperature=2.0, n=4)])[0]
    assert len({tuple(each) for each in samples}) == 4 and len({token for each in samples for token in each}) > 20


def test_a_prompt_passes_the_model_once_for_all_its_samples_and_once_for_all_who_come_later():
    writer, rows = model(), []
    writer.norm.register_forward_hook(lambda module, inputs, output: rows.append(output.shape[1]))
    engine = LLMEngine(writer, num_blocks=32, block_size=4)
    engine.run([Request([*range(10)], 3, n=3)])
    assert rows == [10, 3, 3]
    rows.clear()
    engine.run([Request([*range(10)], 3)])
    assert rows == [2, 1, 1] and engine.rows == 20


def test_a_stream_gives_tokens_as_they_come_while_others_are_served():
    writer, mine, other = model(), Request([1, 2, 3], 6), Request([4, 5], 9)
    engine = LLMEngine(writer, num_blocks=32)
    served, found = engine.add(other), []
    for token in engine.stream(mine):
        found.append(token)
        assert len(served.output_tokens[0]) == len(found)
    assert found == alone(writer, mine)[0] and not served.finished


def test_who_stops_reading_leaves_no_block():
    engine = LLMEngine(model(), num_blocks=32)
    stream = engine.stream(Request([1, 2, 3], 6))
    next(stream)
    assert len(engine.pool.free) == 31
    stream.close()
    assert engine.idle and len(engine.pool.free) == 32


def test_a_stream_that_nobody_begins_to_read_asks_for_nothing():
    engine = LLMEngine(model())
    engine.stream(Request([1]))
    assert engine.idle


def test_who_is_cancelled_is_served_no_more():
    engine = LLMEngine(model(), num_blocks=32)
    served, other = (engine.add(Request([each], 9)) for each in (1, 2))
    engine.step()
    engine.cancel(served)
    while not engine.idle:
        engine.step()
    assert [len(each.output_tokens[0]) for each in (served, other)] == [1, 9]
    assert served.sequences[0].finish_reason == "cancelled" and len(engine.pool.free) == 32


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pass_that_is_interrupted_is_computed_again(policy):
    """Before it has written to the cache, and when it has."""

    def interrupt(*_):
        raise KeyboardInterrupt

    writer, (asked, expected) = model(**KINDS["GQA"]), asked_alone("GQA", 3)
    engine = LLMEngine(writer, POLICIES[policy](), num_blocks=32, block_size=4)
    served = [engine.add(each) for each in asked]
    for step in range(1000):
        if step % 5 == 2:
            where = [writer.embedding, writer.head][step % 2]
            hook = where.register_forward_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.step()
            hook.remove()
        engine.step()
        if engine.idle:
            break
    assert [each.output_tokens for each in served] == expected
    assert len(engine.pool.free) == 32


def test_a_model_that_gives_no_numbers_is_an_error_and_leaves_no_block():
    writer = model()
    torch.nn.init.constant_(writer.head.weight, torch.nan)
    engine = LLMEngine(writer)
    with pytest.raises(ValueError, match=r"^next_tokens: the logits are NaN for sequence 0 of 1$"):
        engine.run([Request([1])])
    assert engine.idle and len(engine.pool.free) == 256


def test_with_nobody_to_serve_a_step_is_nothing():
    assert LLMEngine(model()).step() == []


def test_what_could_never_be_served_is_refused_before_it_begins():
    engine = LLMEngine(model(), num_blocks=4, block_size=4)
    with pytest.raises(ValueError, match=f"^LLMEngine: token ids must be from 0 to {V - 1}, got a prompt with {V}$"):
        engine.add(Request([1, V]))
    with pytest.raises(
        ValueError, match=r"^request: 9 \(prompt\) \+ 16 \(new\) - 1 = 24 tokens; .* but the pool has 4$"
    ):
        engine.run([Request([1]), Request([1] * 9)])
    assert engine.idle
