"""Slow memory: three programs give the same, and move the bytes that the papers' formulas say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.attention import attention, hbm
from tinydist.attention.hbm import HBM, flash_1, flash_2, naive

lengths = st.integers(1, 100)
dims = st.sampled_from([1, 3, 8, 16])
DOUBLE = 8  # bytes


def inputs(T, S, d, dtype=torch.float64):
    generator = torch.Generator().manual_seed(T * S)
    return [torch.randn(n, d, dtype=dtype, generator=generator) for n in (T, S, S)]


def moved(program, T, S, d, *fast):
    """Numbers, not bytes. The result is checked on the way."""
    memory, (q, k, v) = HBM(), inputs(T, S, d)
    out = program(memory, q, k, v, *fast)
    torch.testing.assert_close(out, attention(*(x[None, None] for x in (q, k, v)))[0, 0], rtol=0, atol=1e-12)
    return memory.loaded / DOUBLE, memory.stored / DOUBLE


@given(lengths, lengths, dims)
def test_naive_as_in_algorithm_0(T, S, d):
    assert moved(naive, T, S, d) == (T * d + 2 * S * d + 2 * T * S, 2 * T * S + T * d)


@given(lengths, lengths, dims, st.integers(4, 100))
def test_flash_1_as_in_algorithm_1(T, S, d, rows):
    C = math.ceil(S / math.ceil(rows / 4))  # tiles of keys, where `rows` rows fit the fast memory
    loaded, stored = moved(flash_1, T, S, d, rows * d * DOUBLE)
    assert loaded == 2 * S * d + C * (2 * T * d + 2 * T)
    assert stored == C * (T * d + 2 * T)


@given(lengths, lengths, dims, st.integers(4, 100))
def test_flash_2_stores_its_output_once(T, S, d, rows):
    R = math.ceil(T / math.ceil(rows / 4))  # tiles of queries
    loaded, stored = moved(flash_2, T, S, d, rows * d * DOUBLE)
    assert loaded == T * d + R * 2 * S * d
    assert stored == T * d + T


@pytest.mark.parametrize("program, constant", [(flash_1, 12), (flash_2, 8)])
def test_theorem_2(program, constant):
    """N^2 d^2 / M, times a constant: twice the fast memory is half the bytes, twice the tokens four times."""
    d = 8
    for N, M in [(256, 1024), (256, 2048), (512, 1024), (512, 2048)]:
        found = sum(moved(program, N, N, d, M * DOUBLE))
        leading = constant * N**2 * d**2 / M
        assert leading < found < 1.5 * leading


def test_less_is_moved_at_the_sizes_of_the_paper():
    """GPT-2 medium: 1024 tokens, head dim 64, fp16, 192 kB of fast memory on an A100."""
    N, d, fast = 1024, 64, 192 * 1024
    memories = [HBM() for _ in range(3)]
    q, k, v = inputs(N, N, d, torch.float16)
    naive(memories[0], q, k, v)
    flash_1(memories[1], q, k, v, fast)
    flash_2(memories[2], q, k, v, fast)
    assert [memory.moved / 2 for memory in memories] == [
        4 * N * d + 4 * N * N,
        2 * N * d + 3 * (3 * N * d + 4 * N),
        2 * N * d + N + 3 * 2 * N * d,
    ]


def test_tiles_are_visited_by_columns_or_by_rows():
    first, second = HBM(), HBM()
    flash_1(first, *inputs(5, 7, 3), 4 * 3 * DOUBLE * 3)  # tiles of 3
    flash_2(second, *inputs(5, 7, 3), 4 * 3 * DOUBLE * 3)
    rows, columns = [slice(0, 3), slice(3, 5)], [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert first.visited == [(row, column) for column in columns for row in rows]
    assert second.visited == [(row, column) for row in rows for column in columns]


def test_bytes_follow_the_dtype():
    memory = HBM()
    naive(memory, *inputs(10, 10, 4, torch.float16))
    assert (memory.loaded, memory.stored) == (2 * (120 + 200), 2 * (200 + 40))
    assert memory.moved == memory.loaded + memory.stored


def test_programs_that_keep_a_tensor_see_a_copy():
    """What is computed in fast memory reaches the slow one by ``store`` alone."""
    memory, x = HBM(), torch.ones(4)
    memory.load(x).zero_()
    assert x.eq(1).all()
    memory.store(x, torch.zeros(4))
    assert x.eq(0).all() and memory.moved == 2 * 16


def test_fast_memory_must_hold_a_row_of_each():
    with pytest.raises(ValueError, match=r"^SRAM: must hold 4 rows of 64 bytes each, got 255 bytes$"):
        flash_2(HBM(), *inputs(5, 5, 8), 255)
    assert hbm.tile_sizes(256, 8, DOUBLE) == (1, 1)


def test_tiles_by_the_papers_rule():
    """The one that stays has ceil(M / 4d) rows, the one that passes at most d."""
    assert hbm.tile_sizes(192 * 1024, 64, 2) == (384, 64)
    assert hbm.tile_sizes(16 * 1024, 64, 2) == (32, 32)
    assert hbm.tile_sizes(16 * 1024 + 2, 64, 2) == (33, 33)


# A capacity that refuses.


def on_meta(T, S, d):
    return [torch.empty(n, d, dtype=torch.float16, device="meta") for n in (T, S, S)]


@given(st.sampled_from([1, 2, 3, 8, 16]), st.integers(1, 50), st.sampled_from([flash_1, flash_2]))
def test_the_papers_tiles_fit_with_their_scores_where_m_is_large(d, stays, program):
    """Four tiles of M / 4d rows are M already; from M = 8 d^2 + 8 d on those that pass are small, and leave room."""
    passes, M = min(stays, d), 4 * stays * d
    rows = passes if program is flash_1 else stays  # of queries, which have two numbers more
    memory = HBM()
    program(memory, *on_meta(stays, stays, d), M * 2)
    assert memory.peak == 2 * (2 * stays * d + 2 * passes * d + stays * passes + 2 * rows)
    assert (memory.peak <= M * 2) == (8 * d**2 + 8 * d <= M if program is flash_1 else stays * (d - 2) >= 2 * d**2)


@given(lengths, lengths, st.integers(4, 100), st.sampled_from([flash_1, flash_2]))
def test_what_it_holds_fits_to_the_byte(T, S, rows, program):
    free, tensors = HBM(), inputs(T, S, 8)
    expected = program(free, *tensors, rows * 8 * DOUBLE)
    exact = HBM(free.peak)
    assert torch.equal(program(exact, *tensors, rows * 8 * DOUBLE), expected)
    assert (exact.moved, exact.visited) == (free.moved, free.visited)
    with pytest.raises(ValueError, match=r"^SRAM: .* bytes exceed "):
        program(HBM(free.peak - 1), *tensors, rows * 8 * DOUBLE)


def test_the_sizes_of_the_paper_fit_an_a100():
    fast = 192 * 1024
    for program, peak in ((flash_1, 163_840 + 256), (flash_2, 163_840 + 1536)):
        memory = HBM(fast)
        program(memory, *on_meta(1024, 1024, 64), fast)
        assert memory.peak == peak < fast


def test_a_refusal_says_which_tiles_and_how_many_bytes():
    refusal = (
        r"^SRAM: 41,216 bytes exceed 32,768: queries 64 x 64 \(8,192\), keys 64 x 64 \(8,192\), "
        r"values 64 x 64 \(8,192\), scores 64 x 64 \(8,192\), maximum 64 x 1 \(128\), total 64 x 1 \(128\), "
        r"output 64 x 64 \(8,192\)$"
    )
    memory = HBM(32 * 1024)
    with pytest.raises(ValueError, match=refusal):
        flash_2(memory, *on_meta(128, 128, 64), 32 * 1024)
    assert memory.stored == 0


def test_capacities_and_tiles_that_are_none():
    with pytest.raises(ValueError, match=r"^HBM: sram_bytes must be an integer >= 1 or None, got 0$"):
        HBM(0)
    with pytest.raises(TypeError, match=r"^hold: scores must be a Tensor, got 3$"):
        HBM().hold(scores=3)
