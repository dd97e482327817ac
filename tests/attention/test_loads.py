"""What kernels load, seen in the interpreter. Skipped where there is no Triton, or where kernels are compiled."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: make kernels")

from tinydist.attention.flash_triton import flash_forward_triton
from tinydist.attention.kernels.loads import loads_of
from tinydist.attention.kernels.tiles import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="kernels are compiled")


@pytest.mark.parametrize("causal, tiles", [(False, 3 * 3), (True, 1 + 2 + 3)])
def test_each_program_loads_its_queries_once_and_the_keys_that_they_see(causal, tiles):
    q, k, v = torch.randn(3, 1, 2, 40, 16)
    with loads_of(q=q, k=k) as loads:
        flash_forward_triton(q, k, v, causal=causal, tile=(16, 16))
    assert [load.name for load in loads].count("q") == 2 * 3
    assert [load.name for load in loads].count("k") == 2 * tiles
    assert sum(load.nbytes for load in loads if load.name == "q") == q.nbytes
    last = [load for load in loads if load.program == (2, 1, 0)]
    assert last[0][1:] == ("q", slice(72, 80), 8 * 16 * 4)  # what the mask hides is not loaded
    assert [load.rows for load in last[1:]] == [slice(40, 56), slice(56, 72), slice(72, 80)]


def test_afterwards_nobody_watches():
    q, k, v = torch.randn(3, 1, 1, 16, 16)
    with loads_of(q=q) as loads:
        pass
    flash_forward_triton(q, k, v, tile=(16, 16))
    assert loads == []
