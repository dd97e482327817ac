"""Scheduler: which sequences share a pass. Replayed without a model: each token is 0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.serving import BlockPool, ContinuousBatching, Orca, Request, Scheduler, StaticBatching


def passes(policy, requests, pool=None):
    """Of each pass: request -> tokens; and the scheduler, for what is left behind."""
    scheduler, found = Scheduler(policy, pool or BlockPool(64, 4)), []
    served = [scheduler.add(each) for each in requests]
    while not scheduler.idle:
        step = scheduler.schedule()
        found.append({served.index(sequence.state): tokens for sequence, tokens in step.scheduled})
        scheduler.update(step, lambda ready: [0] * len(ready))
        assert len(found) < 10_000
    return found


def asks(*lengths):
    """Prompts of so many tokens, and so many new ones."""
    return [Request([i] * prompt, new) for i, (prompt, new) in enumerate(lengths)]


def test_a_static_batch_waits_for_its_longest():
    requests = asks((2, 4), (3, 1), (1, 2), (5, 1))
    assert passes(StaticBatching(2), requests) == [{0: 2, 1: 3}, {0: 1}, {0: 1}, {0: 1}, {2: 1, 3: 5}, {2: 1}]


def test_orca_gives_a_place_away_at_once():
    requests = asks((2, 4), (3, 1), (1, 2), (5, 1))
    assert passes(Orca(2), requests) == [{0: 2, 1: 3}, {0: 1, 2: 1}, {0: 1, 2: 1}, {0: 1, 3: 5}]


def test_pieces_fill_what_decoding_leaves_of_the_budget():
    requests = asks((2, 6), (9, 2))
    assert passes(ContinuousBatching(2, 4), requests) == [
        {0: 2, 1: 2},
        {0: 1, 1: 3},
        {0: 1, 1: 3},
        {0: 1, 1: 1},
        {0: 1, 1: 1},
        {0: 1},
    ]


def test_without_pieces_a_prompt_waits_until_the_budget_has_room_for_it():
    requests = asks((7, 3), (9, 2), (1, 1))
    assert passes(ContinuousBatching(3, 10, chunked_prefill=False), requests) == [
        {0: 7},
        {0: 1, 1: 9},
        {0: 1, 1: 1, 2: 1},
    ]


def test_a_reservation_is_for_all_that_may_come():
    """Four blocks of 4: exactly, two requests for 8 tokens fit; reserved for 16 each, one."""
    requests = asks((5, 4), (5, 4))
    assert len(passes(Orca(2), requests, BlockPool(4, 4))[0]) == 2
    assert len(passes(Orca(2, "power of 2"), requests, BlockPool(4, 4))[0]) == 2
    assert len(passes(Orca(2, 16), requests, BlockPool(4, 4))[0]) == 1
    assert Orca(1, "power of 2").reservation(asks((5, 5))[0]) == 16


def test_free_memory_in_pieces_is_of_no_use_to_a_reservation():
    """Blocks 0 and 3 are free when the third comes; it needs two. In blocks it runs at once."""
    requests, pools = asks((3, 1), (4, 4), (5, 2)), [BlockPool(4, 4), BlockPool(4, 4)]
    assert passes(Orca(3), requests, pools[0])[1] == {1: 1}
    assert passes(ContinuousBatching(3, 16), requests, pools[1])[0] == {0: 3, 1: 4, 2: 5}


def test_who_finds_no_block_takes_that_of_the_youngest():
    """Three blocks of 4, two sequences that come to need two each: the second loses its own, and computes again."""
    requests = asks((4, 4), (4, 4))
    pool = BlockPool(3, 4, prefix_cache=False)
    assert passes(ContinuousBatching(2, 8), requests, pool) == [
        {0: 4, 1: 4}, {0: 1}, {0: 1}, {0: 1}, {1: 5}, {1: 1}, {1: 1},
    ]  # fmt: skip


def test_who_lost_its_blocks_may_find_them_again():
    """The same, and nobody needed the block meanwhile: of its 5 tokens 1 is computed again."""
    assert passes(ContinuousBatching(2, 8), asks((4, 4), (4, 4)), BlockPool(3, 4))[4] == {1: 1}


def test_nobody_is_admitted_in_a_pass_that_preempts():
    """The third would fit into the block that the second gave back."""
    requests = asks((4, 4), (8, 4), (1, 1))
    assert passes(ContinuousBatching(3, 16), requests, BlockPool(3, 4))[1] == {0: 1}


def test_nobody_overtakes_for_memory():
    requests = asks((8, 8), (12, 1), (1, 1))
    found = passes(ContinuousBatching(3, 32), requests, BlockPool(4, 4))
    assert [2 in each for each in found].index(True) == [1 in each for each in found].index(True)


def test_samples_share_the_prompt_and_copy_what_they_change():
    scheduler = Scheduler(ContinuousBatching(4, 16), BlockPool(8, 4))
    served = scheduler.add(Request([1] * 6, 3, n=3))
    written = scheduler.update(scheduler.schedule(), lambda ready: [*range(len(ready))])
    assert [(each.sample, token) for each, token in written] == [(0, 0), (1, 1), (2, 2)]
    assert [each.table.blocks for each in served.sequences] == [[0, 1]] * 3
    step = scheduler.schedule()
    assert step.copies == [(1, 2), (1, 3)] and step.num_tokens == 3
    assert [each.table.blocks for each in served.sequences] == [[0, 2], [0, 3], [0, 1]]


def test_without_sharing_each_sample_computes_the_prompt():
    assert passes(Orca(2), [Request([1] * 6, 1, n=2)]) == [{0: 6}]
    scheduler = Scheduler(Orca(2), BlockPool(8, 4))
    served = scheduler.add(Request([1] * 6, 1, n=2))
    assert [each.table.blocks for each in served.sequences] == [[], []]
    assert scheduler.schedule().num_tokens == 12
    assert [each.table.blocks for each in served.sequences] == [[0, 1], [2, 3]]


def test_samples_begin_when_there_is_a_place_for_each():
    requests = [*asks((2, 3)), Request([1, 1], 1, n=2), *asks((2, 1))]
    assert passes(ContinuousBatching(2, 8), requests) == [{0: 2}, {0: 1}, {0: 1}, {1: 2}, {2: 2}]


def test_a_prompt_that_was_computed_is_found():
    requests = [Request([3] * 9, 1), Request([3] * 9, 1), Request([3] * 9, 1, cache_salt="x")]
    assert passes(ContinuousBatching(1, 16), requests) == [{0: 9}, {1: 1}, {2: 9}]


def test_who_is_cancelled_leaves_no_block():
    for policy in (StaticBatching(2), Orca(2), ContinuousBatching(2, 8)):
        scheduler = Scheduler(policy, BlockPool(8, 4))
        served = [scheduler.add(each) for each in asks((4, 9), (4, 9), (4, 9))]
        scheduler.update(scheduler.schedule(), lambda ready: [0] * len(ready))
        for each in served:
            scheduler.cancel(each)
        assert scheduler.idle and len(scheduler.pool.free) == 8
        assert [each.sequences[0].finish_reason for each in served] == ["cancelled"] * 3


def test_what_another_serves_is_not_cancelled():
    mine, other = (Scheduler(Orca(1), BlockPool(8, 4)) for _ in range(2))
    served = mine.add(Request([1]))
    with pytest.raises(
        ValueError, match=r"^Scheduler: cancel takes what add returned, got a request of another scheduler$"
    ):
        other.cancel(served)
    assert served.sequences[0].finish_reason is None and not mine.idle


mixed = st.lists(
    st.builds(
        lambda kind, prompt, new, n, stop: Request([kind] * prompt, new, n=n, stop=stop),
        st.integers(0, 1), st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.sampled_from([(), ([0, 0],)]),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip
policies = st.one_of(
    st.builds(StaticBatching, st.integers(1, 4), st.sampled_from(["exact", "power of 2", 23])),
    st.builds(Orca, st.integers(1, 4), st.sampled_from(["exact", "power of 2", 23])),
    st.builds(ContinuousBatching, st.integers(3, 5), st.integers(5, 9)),
    st.builds(ContinuousBatching, st.integers(3, 5), st.just(24), st.just(False)),
)


@given(mixed, policies, st.integers(1, 8), st.booleans())
def test_all_are_served_whatever_comes(requests, policy, block_size, prefix_cache):
    """The memory is so small that the longest alone just fits."""
    pool = BlockPool(-(-32 // block_size), block_size, prefix_cache)
    scheduler = Scheduler(policy, pool)
    served, steps = [scheduler.add(each) for each in requests], 0
    while not scheduler.idle:
        step, steps = scheduler.schedule(), steps + 1
        assert step.scheduled and steps < 1000
        assert len(scheduler.running) <= policy.max_num_seqs and step.num_tokens <= getattr(
            policy, "max_num_batched_tokens", 1000
        )
        for sequence, tokens in step.scheduled:
            assert sequence.table.length == sequence.num_computed_tokens + tokens
        scheduler.update(step, lambda ready: [0] * len(ready))
    for each in served:
        lengths = [
            2 if each.request.stop and each.request.max_new_tokens > 1 else each.request.max_new_tokens
        ] * each.request.n
        assert [len(new) for new in each.output_tokens] == lengths
    assert pool.references == [0] * pool.num_blocks and len(pool.free) == pool.num_blocks


@pytest.mark.parametrize(
    "policy, request_, error",
    [
        (
            ContinuousBatching(2, 8), Request([1] * 30, 40),
            r"30 \(prompt\) \+ 40 \(new\) - 1 = 69 tokens; its 69 tokens in blocks of 4 are 18 blocks, but .* has 16",
        ),
        (
            Orca(2, 80), Request([1] * 3, 4),
            r"3 \(prompt\) \+ 4 \(new\) - 1 = 6 tokens; 80 reserved tokens in blocks of 4 are 20 blocks, but .* has 16",
        ),
        (
            StaticBatching(2, 5), Request([1] * 3, 4),
            r"3 \(prompt\) \+ 4 \(new\) - 1 = 6 tokens, but 5 are reserved for each",
        ),
        (ContinuousBatching(2, 8), Request([1], n=3), r"n \(3\) exceeds max_num_seqs \(2\): all samples start tog.*"),
        (
            ContinuousBatching(2, 8, chunked_prefill=False), Request([1] * 7, 3),
            r".* = 9 tokens: exceeds the token budget \(8\), and chunked prefill is disabled",
        ),
    ],
)  # fmt: skip
def test_what_could_never_be_served_is_refused_with_its_equation(policy, request_, error):
    with pytest.raises(ValueError, match=r"^request: " + error + "$"):
        Scheduler(policy, BlockPool(16, 4)).add(request_)


def test_a_budget_has_a_token_for_each():
    with pytest.raises(
        ValueError,
        match=r"max_num_batched_tokens \(3\) must be >= max_num_seqs \(4\), one token per sequence",
    ):
        ContinuousBatching(4, 3)
