"""DeepSpeed itself on gloo processes, where it is installed: the same losses, learning rates and loss scales."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from training.compat import against_deepspeed
from training.compat.against_deepspeed import RANKS, configuration, losses_of
from training.compat.ds_configs import mutated, with_more_keys, without_auto

import tinydist
from tinydist.training import Config, initialize
from tinydist.training.compat.ds_file import ConfigError, paths

CASES = [[stage, precision, 2] for stage in (0, 1, 2, 3) for precision in ("fp32", "bf16", "fp16")]
CASES += [[stage, "bf16", 1] for stage in (1, 2, 3)]


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

    def program():
        return losses_of(initialize, configuration(*case), lambda engine: engine.loss_scale)

    for rank, ours in enumerate(tinydist.launch(program, RANKS, observe=False).results):
        losses, rates, scales = zip(*ours)
        their_losses, their_rates, their_scales = zip(*theirs[rank][CASES.index(case)])
        assert (rates, scales) == (their_rates, their_scales)
        same = as_long_as_they_are_the_same(*case, scales)
        assert losses[:same] == pytest.approx(their_losses[:same], abs=1e-5)


def as_long_as_they_are_the_same(stage, precision, accumulation, scales):
    """How many losses. In 16 bits without ZeRO, DeepSpeed makes Adam's states by a step on zeros, which decays weights
    and is counted; with ZeRO, the step that doubles the scale divides its gradients by the doubled one."""
    if precision == "fp32" or (precision == "bf16" and stage > 0):
        return len(scales)
    if stage == 0:
        return accumulation
    return 1 + next(place for place in range(1, len(scales)) if scales[place] > scales[place - 1])


@pytest.mark.exhaustive
@settings(max_examples=500, deadline=None)
@given(with_more_keys(list(paths())) | mutated().map(without_auto))
def test_deepspeed_accepts_what_is_accepted_here_and_fills_in_the_same_sizes(config):
    theirs = pytest.importorskip("deepspeed.runtime.config").DeepSpeedConfig
    before = json.dumps(config)
    try:
        ours = Config(config)
    except ConfigError:
        return  # more is refused here
    try:
        found = theirs(json.loads(before))
    except Exception as refusal:
        raise AssertionError(f"accepted here, refused by DeepSpeed: {before}") from refusal
    sizes = found.train_batch_size, found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps
    assert (ours.batch, ours.micro, ours.accumulation) == sizes
