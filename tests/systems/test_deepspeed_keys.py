"""What chapter 11b says that keys cost in DeepSpeed is what they cost there today, and what it is beside ours."""

import pytest

from benchmarks import deepspeed_keys
from benchmarks.deepspeed_keys import CASES, RANKS, stored

N = 3_692_032  # parameters of its model
MICROBATCHES = 4
EMBEDDING = 2048 * 256  # tied: it is used twice in each pass


def test_the_table_of_the_notebook_has_each_case():
    assert [*stored()] == [*CASES]


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_what_is_measured(name, systems):
    assert deepspeed_keys.found(name) == pytest.approx(stored()[name], rel=0.01)


# What the notebook says of the rows.


def volume(reductions, gathers):
    """Bytes in bf16, of reduce-scatters and all-gathers of all parameters."""
    return pytest.approx(2 * N * (reductions + gathers) * (RANKS - 1) / RANKS, rel=1e-4)


def test_stages_1_and_2_all_reduce_where_a_reduce_scatter_would_do():
    rows = stored()
    assert rows["stage 0"]["sent"] == volume(2, 0)
    assert rows["stage 1"]["sent"] == rows["stage 1, micro batch 4"]["sent"] == volume(2, 1)
    assert rows["stage 2"]["sent"] == volume(2 * MICROBATCHES, 1)
    assert rows["stage 2, no multi-rank bucket"]["sent"] == volume(MICROBATCHES, 1)


def test_stage_3_gathers_once_in_a_microbatch_unless_nothing_stays():
    rows = stored()
    assert rows["stage 3, no prefetch"]["sent"] == volume(MICROBATCHES, MICROBATCHES)
    gathers = 2 * MICROBATCHES * (1 + EMBEDDING / N)
    assert rows["stage 3, no prefetch, reuse 0"]["sent"] == pytest.approx(
        volume(MICROBATCHES, gathers).expected, rel=0.01
    )
    between = rows["stage 3, auto, reuse 0"]["sent"]
    assert rows["stage 3, auto"]["sent"] < between < rows["stage 3, no prefetch, reuse 0"]["sent"]


def test_a_bucket_is_a_buffer_and_with_overlap_there_are_two():
    peaks = {name: row["peak"] for name, row in stored().items()}
    numbers = 200_000_000 - 1_000_000
    assert peaks["bucket 2e8"] - peaks["bucket 1e6"] == pytest.approx(2 * numbers, rel=0.01)
    assert peaks["bucket 2e8, overlap"] - peaks["bucket 1e6, overlap"] == pytest.approx(2 * 2 * numbers, rel=0.01)
