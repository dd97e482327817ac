"""A cluster on which only products take time, and what is sent: seconds that are computed by hand."""

import math

import pytest

from tinydist.hardware import Cluster, Device, Link

RANKS, LAYERS, WIDTH, ROWS = 4, 5, 64, 48
WIRE = Link("wire", 3e-6, 7e9)
PRODUCT = 2 * ROWS * WIDTH * WIDTH / 1e10  # seconds: 39 us
LAYER_BYTES = WIDTH * WIDTH * 4  # bytes of a layer: gathered in 11 us


def cluster(runs_ahead=True, **given):
    """Only products take time on it, and what is sent."""
    device = Device("toy", {"float32": 1e10}, 1e12, math.inf, 0.0, runs_ahead)
    return Cluster(device, RANKS, WIRE, **given)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-9, abs=0)
