"""The modeled all-reduce beside published ones: as close as the line that was fitted to them, and no closer."""

import runpy
from pathlib import Path

import pytest

from tinydist.hardware.published import ALL_REDUCES, SIZES

MODEL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "allreduce_model.py"))
FITS = MODEL["FITS"]

# What was stated of the fits: mean and largest relative error of the time, and microseconds of a step of the ring.
STATED = {
    "8 x A100": (0.158, 0.572, 4.9),
    "8 x B200": (0.120, 0.404, 3.48),
    "4 x 8 B200": (0.081, 0.270, 6.64),
}
systems = pytest.mark.parametrize("system", STATED)


def rounding(system, size):
    """What the digits that were printed leave open in an error: of the points, of the fit and of the error."""
    _, _, bandwidth, _ = FITS[system]
    point = ALL_REDUCES[system][size]
    seconds = MODEL["published_seconds"](system, size)
    return 0.005e9 / point + 0.05e-6 / seconds + 0.05e9 / bandwidth + 0.0005


@systems
def test_error_is_that_of_the_fit(system):
    mean, largest, _ = STATED[system]
    errors = [abs(error) for error in MODEL["errors"](system, MODEL["fitted_seconds"])]
    assert sum(errors) / len(errors) == pytest.approx(mean, abs=0.0006)
    worst = max(errors)
    size = SIZES[-len(errors) :][errors.index(worst)]
    assert worst == pytest.approx(largest, abs=(1 + largest) * rounding(system, size))


@systems
def test_step_of_the_ring_has_its_share_of_the_latency(system):
    ranks, latency, _, _ = FITS[system]
    step = MODEL["fitted_link"](*FITS[system][1:3], ranks).latency
    assert step * 1e6 == pytest.approx(STATED[system][2], abs=0.01)
    assert step * 2 * (ranks - 1) == pytest.approx(latency)


def test_table_of_the_benchmark(capsys):
    MODEL["table"]("8 x A100")
    out = capsys.readouterr().out
    assert "  16 GiB     234.89     225.38      +4%      299.86     -22%" in out
    assert "fitted: mean error 15.8%" in out
