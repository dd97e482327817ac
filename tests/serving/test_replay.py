"""A trace on the clock: every token is written, time is what passes cost, and paging serves more at once."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinydist.hardware import find_device
from tinydist.planner import find_model
from tinydist.serving import BlockPool, ContinuousBatching, Orca, Request, Scheduler, StaticBatching
from tinydist.serving.clock import StepCost
from tinydist.serving.replay import KINDS, expected_waste, memory_of, replay, waste_in_blocks
from tinydist.serving.trace import ALPACA, SHAREGPT, Lengths, TraceRequest, make_trace

COST = StepCost(find_model("OPT 13B"), find_device("A100 40GB"))
SHORT = Lengths("short", 12, 20, 0.8, 0.8, longest=60)
POLICIES = {
    "static": StaticBatching(4, 128),
    "orca": Orca(8, 128),
    "oracle": Orca(8),
    "continuous": ContinuousBatching(8, 64),
    "whole prompts": ContinuousBatching(8, 128, chunked_prefill=False),
}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@every_policy
@settings(max_examples=8)
@given(st.integers(0, 5), st.sampled_from([2.0, 50.0, float("inf")]), st.integers(32, 80))
def test_all_that_was_asked_for_is_written(policy, seed, per_second, blocks):
    trace, pool = make_trace(SHORT, 12, per_second, seed), BlockPool(blocks, 4)
    found = replay(policy, trace, pool, COST)
    for asked, life in zip(trace, found.lives):
        assert life.request is asked and len(life.written) == asked.output
        assert life.written == sorted(life.written) and life.ttft > 0
        assert life.latency == pytest.approx(life.ttft + life.tpot * (asked.output - 1))
    assert len(pool.free) == blocks
    assert found.seconds == pytest.approx(found.steps[-1][0] + found.steps[-1][1])
    assert found.throughput == pytest.approx(sum(ask.output for ask in trace) / found.seconds)
    assert all(sum(kinds.values()) == 4 * blocks for kinds in found.memory)


@every_policy
def test_the_time_is_that_of_its_passes(policy):
    trace = make_trace(SHORT, 10)
    found = replay(policy, trace, BlockPool(80, 4), COST)
    assert found.seconds == pytest.approx(sum(seconds for _, seconds, _, _ in found.steps))
    computed = sum(tokens for *_, tokens in found.steps)
    needed = sum(ask.tokens - 1 for ask in trace)
    assert computed == needed if not found.preemptions else computed > needed


@every_policy
def test_a_place_has_one_request_at_a_time(policy):
    found = replay(policy, make_trace(SHORT, 12), BlockPool(128, 4), COST)
    bars = sorted(found.bars, key=lambda bar: (bar.slot, bar.start))
    for one, other in pairwise(bars):
        assert one.slot != other.slot or one.end <= other.start + 1e-12
    assert {bar.request for bar in bars} == set(range(12)) and max(bar.slot for bar in bars) < policy.max_num_seqs
    assert ("ended" in {bar.kind for bar in bars}) == isinstance(policy, StaticBatching)
    assert {"prefill", "decode"} <= {bar.kind for bar in bars}


def test_alone_a_request_takes_one_prefill_and_a_pass_a_token():
    found = replay(Orca(1), [TraceRequest(3.0, 100, 4)], BlockPool(20), COST)
    passes = [COST.seconds([(0, 100)]), *[COST.seconds([(100 + i, 1)]) for i in range(3)]]
    assert found.lives[0].ttft == pytest.approx(passes[0])
    assert found.seconds == pytest.approx(3 + sum(passes))
    assert [(bar.kind, bar.start) for bar in found.bars] == [("prefill", 3.0), ("decode", pytest.approx(3 + passes[0]))]


def test_paging_serves_more_at_once_than_what_is_reserved():
    """OPT 13B on an A100 of 40 GB, which has room for 15.7 K tokens. In the paper (figures 2 and 13) 7 and 30 sequences
    at once, 20 and 96 % of the cache used; throughput 2 to 4 times as high.
    """
    trace, found = make_trace(SHAREGPT, 40), {}
    for name, policy in {"2048": Orca(64, 2048), "paged": ContinuousBatching(64, 2048)}.items():
        found[name] = replay(policy, trace, BlockPool(15700 // 16), COST)
    reserved, paged = found["2048"], found["paged"]
    assert reserved.used == pytest.approx(0.204, abs=0.03) and paged.used > 0.9
    assert max(sequences for _, _, sequences, _ in reserved.steps) == 7
    assert paged.waste < 0.04 < 0.7 < reserved.waste
    assert paged.slots["internal"] + paged.slots["reserved"] < 0.04 * 15700
    assert 2 < paged.throughput / reserved.throughput < 4
    assert set(paged.summary()) == {"tokens/s", "TTFT", "TPOT", "normalized latency", "sequences", "used"}


def test_a_preempted_request_computes_again_and_comes_to_its_end():
    trace = [TraceRequest(0.0, 8, 24)] * 3
    found = replay(ContinuousBatching(3, 24), trace, BlockPool(16, 4), COST)
    assert found.preemptions > 0 and found.lives[0].preempted == 0
    assert [len(life.written) for life in found.lives] == [24] * 3


def test_what_never_fits_is_refused():
    with pytest.raises(ValueError, match=r"request: 100 \(prompt\) \+ 50 \(new\) - 1 = 149 tokens"):
        replay(ContinuousBatching(2, 64), [TraceRequest(0.0, 100, 50)], BlockPool(4, 16), COST)


# Where memory goes: by the formula, counted, and as the paper measured it.


@pytest.mark.parametrize(
    "lengths, block_size, least, most",
    [(SHAREGPT, 16, 0.014, 0.016), (ALPACA, 16, 0.08, 0.10), (ALPACA, 4, 0.015, 0.025), (ALPACA, 1, 0, 0)],
)
def test_in_blocks_little_is_wasted(lengths, block_size, least, most):
    """Below 4 % where answers are long; about 9 % where they are short, and 2 % in smaller blocks."""
    trace = make_trace(lengths, 400)
    for waste in (expected_waste(lengths.prompt + lengths.output, block_size), waste_in_blocks(trace, block_size)):
        assert least <= waste <= most


@given(st.integers(1, 32), st.integers(10, 500))
def test_the_formula_is_the_mean_over_all_remainders(block_size, blocks):
    """Of one sequence of each length: in so many blocks, from the first slot of the last to its end."""
    lengths = [(blocks - 1) * block_size + filled for filled in range(1, block_size + 1)]
    trace = [TraceRequest(0.0, length - 1, 1) for length in lengths if length > 1] or [TraceRequest(0.0, 1, 1)]
    tokens = sum(each.tokens for each in trace) / len(trace)
    assert waste_in_blocks(trace, block_size) == pytest.approx(expected_waste(tokens, block_size), abs=0.01)


def kinds_of(policy, blocks, block_size, *requests):
    scheduler = Scheduler(policy, BlockPool(blocks, block_size))
    for request in requests:
        scheduler.add(request)
    step = scheduler.schedule()
    kinds = memory_of(scheduler)
    assert tuple(kinds) == KINDS and sum(kinds.values()) == blocks * block_size
    return scheduler, step, kinds


def test_every_slot_is_of_one_kind():
    """A prompt of 5, then 3 more tokens, of which the last is never in the cache: 7 of 20 reserved slots."""
    asked = Request([1] * 5, max_new_tokens=3)
    *_, kinds = kinds_of(Orca(4, reserve=20), 12, 4, asked)
    assert kinds == dict(tokens=5, reserved=2, internal=13, external=0, free=28)
    *_, kinds = kinds_of(Orca(4, reserve=20), 12, 4, *[asked] * 3)
    assert kinds == dict(tokens=10, reserved=4, internal=26, external=8, free=0)  # two pieces, and 8 for nobody
    *_, kinds = kinds_of(Orca(2, reserve=20), 12, 4, *[asked] * 3)
    assert kinds["free"] == 8  # the third waits for a place
    *_, kinds = kinds_of(ContinuousBatching(4, 16), 12, 4, asked)
    assert kinds == dict(tokens=5, reserved=2, internal=1, external=0, free=40)


def test_what_samples_share_counts_once():
    scheduler, step, before = kinds_of(ContinuousBatching(4, 16), 12, 4, Request([1] * 5, max_new_tokens=3, n=3))
    scheduler.update(step, lambda ready: [7, 8, 9])
    assert len(scheduler.running) == 3
    assert memory_of(scheduler) == before
