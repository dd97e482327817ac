"""DeepSpeed itself on gloo processes, where it is installed: the same losses, learning rates and loss scales."""

import json
import os
import subprocess
import sys

import pytest
from training import against_deepspeed
from training.against_deepspeed import RANKS, configuration, losses_of

import tinydist
from tinydist.training import initialize

CASES = [[stage, precision, 2] for stage in (0, 1, 2, 3) for precision in ("fp32", "bf16", "fp16")]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    pytest.importorskip("deepspeed")
    folder = tmp_path_factory.mktemp("deepspeed")
    how = {"FOUND": str(folder / "rank"), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    subprocess.run([*torchrun, against_deepspeed.__file__, json.dumps(CASES)], env=os.environ | how, check=True)
    return [json.loads((folder / f"rank-{rank}").read_text()) for rank in range(RANKS)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=str)
def test_deepspeed_has_the_same_losses_rates_and_scales(theirs, case):
    stage, precision, _ = case

    def program():
        return losses_of(initialize, configuration(*case), lambda engine: engine.loss_scale)

    for rank, ours in enumerate(tinydist.launch(program, RANKS, observe=False).results):
        losses, rates, scales = zip(*ours)
        their_losses, their_rates, their_scales = zip(*theirs[rank][CASES.index(case)])
        assert rates == their_rates
        if precision == "fp32" or (precision == "bf16" and stage > 0):  # else 16 bits round otherwise in the end
            assert losses == pytest.approx(their_losses, abs=1e-5)
        if stage > 0:  # what ZeRO's optimizers show
            assert scales == their_scales
