"""The yardstick of NCCL's benchmarks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.hardware import Link, algorithm_bandwidth, bus_bandwidth, bus_factor, costs, fitted_link

ranks = st.integers(2, 300)
sizes = st.integers(1, 2**40)
rates = st.floats(1e6, 1e13)

# NVIDIA/nccl-tests@a0b82b22 doc/PERFORMANCE.md (read), for 4 ranks
FACTORS = {
    "all_reduce": 6 / 4,
    "reduce_scatter": 3 / 4,
    "all_gather": 3 / 4,
    "all_to_all": 3 / 4,
    "broadcast": 1,
    "reduce": 1,
}


@pytest.mark.parametrize("collective", FACTORS)
def test_factors(collective):
    assert bus_factor(collective, 4) == FACTORS[collective]


@pytest.mark.parametrize(
    "nbytes, microseconds, algorithm, bus",
    # 8 x A100, nccl-tests: stas00/ml-engineering@744d01e1 network/README.md (read)
    [(32_768, 43.83, 0.75, 1.31), (268_435_456, 2420.6, 110.90, 194.07), (17_179_869_184, 127997, 134.22, 234.89)],
)
def test_columns_of_a_published_run(nbytes, microseconds, algorithm, bus):
    assert algorithm_bandwidth(nbytes, microseconds * 1e-6) / 1e9 == pytest.approx(algorithm, abs=0.006)
    assert bus_bandwidth("all_reduce", nbytes, microseconds * 1e-6, 8) / 1e9 == pytest.approx(bus, abs=0.006)


@given(sizes, ranks, rates)
def test_bus_bandwidth_of_a_ring_is_that_of_its_link(n, p, rate):
    link = Link("no latency", 0, rate)
    for name in ("all_reduce", "reduce_scatter", "all_gather"):
        seconds = getattr(costs, f"ring_{name}")(n, p, link)
        assert bus_bandwidth(name, n, seconds, p) == pytest.approx(rate)
    assert bus_bandwidth("all_to_all", n, costs.pairwise_all_to_all(n, p, link), p) == pytest.approx(rate)


@given(sizes, ranks, st.floats(0, 1e-2), rates)
def test_a_fitted_link_gives_the_line_back(n, p, latency, bandwidth):
    line = latency + 2 * (p - 1) / p * n / bandwidth
    assert costs.ring_all_reduce(n, p, fitted_link(latency, bandwidth, p)) == pytest.approx(line)


def test_errors():
    with pytest.raises(ValueError, match="unknown collective 'allreduce'; available: 'all_reduce', "):
        bus_factor("allreduce", 4)
    with pytest.raises(ValueError, match=r"^fitted_link: ranks must be >= 2 .*, got 1$"):
        fitted_link(1e-6, 1e9, 1)
