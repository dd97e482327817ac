"""Our schedules in torch's worker, torch's in ours."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import assert_equals_one_process, batch, blocks, gradients, in_one_process
from pipeline_parallel.torchs_own import torchs
from tiny_training import assert_every_rank_has
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import tinydist
from tinydist.pipeline_parallel import SCHEDULES, make_schedule, torch_csv, verify, with_messages


@pytest.mark.parametrize("name", SCHEDULES)
def test_saved_and_loaded(name, tmp_path):
    for schedule in (make_schedule(name, 4, 8), with_messages(make_schedule(name, 4, 8))):
        torch_csv.save(schedule, tmp_path / f"{name}.csv")
        assert torch_csv.load(tmp_path / f"{name}.csv") == schedule


def test_as_torch_writes_it(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0UNSHARD,0F1,0WAIT_SEND_F0,,0B0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n,1F0,1B0,1F1,1B1,,\n")
    assert str(verify(torch_csv.load(path))) == str(make_schedule("1F1B", 2, 2))


@pytest.mark.parametrize(
    "cells, message", [("0F0,0G0\n", "rank 0, step 1: parse: .* got '0G0'"), (",\n", "no actions")]
)
def test_no_schedule(cells, message, tmp_path):
    (tmp_path / "bad.csv").write_text(cells)
    with pytest.raises(ValueError, match=message):
        torch_csv.load(tmp_path / "bad.csv")


def run_in_torch(schedule, path, form):
    rank = dist.get_rank()
    everything = blocks(schedule.stages)
    mine = {stage: everything[stage] for stage in schedule.stages_of(rank)}
    stages = [PipelineStage(block, stage, schedule.stages, torch.device("cpu")) for stage, block in mine.items()]
    pipeline = _PipelineScheduleRuntime(stages, schedule.microbatches, F.mse_loss)
    pipeline._load_csv(path, format=form)
    inputs, targets = batch(schedule.microbatches)
    pipeline.step(*([inputs] if 0 in mine else []), **({"target": targets} if schedule.stages - 1 in mine else {}))
    return gradients(mine)


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
@pytest.mark.parametrize("name", ["naive", "1F1B", "interleaved 1F1B", "ZB-H2", "ZB-V", "DualPipeV"])
def test_torch_runs_ours(name, form, tmp_path):
    """Its runtime takes a schedule with messages as it stands; only a rank's last step is its own: mean gradients."""
    schedule = make_schedule(name, 2, 4)
    whole = schedule if form == "compute_only" else with_messages(schedule)
    torch_csv.save(whole, tmp_path / "ours.csv")
    run = tinydist.launch(run_in_torch, 2, schedule, str(tmp_path / "ours.csv"), form)
    together = {stage: grads for mine in run.results for stage, grads in mine.items()}
    scale = 1 if form == "compute_only" else 4  # in a schedule with messages it wants REDUCE_GRAD to divide by M
    expected, _ = in_one_process(schedule.stages, 4)
    assert_every_rank_has({stage: [scale * grad for grad in grads] for stage, grads in expected.items()}, [together])


@pytest.mark.parametrize("name", ["looped BFS", "ZB-H1", "ZB-V", "DualPipeV"])
def test_we_run_torchs(name):
    """With torch's own messages: they keep the same rule."""
    assert_equals_one_process(torchs(name, 2, 4, with_messages=True))
