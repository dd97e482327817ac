"""Matmuls as measured: tables within their tolerance, and laws that hold for every shape."""

import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.hardware.products import RATES, START, product_rates, product_time

TABLES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "products.py"))
ROWS = TABLES["measured"]()
MEAN, BIAS = (
    {"B200": 0.092, "A100 PCIe": 0.05, "A100": 0.06, "H100": 0.09, "H200": 0.10, "GB200": 0.06},
    0.05,
)
sizes = st.integers(1, 20_000)


@pytest.mark.parametrize("device", MEAN)
def test_tables_agree(device):
    errors = TABLES["errors"](ROWS[device])
    assert TABLES["mean"](map(abs, errors)) <= MEAN[device]
    assert abs(TABLES["mean"](errors)) <= BIAS


def test_large_matmuls_of_b200_reach_half_of_its_peak():
    """2,250 TFLOP/s: 48 % of the rows above 1 ms, whatever their shape."""
    large = [row for row in ROWS["B200"] if row[3] > 1e-3]
    errors = TABLES["errors"](large)
    assert len(large) > 100 and TABLES["mean"](map(abs, errors)) <= 0.045


@given(rows=sizes, columns=sizes, inner=sizes, device=st.sampled_from(sorted(RATES)))
def test_warm_is_never_faster_and_nothing_exceeds_burst_or_memory(rows, columns, inner, device):
    rates = RATES[device]
    cold = product_time(device, 1, rows, columns, inner, sustained=False)
    assert START < cold <= product_time(device, 1, rows, columns, inner)
    assert 2 * rows * columns * inner / cold <= rates.burst
    assert (rows * inner + inner * columns + rows * columns) * 2 / cold <= rates.bandwidth


@given(rows=sizes, columns=sizes, inner=sizes)
def test_transposed_takes_as_long_and_accumulated_no_less(rows, columns, inner):
    seconds = product_time("H100", 1, rows, columns, inner)
    assert product_time("H100", 1, columns, rows, inner) == pytest.approx(seconds, rel=1e-12)
    assert product_time("H100", 1, rows, columns, inner, accumulate=True) >= seconds


def test_power_goes_with_the_cube_of_the_clock():
    """A100 PCIe is an A100 with 300 W instead of 400."""
    limited = RATES["A100"].limited_to(300)
    assert limited.sustained == pytest.approx(RATES["A100 PCIe"].sustained, rel=0.02)
    assert RATES["A100"].limited_to(4000).sustained == RATES["A100"].burst
    assert RATES["H100 500W"].sustained < 0.9 * RATES["H100"].sustained


def test_split_k_helps_where_the_grid_is_small():
    """256 x 256 in tiles of 64 x 64 are 16 for 132 multiprocessors; 16 times as long, it takes less than 16 times."""
    short, long = (product_time("H100", 1, 256, 256, inner) - START for inner in (4096, 65536))
    alone = 2 * 256 * 256 * 65536 / (RATES["H100"].within * 16 / 132)
    assert long < alone / 2 and short < long


def test_short_inner_dimensions_of_unfused_attention_are_slow():
    rates = [2 * 64 * 2048**2 * inner / product_time("A100", 64, 2048, 2048, inner) for inner in (64, 128, 2048)]
    assert 60e12 < rates[0] < rates[1] < rates[2] <= RATES["A100"].sustained


def test_float8_is_faster_where_there_are_tensor_cores_for_it():
    seconds = [product_time("H100", 1, 16384, 16384, 16384, dtype) for dtype in ("bfloat16", "float8_e4m3fn")]
    assert 1.6 < seconds[0] / seconds[1] <= 2
    with pytest.raises(
        ValueError, match="product_time: dtype must be one for which the device has tensor cores, got 'float8'"
    ):
        product_time("A100", 1, 10, 10, 10, "float8")


def test_unknown_devices_are_listed():
    with pytest.raises(ValueError, match="unknown product rates 'H300'; available: 'A100', 'A100 PCIe'"):
        product_rates("H300")
    with pytest.raises(ValueError, match=r"limited_to: watts must be .*, got 0"):
        RATES["H100"].limited_to(0)
