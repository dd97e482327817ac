"""A trace on the clock: every token is written, time is what passes cost, and paging serves more at once."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinydist.hardware import find_device
from tinydist.planner import find_model
from tinydist.serving import BlockPool, Continuous, Orca, Static
from tinydist.serving.clock import StepCost
from tinydist.serving.replay import replay
from tinydist.serving.trace import SHAREGPT, Ask, Lengths, make_trace

COST = StepCost(find_model("OPT 13B"), find_device("A100 40GB"))
SHORT = Lengths("short", 12, 20, 0.8, 0.8, longest=60)
POLICIES = {
    "static": Static(4, 128),
    "orca": Orca(8, 128),
    "oracle": Orca(8),
    "continuous": Continuous(8, 64),
    "whole prompts": Continuous(8, 128, chunked=False),
}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@every_policy
@settings(max_examples=8)
@given(st.integers(0, 5), st.sampled_from([2.0, 50.0, float("inf")]), st.integers(32, 80))
def test_all_that_was_asked_for_is_written(policy, seed, per_second, blocks):
    trace, pool = make_trace(SHORT, 12, per_second, seed), BlockPool(blocks, 4)
    found = replay(policy, trace, pool, COST)
    for ask, life in zip(trace, found.lives):
        assert life.ask is ask and len(life.written) == ask.output
        assert life.written == sorted(life.written) and life.first_token > 0
        assert life.latency == pytest.approx(life.first_token + life.a_token * (ask.output - 1))
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
    assert {bar.request for bar in bars} == set(range(12)) and max(bar.slot for bar in bars) < policy.slots
    assert ("ended" in {bar.kind for bar in bars}) == isinstance(policy, Static)
    assert {"prefill", "decode"} <= {bar.kind for bar in bars}


def test_alone_a_request_takes_one_prefill_and_a_pass_a_token():
    found = replay(Orca(1), [Ask(3.0, 100, 4)], BlockPool(20), COST)
    passes = [COST.seconds([(0, 100)]), *[COST.seconds([(100 + i, 1)]) for i in range(3)]]
    assert found.lives[0].first_token == pytest.approx(passes[0])
    assert found.seconds == pytest.approx(3 + sum(passes))
    assert [(bar.kind, bar.start) for bar in found.bars] == [("prefill", 3.0), ("decode", pytest.approx(3 + passes[0]))]


def test_paging_serves_more_at_once_than_what_is_reserved():
    """OPT 13B on an A100 of 40 GB, which has room for 15.7 K tokens. In the paper (figures 2 and 13) 7 and 30 sequences
    at once, 20 and 96 % of the cache used; throughput 2 to 4 times as high.
    """
    trace, found = make_trace(SHAREGPT, 40), {}
    for name, policy in {"2048": Orca(64, 2048), "paged": Continuous(64, 2048)}.items():
        found[name] = replay(policy, trace, BlockPool(15700 // 16), COST)
    reserved, paged = found["2048"], found["paged"]
    assert reserved.used == pytest.approx(0.204, abs=0.03) and paged.used > 0.9
    assert max(sequences for _, _, sequences, _ in reserved.steps) == 7
    assert paged.waste < 0.04 < 0.7 < reserved.waste
    assert paged.slots["internal"] + paged.slots["reserved"] < 0.04 * 15700
    assert 2 < paged.throughput / reserved.throughput < 4
    assert set(paged.summary()) == {"tokens/s", "first token", "next token", "latency a token", "sequences", "used"}


def test_a_preempted_request_computes_again_and_comes_to_its_end():
    trace = [Ask(0.0, 8, 24)] * 3
    found = replay(Continuous(3, 24), trace, BlockPool(16, 4), COST)
    assert found.preemptions > 0 and found.lives[0].preempted == 0
    assert [len(life.written) for life in found.lives] == [24] * 3


def test_what_never_fits_is_refused():
    with pytest.raises(ValueError, match=r"request: 100 \(prompt\) \+ 50 \(new\) - 1 = 149 tokens"):
        replay(Continuous(2, 64), [Ask(0.0, 100, 50)], BlockPool(4, 16), COST)
