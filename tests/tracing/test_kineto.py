"""Traces as torch.profiler writes them on GPUs: what Holistic Trace Analysis reads of them."""

import json

import pytest
import torch
import torch.distributed as dist

import tinydist


def program():
    x = torch.ones(1000, 1000)
    work = dist.all_reduce(x[:500].clone(), async_op=True)
    y = x @ x
    work.wait()
    dist.barrier()
    return y


@pytest.fixture(scope="module")
def run():
    return tinydist.launch(program, 2, cluster="PCIe box")


def kernels(run, tmp_path, rank=0):
    path = run.trace.save_by_rank(tmp_path)[rank]
    written = json.loads(path.read_text())
    return written, [each for each in written["traceEvents"] if each["cat"] == "kernel"]


def test_a_file_for_each_rank(run, tmp_path):
    paths = run.trace.save_by_rank(tmp_path / "new")
    assert [path.name for path in paths] == ["rank0.json", "rank1.json"]
    for rank, path in enumerate(paths):
        info = json.loads(path.read_text())["distributedInfo"]
        assert info == {"backend": "nccl", "rank": rank, "world_size": 2}


def test_kernels_are_on_streams_and_collectives_are_nccls(run, tmp_path):
    _, found = kernels(run, tmp_path)
    streams = {each["name"]: each["args"]["stream"] for each in found}
    assert streams["mm"] == 7 and streams["ncclDevKernel_all_reduce"] == 8
    reduced = next(each for each in found if each["name"] == "ncclDevKernel_all_reduce")
    assert reduced["args"]["Collective name"] == "all_reduce" and reduced["args"]["Group size"] == 2


def test_each_kernel_has_its_launch_before_it(run, tmp_path):
    written, found = kernels(run, tmp_path, rank=1)
    launches = {
        each["args"]["correlation"]: each["ts"] for each in written["traceEvents"] if each["cat"] == "cuda_runtime"
    }
    assert len(launches) == len(found)
    assert all(launches[each["args"]["correlation"]] <= each["ts"] for each in found)


def test_kernels_take_the_time_of_the_trace(run, tmp_path):
    _, found = kernels(run, tmp_path)
    events = [each for each in run.trace.of(0) if each.name != "wait"]
    taken = 1e6 * sum(each.end - each.start for each in events)
    assert sum(each["dur"] for each in found) == pytest.approx(taken, abs=1e-2)


def test_a_window_is_written_alone(run, tmp_path):
    step = tinydist.launch(lambda: (tinydist.mark("a"), torch.ones(10) + 1, tinydist.mark("b"), torch.ones(10) * 2), 1)
    _, found = kernels(step.between("a", "b"), tmp_path)
    assert [each["name"] for each in found] == ["ones", "add"]


def test_ranks_that_did_not_run_have_no_file(tmp_path):
    run = tinydist.launch(lambda: torch.ones(10) + 1, 4, fake=True, only=[2])
    assert [path.name for path in run.trace.save_by_rank(tmp_path)] == ["rank2.json"]
