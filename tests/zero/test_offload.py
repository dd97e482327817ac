"""Offload to the host and to a disk: the same training; what crosses; what is left on the device; and failures."""

import os
from pathlib import Path

import pytest
import torch
from tiny_training import assert_every_rank_has, tiny_mlp
from torch import nn
from unobserved import launch
from zero.ladder import (
    A_LAYER,
    all_of,
    assert_same,
    linear,
    mine,
    train,
    trained,
    trained_alone,
    two_groups,
    whole_weights,
)

import tinydist
from tinydist import checkpoint
from tinydist.hardware import Cluster, Link
from tinydist.zero import CPUOffload, NVMeOffload, OffloadError, ZeROInfinity, ZeROOffload
from tinydist.zero.offload import nvme

SGD = {"optimizer": torch.optim.SGD, "options": {"lr": 0.2, "momentum": 0.9}}


def offload(module, *arguments, **options):
    return ZeROOffload(module, *arguments, bucket_bytes=A_LAYER, **options)


def infinity(module, *arguments, **options):
    return ZeROInfinity(module, *arguments, units=linear, **options)


def at(device, stage, folder):
    """A stage with an offload device that is made on the rank itself."""
    return lambda module, *given, **options: stage(
        module, *given, offload_device=NVMeOffload(folder) if device is NVMeOffload else device(), **options
    )


on_both_stages = pytest.mark.parametrize("stage", [offload, infinity], ids=lambda stage: stage.__name__)


@on_both_stages
@pytest.mark.parametrize("device", [CPUOffload, NVMeOffload])
@pytest.mark.parametrize(
    "how", [{}, {**SGD, "param_groups": two_groups, "clip": 0.01, "microbatches": 2}], ids=["AdamW", "all at once"]
)
def test_equals_one_process(stage, device, how, tmp_path):
    run = launch(lambda: trained(at(device, stage, tmp_path), **how), 3)
    assert_every_rank_has(trained_alone(**how), run.results)


# What crosses the link, and what is left on the device.

W, LAYERS, RANKS = 64, 6, 4
LAYER = 2 * W * W  # bytes, in 16 bits
OWN = LAYERS * LAYER // RANKS


def deep(stage, device, steps, prefetch=False):
    """16-bit layers, one unit or bucket each; its activations are small."""
    torch.set_default_dtype(torch.bfloat16)
    module = nn.Sequential(*(nn.Linear(W, W, bias=False) for _ in range(LAYERS)))
    how = {"units": linear, "prefetch": prefetch} if stage is ZeROInfinity else {"bucket_bytes": LAYER}
    zero = stage(module, offload_device=device, reduce_dtype=None, **how)
    start = dict(zero.offload_device.moved)
    for _ in range(steps):
        module(torch.ones(1, W)).sum().backward()
        zero.step()
        zero.zero_grad()
    return {name: nbytes - start.get(name, 0) for name, nbytes in zero.offload_device.moved.items()}, zero


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("stage, gathers", [(ZeROOffload, 1), (ZeROInfinity, 2)])
def test_bytes_that_cross_the_link(stage, gathers, fake):
    """Gradients to the host; weights to the device, after the step or for each gather."""
    for moved, _ in launch(lambda: deep(stage, CPUOffload(), 1), RANKS, fake=fake).results:
        assert moved["to host"] == OWN and moved["to device"] == gathers * OWN


def test_bytes_that_a_disk_reads_and_writes(tmp_path):
    """A step after the first: master and two moments in and out; weights out, in for the step and for two gathers."""
    (one, _), (two, _) = (
        launch(lambda: deep(ZeROInfinity, NVMeOffload(tmp_path), steps), RANKS).results[0] for steps in (1, 2)
    )
    assert two["to disk"] - one["to disk"] == 6 * OWN + OWN
    assert two["from disk"] - one["from disk"] == 6 * OWN + 3 * OWN


def peaks(stage):
    """The most that is held on the device in the second step, by purpose, and of model states in all."""
    before, run = (tinydist.launch(deep, RANKS, stage, CPUOffload(), steps) for steps in (1, 2))
    start = len(before.memory[0].changes)
    moments = [held for _, held in run.memory[0].over_time()][start:]
    states = ("parameters", "gradients", "optimizer states")
    return {purpose: max(held[purpose] for held in moments) for purpose in states}


def test_offload_holds_the_weights_on_the_device():
    """2 bytes a parameter; and while backward runs, the rows that fill and travel, and a gradient that has come."""
    peak = peaks(ZeROOffload)
    assert peak["parameters"] == LAYERS * LAYER
    assert peak["optimizer states"] == 0
    assert peak["gradients"] <= 3 * LAYER + LAYER // RANKS


def test_infinity_holds_a_layer_and_a_shard_on_the_device():
    """The unit that runs, the shard that is copied, and gradients that are not offloaded yet."""
    peak = peaks(ZeROInfinity)
    assert peak["optimizer states"] == 0
    assert peak["parameters"] == LAYER + LAYER // RANKS
    assert peak["gradients"] <= 3 * LAYER + LAYER // RANKS


def crossings(stage, direction, bandwidth=1e9):
    """Of a step on one rank, where nothing else is waited for: the copies, the matrix products, the run."""
    run = tinydist.launch(
        lambda: deep(stage, CPUOffload(Link("PCIe", 0.0, bandwidth)), 1, prefetch=True),
        1,
        cluster=Cluster("laptop CPU", 1),
    )
    products = [event for event in run.trace.of(0, "compute") if event.name == "mm" and event.phase == "backward"]
    return run.trace.of(0, f"0 {direction}"), products, run


@pytest.mark.parametrize(
    "stage, direction", [(ZeROOffload, "to host"), (ZeROInfinity, "to host"), (ZeROInfinity, "to device")]
)
def test_copies_go_on_while_backward_computes(stage, direction):
    copies, products, run = crossings(stage, direction)
    crossed = run.results[0][1].offload_device.moved[direction]
    assert sum(copy.end - copy.start for copy in copies) == pytest.approx(crossed / 1e9, rel=1e-6)
    beside = [copy for copy in copies if any(copy.start < p.end and p.start < copy.end for p in products)]
    assert len(beside) >= LAYERS - 2
    charged = [event for event in run.trace.of(0, "compute") if event.name == "host step"]
    assert len(charged) == LAYERS and all(event.end > event.start for event in charged)


def test_ranks_may_be_given_one_home():
    """Each waits for its own copies."""

    def seconds(make):
        cluster = Cluster("laptop CPU", 2, Link("any", 0.0, 1e9))
        run = tinydist.launch(lambda: deep(ZeROOffload, make(), 1), 2, cluster=cluster)
        return run.seconds, [len(run.trace.of(rank, f"{rank} to host")) for rank in range(2)]

    slow = Link("PCIe", 0.0, 1e6)
    device = CPUOffload(slow)
    shared, own = seconds(lambda: device), seconds(lambda: CPUOffload(slow))
    assert shared == own and shared[1] == [2 * LAYERS] * 2  # masters at the start, and gradients


def test_the_step_waits_for_the_last_gradient():
    """So on a link that is slow enough, a step takes what crosses it: gradients one way, and then weights the other."""
    slow, fast = (crossings(ZeROOffload, "to host", bandwidth)[2].seconds for bandwidth in (1e6, 1e12))
    crossed = 3 * LAYERS * LAYER  # the weights at the start, gradients, new weights
    assert crossed / 1e6 > 100 * fast
    assert slow == pytest.approx(crossed / 1e6, rel=0.01)


# Failures: a clear error, and the state of before.


def training_that_fails(stage, folder, harm):
    """Two good steps, one that is harmed, and, once repaired, two more."""
    zero = at(NVMeOffload, stage, folder)(tiny_mlp(), lr=0.01)
    train(zero, mine, steps=2)
    inputs, targets = mine(2)
    nn.functional.mse_loss(zero.module(inputs), targets).backward()
    before = whole_weights(zero)
    undo = harm(zero)
    with pytest.raises(OffloadError) as caught:
        zero.step()
    undo()
    assert_every_rank_has(before, [whole_weights(zero)], atol=0)
    zero.step()
    zero.zero_grad()
    train(zero, lambda step: mine(3 + step), steps=1)
    return (
        str(caught.value),
        whole_weights(zero),
        len(zero.offload_device.files),
        len(list(zero.offload_device.folder.iterdir())),
    )


def disk_is_full(zero):
    """The third file that rank 1 is about to write is a device that is always full."""
    full, third, create = (
        Path("/dev/full"),
        zero.offload_device.folder / f"tensor {zero.offload_device.number + 3}",
        nvme._create,
    )
    if torch.distributed.get_rank() == 1:
        nvme._create = lambda path: full.open("wb", buffering=0) if path == third else create(path)
        return lambda: setattr(nvme, "_create", create)
    return lambda: None


def shard_of_rank_1(zero):
    return zero.offload_device.files[zero.buckets[-1].master].path


def file_is_gone(zero):
    if torch.distributed.get_rank() != 1:
        return lambda: None
    path = shard_of_rank_1(zero)
    kept = path.rename(path.parent.parent / "aside")
    return lambda: kept.rename(path)


def file_is_truncated(zero):
    if torch.distributed.get_rank() != 1:
        return lambda: None
    path = shard_of_rank_1(zero)
    whole = path.read_bytes()
    os.truncate(path, 5)
    return lambda: path.write_bytes(whole)


def file_is_a_link(zero):
    """To the very same bytes."""
    if torch.distributed.get_rank() != 1:
        return lambda: None
    path = shard_of_rank_1(zero)
    kept = path.rename(path.parent.parent / "aside")
    path.symlink_to(kept)
    return lambda: kept.rename(path)


def a_bit_is_flipped(zero):
    if torch.distributed.get_rank() != 1:
        return lambda: None
    path = shard_of_rank_1(zero)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    return lambda: path.write_bytes(whole)


@on_both_stages
@pytest.mark.parametrize(
    "harm, message",
    [
        pytest.param(
            disk_is_full,
            " bytes: No space left on device",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full"),
        ),
        (file_is_gone, "bytes: No such file or directory"),
        (file_is_truncated, "a shard has 5 bytes, but"),
        (file_is_a_link, "Too many levels of symbolic links"),
        (a_bit_is_flipped, "bytes is corrupt: checksum mismatch"),
    ],
)
def test_a_step_that_fails_changes_nothing_on_any_rank(stage, harm, message, tmp_path):
    """And once the reason is gone, the same step can be taken, and training ends as if nothing had happened."""
    expected = trained_alone(tiny_mlp)
    folder = tmp_path / "offload"
    for said, found, kept, on_disk in launch(training_that_fails, 3, stage, folder, harm).results:
        assert message in said and "offload failed; no rank was modified. On rank 1: " in said
        assert_every_rank_has(expected, [found])
        assert on_disk == kept, "files of the step that failed are left"


def loading_that_fails(stage, folder, harm):
    """A checkpoint of this training, loaded by it two steps later."""
    zero = at(NVMeOffload, stage, folder / "home")(tiny_mlp(), lr=0.01)
    train(zero, mine, steps=1)
    checkpoint.save(zero, folder / "saved")
    train(zero, mine, steps=2)
    before = all_of(zero)
    undo = harm(zero)
    with pytest.raises(OffloadError) as caught:
        checkpoint.load(zero, folder / "saved")
    undo()
    assert_same(all_of(zero), before)
    checkpoint.load(zero, folder / "saved")
    return str(caught.value), len(zero.offload_device.files), len(list(zero.offload_device.folder.iterdir()))


@on_both_stages
def test_a_disk_that_is_full_when_a_checkpoint_is_loaded_keeps_what_it_had(stage, tmp_path):
    for said, kept, on_disk in launch(loading_that_fails, 3, stage, tmp_path, disk_is_full).results:
        assert "offload failed; no rank was modified. On rank 1: [Errno 28]" in said
        assert on_disk == kept


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        NVMeOffload(tmp_path / "file" / "folder")
