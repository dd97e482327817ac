"""Kernels that memory holds up."""

import pytest

from tinydist.hardware.kernels import LAUNCHED, MEMORY, START, memory_time


def test_an_addition_of_201_megabytes():
    """112 us on A100, 62 on H100, of which its cache has a part (vidur@7d47513)."""
    nbytes = 3 * 2 * 4096 * 8192
    assert memory_time("A100", nbytes) == pytest.approx(112e-6, rel=0.06)
    assert memory_time("H100", nbytes) == pytest.approx(62e-6, rel=0.08)


def test_nothing_takes_the_start():
    assert all(memory_time(device, 0) == START < LAUNCHED for device in MEMORY)


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match=r"memory_time: device must be one of A100, .* got 'V100'"):
        memory_time("V100", 1)
