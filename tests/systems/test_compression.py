"""The compressed all-reduce and its optimizers: those of DeepSpeed 0.19.6, and timm's LAMB."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tinydist.compression import Lamb

ROOT = Path(__file__).parents[2]
DEEPSPEED, TIMM = (ROOT / ".venv-systems" / name for name in ("deepspeed-0.19.6", "timm-1.0.31"))
FIRST_COMPRESSED = 11  # 10 steps are its warm-up


@pytest.fixture(scope="module")
def same(systems):
    """Of each rank: case -> for each step, or result, whether it is equal to the bit."""
    if not DEEPSPEED.exists():
        pytest.skip("DeepSpeed 0.19.6, the last version with 1-bit optimizers, is not installed: make systems")
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("deepspeed_compression.py")],
        env=os.environ | {"PYTHONPATH": f"{DEEPSPEED}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("case, number", [("all_reduce", 15), *((f"{name}", 50) for name in (
    "OneBitAdam", "ZeroOneAdam", "OneBitLamb"))])  # fmt: skip
def test_it_is_deepspeeds_to_the_bit(case, number, same):
    assert [of_rank[case] for of_rank in same] == [[True] * number] * 2


def test_deepspeeds_1_bit_lamb_keeps_what_a_step_leaves_in_the_padding(same):
    """So with padding they are the same only until there is something in it."""
    for of_rank in same:
        equal = of_rank["OneBitLamb, padded"]
        assert all(equal[:FIRST_COMPRESSED]) and not any(equal[FIRST_COMPRESSED + 5 :])


@pytest.fixture(scope="module")
def timms():
    """The class, from its file alone: the rest of timm wants torchvision."""
    if not TIMM.exists():
        pytest.skip("timm is not installed: make systems")
    sys.modules["timm_optim"] = package = ModuleType("timm_optim")
    package.__path__ = [str(TIMM / "timm" / "optim")]
    return import_module("timm_optim.lamb").Lamb


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_is_timms(decay, timms):
    draw = torch.Generator().manual_seed(0)
    start = [torch.randn(size, generator=draw) for size in (35, 14)]
    theirs, ours = ([each.clone().requires_grad_() for each in start] for _ in range(2))
    options = dict(lr=0.01, weight_decay=decay)
    both = timms(theirs, **options, always_adapt=True, max_grad_norm=None), Lamb(ours, **options)
    for _ in range(50):
        for their, our in zip(theirs, ours):
            their.grad = torch.randn(their.shape, generator=draw)
            our.grad = their.grad.clone()
        for optimizer in both:
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert all((one - other).abs().max() > 1e-2 for one, other in zip(start, ours))
