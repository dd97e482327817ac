"""Devices: how many a rank sees, which is current, what they can."""

import os

import pytest
import torch
import torch.distributed as dist
from gpus.on_gpus import on_gpus, refusal, where

import tinydist


def test_the_current_device():
    def program():
        cuda, found = torch.cuda, [torch.cuda.current_device()]
        cuda.set_device(3)
        found += [cuda.current_device(), where(torch.ones(1, device="cuda"))]
        with cuda.device(1):
            found += [cuda.current_device(), where(torch.ones(1).cuda())]
            with cuda.device(None):
                found.append(cuda.current_device())
        with cuda.device_of(torch.ones(1, device="cuda:2")):
            found.append(cuda.current_device())
        torch.accelerator.set_device_index(4)
        with torch.accelerator.device_index(5):
            found.append(torch.accelerator.current_device_index())
        return [*found, cuda.current_device()]

    assert on_gpus(program) == [0, 3, "cuda:3", 1, "cuda:1", 1, 2, 5, 4]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.ones(2, device="cuda:8"),
        lambda: torch.ones(2, device=8),
        lambda: torch.ones(2).to(8),
        lambda: torch.ones(2).cuda(8),
        lambda: torch.cuda.set_device(8),
        lambda: torch.nn.Linear(2, 2).to("cuda:8"),
        lambda: torch.cuda.get_device_properties(8),
    ],
)
def test_invalid_ordinals(ask):
    assert on_gpus(lambda: refusal(ask)) == (
        "CUDA error: invalid device ordinal\nrank 0 asks for cuda:8, and sees cuda:0 to cuda:7"
    )


@pytest.mark.parametrize(("named", "count"), [("0,1", 2), ("3", 1), ("", 0), ("7,9", 1)])
def test_visible_devices(named, count, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)

    def program():
        assert torch.cuda.is_available() == torch.accelerator.is_available() == (count > 0)
        return torch.cuda.device_count(), refusal(torch.cuda.set_device, count)

    sees = f"cuda:0 to cuda:{count - 1}" if count else "no GPU"
    assert on_gpus(program) == (
        count,
        f"CUDA error: invalid device ordinal\nrank 0 asks for cuda:{count}, and sees {sees}",
    )


def test_each_rank_sees_its_own():
    def program():
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
        x = torch.ones(1, device="cuda")
        dist.all_reduce(x)
        return torch.cuda.device_count(), where(x), x.item()

    assert tinydist.launch(program, 2, gpus=True).results == [(1, "cuda:0", 2.0)] * 2


def test_properties_are_the_clusters():
    def program():
        properties = torch.cuda.get_device_properties(0)
        assert torch.cuda.is_bf16_supported() and torch.version.cuda and torch.cuda.is_available()
        assert torch.accelerator.current_accelerator().type == "cuda" and torch.get_device_module() is torch.cuda
        return (
            torch.cuda.get_device_name(),
            torch.cuda.get_device_capability(),
            properties.multi_processor_count,
            properties.total_memory,
        )

    assert on_gpus(program, cluster="H100 pod") == ("NVIDIA H100", (9, 0), 132, 80_000_000_000)
