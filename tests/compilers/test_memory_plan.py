"""Memory plans: nothing overlaps, at least what is alive, seldom much more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.compilers import Buffer, greedy_by_size, most_alive, side_by_side
from tinydist.compilers.memory_plan import aligned

BUFFERS = st.builds(
    lambda nbytes, first, steps: Buffer(nbytes, first, first + steps),
    st.integers(0, 300),
    st.integers(0, 12),
    st.integers(0, 5),
)


@given(st.lists(BUFFERS, max_size=15))
def test_what_is_alive_together_does_not_overlap(buffers):
    offsets, total = greedy_by_size(buffers)
    for place, (offset, buffer) in enumerate(zip(offsets, buffers)):
        assert offset % 64 == 0 and offset + buffer.nbytes <= total
        for other, after in zip(offsets[:place], buffers[:place]):
            apart = offset + buffer.nbytes <= other or other + after.nbytes <= offset
            assert apart or not (buffer.meets(after) and buffer.nbytes and after.nbytes)
    assert most_alive(buffers) <= total <= side_by_side(buffers)[1]


def test_a_chain_needs_two_places():
    buffers = [Buffer(128, step, step + 1) for step in range(6)]
    assert greedy_by_size(buffers) == ([0, 128, 0, 128, 0, 128], 256)
    assert side_by_side(buffers)[1] == 6 * 128
    assert most_alive(buffers) == 256


def test_the_smallest_gap_is_taken():
    """Between 512 and 640, not behind: the two around it are larger, and placed before."""
    buffers = [Buffer(512, 0, 9), Buffer(256, 0, 2), Buffer(192, 3, 9), Buffer(64, 3, 5), Buffer(64, 0, 1)]
    offsets, total = greedy_by_size(buffers)
    assert offsets == [0, 512, 512, 704, 768] and total == 832
    assert sum(map(aligned, buffers)) == 1088


def test_errors():
    with pytest.raises(ValueError, match=r"Buffer: last \(1\) must be at least first \(2\)"):
        Buffer(8, 2, 1)
    with pytest.raises(ValueError, match="greedy_by_size: buffers must be a list, each item a Buffer"):
        greedy_by_size([8, 8])
