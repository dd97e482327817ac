"""Numbers to be put into 8 bits, and how far they are from what they were."""

from functools import partial

import pytest
import torch
from hypothesis import strategies as st

from tinydist.precision import FORMATS, mxfp8

E4M3, E5M2 = FORMATS["fp8 e4m3"], FORMATS["fp8 e5m2"]
BOTH = pytest.mark.parametrize("format", [E4M3, E5M2], ids=str)
down = partial(mxfp8.quantize, rounding="down")
numbers = st.lists(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100), min_size=32, max_size=32)


def randoms(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()
