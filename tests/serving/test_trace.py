"""Requests to replay: as long as they should be on the mean, never longer than they may be, the same from a seed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.serving.trace import ALPACA, SHAREGPT, Lengths, TraceRequest, make_trace


def mean(numbers):
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("lengths, prompt, output", [(SHAREGPT, 161.31, 337.99), (ALPACA, 19.31, 58.45)])
def test_lengths_have_the_published_means(lengths, prompt, output):
    trace = make_trace(lengths, 400)
    assert mean([each.prompt for each in trace]) == pytest.approx(prompt, abs=0.01)
    assert mean([each.output for each in trace]) == pytest.approx(output, abs=0.01)


@given(st.floats(1, 50), st.floats(0.1, 2), st.integers(1, 60), st.integers(0, 10))
def test_no_request_is_empty_or_too_long(mean_length, spread, requests, seed):
    lengths = Lengths("any", mean_length, mean_length, spread, spread, longest=50)
    trace = make_trace(lengths, requests, seed=seed)
    assert len(trace) == requests
    assert all(1 <= each.prompt <= 50 and 1 <= each.output <= 50 for each in trace)
    assert all(each.tokens == each.prompt + each.output for each in trace)


def test_longer_tails_are_of_wider_spreads():
    narrow, wide = (make_trace(Lengths("", 20, 20, spread, spread), 300) for spread in (0.2, 1.2))
    assert max(each.output for each in wide) > 2 * max(each.output for each in narrow)


def test_they_come_so_many_a_second_and_in_order():
    trace = make_trace(ALPACA, 2000, per_second=4)
    arrivals = [each.arrival for each in trace]
    assert arrivals == sorted(arrivals) and arrivals[0] == 0
    assert 2000 / arrivals[-1] == pytest.approx(4, rel=0.1)
    gaps = [b - a for a, b in pairwise(arrivals)]
    assert mean([gap > 0.25 for gap in gaps]) == pytest.approx(0.368, abs=0.04)  # 1/e of an exponential's
    assert {each.arrival for each in make_trace(ALPACA, 9)} == {0.0}


def test_a_rate_changes_when_they_come_and_not_what_they_are():
    slow, fast = make_trace(SHAREGPT, 20, per_second=1, seed=3), make_trace(SHAREGPT, 20, per_second=2, seed=3)
    assert [(a.prompt, a.output) for a in slow] == [(b.prompt, b.output) for b in fast]
    assert [a.arrival for a in slow] == [2 * b.arrival for b in fast]
    assert make_trace(SHAREGPT, 20, seed=3) != make_trace(SHAREGPT, 20, seed=4)


def test_lengths_that_cannot_be():
    with pytest.raises(ValueError, match="Lengths: the mean prompt must be from 1 to longest = 1024, got 2000"):
        Lengths("", 2000, 1, 1, 1)
    with pytest.raises(ValueError, match="make_trace: requests must be an integer from 1 to 1048576, got 0"):
        make_trace(ALPACA, 0)
    assert TraceRequest(0.0, 3, 4).tokens == 7
