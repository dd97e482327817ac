"""Our schedules in torch's worker, torch's in ours."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import assert_equals_one_process, batch, blocks, gradients, step
from pipeline_parallel.torchs_own import torchs
from tiny_training import assert_every_rank_has
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime, _simulate_comms_compute

import tinydist
from tinydist.pipeline_parallel import (
    SCHEDULES,
    Costs,
    find_schedule,
    make_schedule,
    torch_csv,
    v_shape,
    verify,
    with_messages,
    with_recomputation,
    with_steps,
)
from tinydist.torch_internals import pipeline_kinds


@pytest.mark.parametrize("name", SCHEDULES)
def test_saved_and_loaded(name, tmp_path):
    for schedule in (make_schedule(name, 4, 8), with_messages(make_schedule(name, 4, 8))):
        torch_csv.save(schedule, tmp_path / f"{name}.csv")
        assert torch_csv.load(tmp_path / f"{name}.csv") == schedule


def test_as_torch_writes_it(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0UNSHARD,0F1,0WAIT_SEND_F0,,0B0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n,1F0,1B0,1F1,1B1,,\n")
    assert str(verify(torch_csv.load(path))) == str(make_schedule("1F1B", 2, 2))


def test_of_what_ends_a_step_torch_is_given_the_reduction(tmp_path):
    schedule = with_recomputation(with_steps(make_schedule("1F1B", 2, 1), checked="before"))
    torch_csv.save(schedule, tmp_path / "ended.csv")
    kinds = {"WAIT_REDUCE_GRAD"} & pipeline_kinds()  # which not all versions have
    first, _ = (tmp_path / "ended.csv").read_text().splitlines()
    assert first.split(",") == ["0F0", "0B0", "0REDUCE_GRAD0", *[f"0{kind}0" for kind in kinds]]


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


def of_name(name, ranks, microbatches):
    if name == "found":
        return find_schedule(v_shape(ranks), microbatches, Costs(1, 1.3, 0.6, message=0.2), most_activations=2 * ranks)
    return make_schedule(name, ranks, microbatches)


@pytest.mark.parametrize("how", ["compute_only", "posted ahead", "blocking"])
@pytest.mark.parametrize("name", [*SCHEDULES, "found"])
def test_torch_runs_ours(name, how, tmp_path):
    """Its runtime takes a schedule with messages as it stands."""
    schedule = of_name(name, 2, 4)
    whole = schedule if how == "compute_only" else with_messages(with_steps(schedule), blocking=how == "blocking")
    torch_csv.save(whole, tmp_path / "ours.csv")
    form = how if how == "compute_only" else "compute_comms"
    run = tinydist.launch(run_in_torch, 2, schedule, str(tmp_path / "ours.csv"), form, observe=False)
    ours = tinydist.launch(lambda: step(schedule)[0], 2, observe=False)
    assert_every_rank_has(ours.results, [run.results])


def overlaps_apart(schedule):
    """torch's dry run knows no overlaps."""
    return replace(
        schedule, programs=tuple(tuple(part for each in row for part in each.parts) for row in schedule.programs)
    )


@pytest.mark.parametrize("P, M", [(1, 3), (2, 4), (3, 6), (4, 8), (4, 3)])
@pytest.mark.parametrize("name", [*SCHEDULES, "found"])
def test_torchs_dry_run_in_which_receives_block(name, P, M):
    schedule = overlaps_apart(of_name(name, P, M))
    whole = verify(with_messages(schedule, blocking=True))
    rows = {rank: [_Action.from_str(str(each)) for each in program] for rank, program in enumerate(whole.programs)}
    done = _simulate_comms_compute(rows, whole.rank_of.__getitem__, whole.stages)
    assert [[each for each in row if each] for row in done.values()] == list(rows.values())


@pytest.mark.parametrize("name", ["looped BFS", "ZB-H1", "ZB-V", "DualPipeV"])
def test_we_run_torchs(name):
    """With torch's own messages: they keep the same rule."""
    assert_equals_one_process(torchs(name, 2, 4, with_messages=True))
