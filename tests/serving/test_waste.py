"""Where memory goes: by the formula, counted, and as the paper measured it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.serving import BlockPool, Continuous, Orca, Request, Scheduler
from tinydist.serving.trace import ALPACA, SHAREGPT, Ask, make_trace
from tinydist.serving.waste import KINDS, expected_waste, memory_of, waste_in_blocks, waste_reserved


@pytest.mark.parametrize(
    "lengths, block_size, least, most",
    [(SHAREGPT, 16, 0.014, 0.016), (ALPACA, 16, 0.08, 0.10), (ALPACA, 4, 0.015, 0.025), (ALPACA, 1, 0, 0)],
)
def test_in_blocks_little_is_wasted(lengths, block_size, least, most):
    """Below 4 % where answers are long; about 9 % where they are short, and 2 % in smaller blocks."""
    trace = make_trace(lengths, 400)
    for waste in (expected_waste(lengths.prompt + lengths.output, block_size), waste_in_blocks(trace, block_size)):
        assert least <= waste <= most


def test_reserved_in_one_piece_most_is_wasted():
    assert 0.6 < waste_reserved(make_trace(SHAREGPT, 400), 2048) < 0.8
    assert waste_reserved(make_trace(ALPACA, 400), 2048) > 0.95
    with pytest.raises(ValueError, match=r"waste_reserved: request length \(30\) exceeds the reservation \(29\)"):
        waste_reserved([Ask(0.0, 10, 20)], 29)


@given(st.integers(1, 32), st.integers(10, 500))
def test_the_formula_is_the_mean_over_all_remainders(block_size, blocks):
    """Of one sequence of each length: in so many blocks, from the first slot of the last to its end."""
    lengths = [(blocks - 1) * block_size + filled for filled in range(1, block_size + 1)]
    trace = [Ask(0.0, length - 1, 1) for length in lengths if length > 1] or [Ask(0.0, 1, 1)]
    tokens = sum(each.tokens for each in trace) / len(trace)
    assert waste_in_blocks(trace, block_size) == pytest.approx(expected_waste(tokens, block_size), abs=0.01)


def kinds_of(policy, blocks, block_size, *requests):
    scheduler = Scheduler(policy, BlockPool(blocks, block_size))
    for request in requests:
        scheduler.add(request)
    step = scheduler.step()
    kinds = memory_of(scheduler)
    assert tuple(kinds) == KINDS and sum(kinds.values()) == blocks * block_size
    return scheduler, step, kinds


def test_every_slot_is_of_one_kind():
    """A prompt of 5, then 3 more tokens, of which the last is never in the cache: 7 of 20 reserved slots."""
    asked = Request([1] * 5, max_new=3)
    *_, kinds = kinds_of(Orca(4, reserve=20), 12, 4, asked)
    assert kinds == dict(tokens=5, reserved=2, internal=13, external=0, free=28)
    *_, kinds = kinds_of(Orca(4, reserve=20), 12, 4, *[asked] * 3)
    assert kinds == dict(tokens=10, reserved=4, internal=26, external=8, free=0)  # two pieces, and 8 for nobody
    *_, kinds = kinds_of(Orca(2, reserve=20), 12, 4, *[asked] * 3)
    assert kinds["free"] == 8  # the third waits for a place
    *_, kinds = kinds_of(Continuous(4, 16), 12, 4, asked)
    assert kinds == dict(tokens=5, reserved=2, internal=1, external=0, free=40)


def test_what_samples_share_counts_once():
    scheduler, step, before = kinds_of(Continuous(4, 16), 12, 4, Request([1] * 5, max_new=3, n=3))
    scheduler.update(step, lambda ready: [7, 8, 9])
    assert len(scheduler.running) == 3
    assert memory_of(scheduler) == before
