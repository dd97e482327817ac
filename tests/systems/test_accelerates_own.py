"""Accelerate's own test scripts, unmodified from its wheel, on simulated ranks with pretended GPUs."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("accelerate")
SCRIPTS = {  # its own assertions are the test -> (ranks, what it prints at last, or near it)
    "test_script": (2, "**Test reinstantiated state**"),  # written for two processes, and so is the data loop
    "test_distributed_data_loop": (2, "Test DataLoader with shuffle=False"),
    "test_sync": (4, "**Test `accumulate` gradient accumulation with optimizer and scheduler"),
    "test_ops": (4, "testing sending tensors across devices"),
}

BY_CHANCE = "Gradients in sync when they should not be"  # test_sync draws data without a seed, and compares


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_passes(script):
    if script == "test_distributed_data_loop":
        pytest.importorskip("torchdata")  # whose loader it tests too
    ranks, printed = SCRIPTS[script]
    run = [sys.executable, "-m", "tinydist", "run", "--gpus", "--nproc-per-node", str(ranks)]
    sees = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(ranks)))}
    for _ in range(3):
        ran = subprocess.run(
            [*run, "-m", f"accelerate.test_utils.scripts.{script}"],
            env=os.environ | sees,
            capture_output=True,
            text=True,
        )
        if BY_CHANCE not in ran.stderr:
            break
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert printed in ran.stdout and f"{ranks} simulated ranks: " in ran.stdout
