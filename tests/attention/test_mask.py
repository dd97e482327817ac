"""The band: who sees whom, tile by tile, against the rule written out for every pair."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right

from tinydist.attention.mask import AttentionMask, tiles

bands = st.builds(AttentionMask, st.integers(1, 20), st.integers(1, 20), st.booleans(), st.none() | st.integers(1, 25))
sizes = st.integers(1, 8)


def by_the_rule(queries, keys, causal, window):
    """bool [queries, keys], pair by pair."""

    def sees(i, j):
        distance = i + keys - queries - j
        return (distance >= 0 or not causal) and (window is None or abs(distance) < window)

    return torch.tensor([[sees(i, j) for j in range(keys)] for i in range(queries)])


def whole(band):
    rows, columns = slice(0, band.queries), slice(0, band.keys)
    visible = band.visible(rows, columns)
    return torch.ones(band.queries, band.keys, dtype=torch.bool) if visible is None else visible


@pytest.mark.parametrize("queries, keys", [(5, 5), (3, 7), (7, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 4, 100])
def test_the_rule(queries, keys, causal, window):
    assert torch.equal(whole(AttentionMask(queries, keys, causal, window)), by_the_rule(queries, keys, causal, window))


@pytest.mark.parametrize("queries, keys", [(4, 4), (2, 5)])
def test_causal_is_torchs_lower_right_diagonal(queries, keys):
    assert torch.equal(
        whole(AttentionMask(queries, keys, causal=True)), causal_lower_right(queries, keys)._materialize()
    )


ragged = st.builds(
    lambda queries, causal, window, offset: AttentionMask(queries, queries + max(offset) + 2, causal, window, offset),
    st.integers(1, 9),
    st.booleans(),
    st.none() | st.integers(1, 15),
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
)


def of_each(band, visible):
    """bool [sequences, rows, columns]."""
    if visible is None:
        return torch.ones(1, 1, 1, dtype=torch.bool)
    return visible.view(-1, *visible.shape[-2:])  # one for all, or one for each


@given(ragged, sizes, sizes)
def test_sequences_of_different_pasts_have_each_its_own_band(band, height, width):
    """What their tiles of rows see, and their tiles of columns, is what the band of each alone sees."""
    causal, window = band.nearest == 0, None if band.farthest == math.inf else band.farthest + 1
    expected = []
    for past in band.offsets:
        alone = AttentionMask(band.queries, past + band.queries, causal, window)
        more = AttentionMask(band.queries, band.keys, causal, window, [past])
        seen = whole(more)
        assert torch.equal(seen[:, : alone.keys], whole(alone))
        expected.append(seen)
    by_rows, by_columns = (torch.zeros(len(expected), band.queries, band.keys, dtype=torch.bool) for _ in range(2))
    for rows in tiles(slice(0, band.queries), height):
        for columns in tiles(band.keys_of(rows), width):
            by_rows[:, rows, columns] = of_each(band, band.visible(rows, columns))
    for columns in tiles(slice(0, band.keys), width):
        for rows in tiles(band.queries_of(columns), height):
            by_columns[:, rows, columns] = of_each(band, band.visible(rows, columns))
    assert torch.equal(by_rows, torch.stack(expected)) and torch.equal(by_columns, torch.stack(expected))


def test_a_past_that_does_not_fit():
    with pytest.raises(ValueError, match=r"^attention: offset \(4\) \+ queries \(3\) exceeds keys \(6\)$"):
        AttentionMask(3, 6, offset=[1, 4])


@given(bands, sizes, sizes)
def test_tiles_of_rows_see_what_the_whole_sees(band, height, width):
    seen = torch.zeros(band.queries, band.keys, dtype=torch.bool)
    for rows in tiles(slice(0, band.queries), height):
        for columns in tiles(band.keys_of(rows), width):
            visible = band.visible(rows, columns)
            seen[rows, columns] = True if visible is None else visible
    assert torch.equal(seen, whole(band))


@given(bands, sizes, sizes)
def test_tiles_of_columns_are_seen_by_the_same(band, height, width):
    seen = torch.zeros(band.queries, band.keys, dtype=torch.bool)
    for columns in tiles(slice(0, band.keys), width):
        for rows in tiles(band.queries_of(columns), height):
            visible = band.visible(rows, columns)
            seen[rows, columns] = True if visible is None else visible
    assert torch.equal(seen, whole(band))


@given(bands, sizes, sizes)
def test_a_tile_needs_no_mask_exactly_where_all_is_seen(band, height, width):
    for rows in tiles(slice(0, band.queries), height):
        for columns in tiles(slice(0, band.keys), width):
            assert (band.visible(rows, columns) is None) == bool(whole(band)[rows, columns].all())


def test_causal_visits_the_tiles_up_to_the_diagonal():
    band = AttentionMask(64, 64, causal=True)
    visited = [len(list(tiles(band.keys_of(rows), 16))) for rows in tiles(slice(0, 64), 16)]
    assert visited == [1, 2, 3, 4]


def test_a_window_visits_as_many_tiles_however_long_the_sequence():
    band = AttentionMask(1024, 1024, causal=True, window=16)
    visited = [len(list(tiles(band.keys_of(rows), 16))) for rows in tiles(slice(0, 1024), 16)]
    assert visited == [1] + [2] * 63


@given(st.integers(0, 30), st.integers(0, 60), sizes)
def test_tiles_cover_a_span_once(start, stop, size):
    covered = [i for each in tiles(slice(start, stop), size) for i in range(each.start, each.stop)]
    assert [i for i in covered if i >= start] == list(range(start, stop))
    assert covered == sorted(set(covered))


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_a_window_has_at_least_the_query_itself(window):
    with pytest.raises(ValueError, match=rf"^attention: window must be an integer >= 1.* got {window}$"):
        AttentionMask(4, 4, window=window)
