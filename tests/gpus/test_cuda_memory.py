"""Memory functions answer from the ledger, exactly; a GPU that is full says with what."""

from dataclasses import replace

import pytest
import torch
from gpus.on_gpus import on_gpus, refusal
from torch import nn

import tinydist
from tinydist.hardware import Cluster
from tinydist.hardware.devices import A100_80GB
from tinydist.hardware.links import NVSWITCH_A100

MEGA = 2**20


def tiny(nbytes):
    """A node of two GPUs with so little memory."""
    return Cluster(replace(A100_80GB, memory=nbytes), 2, NVSWITCH_A100)


def test_bytes_are_exact():
    def program():
        found, allocated = [], torch.cuda.memory_allocated
        x = torch.ones(1000, device="cuda")
        found.append(allocated())
        y, view, host = x * 2, x[1:], torch.ones(500)
        found.append(allocated())
        del y
        found.append(allocated())
        torch.cuda.reset_peak_memory_stats()
        z = torch.ones(2000, device="cuda")
        del z
        return *found, allocated(), torch.cuda.max_memory_allocated(), len(view), len(host)

    assert on_gpus(program)[:5] == (4000, 8000, 4000, 4000, 12000)


def test_all_functions_about_memory():
    def program():
        x = torch.ones(MEGA, dtype=torch.uint8, device="cuda")
        cuda = torch.cuda
        free, total = cuda.mem_get_info()
        stats = cuda.memory_stats()
        assert torch.accelerator.memory_allocated() == torch.cuda.memory.memory_allocated() == len(x)
        cuda.empty_cache()
        reserved = cuda.memory_reserved(), cuda.max_memory_reserved(), stats["reserved_bytes.all.peak"]
        return total - free, total, stats["allocated_bytes.all.current"], reserved, cuda.memory_summary()

    used, total, allocated, reserved, summary = on_gpus(program)
    assert (used, total, allocated, reserved) == (MEGA, 80_000_000_000, MEGA, (MEGA, MEGA, MEGA))
    assert summary.splitlines()[-2:] == [f"{name:20} {'1.0':>12} MiB" for name in ("allocated", "peak")]


def test_a_step_holds_what_the_formula_says():
    """W, its gradient and two states of Adam: 4 x 4 N^2 bytes; x and the loss's parts are small."""
    N, rows = 256, 2
    matrix = 4 * N * N

    def program():
        model = nn.Linear(N, N, bias=False).to("cuda")
        assert torch.cuda.memory_allocated() == matrix
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        loss = model(torch.ones(rows, N, device="cuda")).sum()
        loss.backward()
        assert torch.cuda.memory_allocated() == 2 * matrix + 4  # the input and the output are gone; the loss
        optimizer.step()
        return torch.cuda.memory_allocated()

    assert on_gpus(program) == 4 * matrix + 4


@pytest.mark.parametrize("make", [lambda: nn.Linear(10, 10).to("cuda"), lambda: nn.Linear(10, 10, device="cuda")])
def test_parameters_are_counted_as_such(make):
    run = tinydist.launch(make, 1, gpus=True)
    assert run.memory[0].at_peak["parameters"] == run.memory[0].peak == 440


def test_out_of_memory_names_what_fills_it():
    def program():
        model = nn.Linear(1024, 1024, bias=False, device="cuda")
        held = [torch.ones(MEGA, dtype=torch.uint8, device="cuda")]
        words = refusal(lambda: held.append(torch.empty(4 * MEGA, dtype=torch.uint8, device="cuda")))
        moved = refusal(torch.ones(4 * MEGA, dtype=torch.uint8).cuda)
        del held[0]
        after = torch.cuda.memory_allocated()
        room = torch.empty(3 * MEGA, dtype=torch.uint8, device="cuda")  # recovered
        return words, moved, after, len(room), len(model.weight)

    words, moved, after, *_ = on_gpus(program, cluster=tiny(8 * MEGA))
    assert (
        words
        == moved
        == (
            "CUDA out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 8.00 MiB "
            "of which 3.00 MiB is free. Rank 0 holds 5.00 MiB without it: 4.00 MiB parameters, 1.00 MiB activations"
        )
    )
    assert after == 4 * MEGA


def test_out_of_memory_that_is_not_caught():
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory") as error:
        on_gpus(lambda: torch.empty(9 * MEGA, dtype=torch.uint8, device="cuda"), 2, cluster=tiny(8 * MEGA))
    assert error.value.__notes__ == ["on rank 0 of 2"]


def test_where_the_host_has_no_memory_either():
    """A petabyte: more than the GPU has. On a GPU that has more the host is at fault, and it says what helps."""

    def program():
        return refusal(torch.empty, 2**50, dtype=torch.uint8, device="cuda")

    said = on_gpus(program, cluster=tiny(8 * MEGA))
    assert said.startswith("CUDA out of memory. Tried to allocate 1048576.00 GiB. GPU 0 has a total capacity of 8.00 M")
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as error:
        on_gpus(lambda: torch.empty(2**50, dtype=torch.uint8, device="cuda"), cluster=tiny(2**51))
    assert "--fake (fake=True) keeps shapes" in error.value.__notes__[0]


def test_a_fraction_of_the_memory():
    def program():
        torch.cuda.set_per_process_memory_fraction(0.5)
        assert torch.cuda.get_per_process_memory_fraction() == 0.5
        return refusal(torch.empty, 5 * MEGA, dtype=torch.uint8, device="cuda")

    assert "of which 4.00 MiB is free" in on_gpus(program, cluster=tiny(8 * MEGA))
