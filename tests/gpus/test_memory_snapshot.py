"""Memory snapshots of a pretended GPU: their peak is the ledger's, and torch's own tool reads them."""

import pickle
import subprocess
import sys
from itertools import accumulate, pairwise

import pytest
import torch

import tinydist

memory = torch.cuda.memory


def train(path, history=True):
    if history:
        memory._record_memory_history(max_entries=100_000)
    layer = torch.nn.Linear(1000, 1000).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    for _ in range(2):
        layer(torch.ones(64, 1000, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    memory._dump_snapshot(path)
    return torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()


def snapshot(tmp_path, *args, **options):
    path = tmp_path / "snapshot.pickle"
    run = tinydist.launch(train, 1, str(path), *args, gpus=True, **options)
    return path, pickle.loads(path.read_bytes()), run.results[0]


@pytest.mark.parametrize("fake", [False, True])
def test_its_peak_is_the_ledgers(tmp_path, fake):
    _, found, (peak, held) = snapshot(tmp_path, fake=fake)
    sizes = {"alloc": 1, "free_completed": -1, "free_requested": 0}
    changes = [sizes[each["action"]] * each["size"] for each in found["device_traces"][0]]
    assert max(accumulate(changes)) == peak
    assert sum(changes) == held == sum(each["allocated_size"] for each in found["segments"])


def test_frames_say_whose_and_what_for(tmp_path):
    _, found, _ = snapshot(tmp_path)
    frames = {(frame["filename"], frame["name"]) for each in found["device_traces"][0] for frame in each["frames"]}
    assert {("weight", "parameters"), ("weight", "optimizer states"), ("weight", "gradients")} <= frames


def test_storages_do_not_overlap(tmp_path):
    _, found, _ = snapshot(tmp_path)
    places = sorted((each["address"], each["total_size"]) for each in found["segments"])
    assert all(address + size <= following for (address, size), (following, _) in pairwise(places))


def test_without_a_history_there_are_segments_only(tmp_path):
    _, found, (_, held) = snapshot(tmp_path, False)
    assert found["device_traces"][0] == [] and sum(each["total_size"] for each in found["segments"]) == held


def test_torchs_tool_reads_it(tmp_path):
    path, found, _ = snapshot(tmp_path)
    command = [sys.executable, "-m", "torch.cuda._memory_viz", "trace", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{len(found['device_traces'][0])} entries" in said and "3.8MiB" in said
