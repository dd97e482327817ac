"""FLOPs, peaks and memory: counted by torch, known by name, seen by the ledger."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tinydist import launch
from tinydist.hardware import DEVICES
from tinydist.model import GPT, GPTConfig
from tinydist.training import meters
from tinydist.training.meters import device_named, flops_per_token, peak_memory


@pytest.mark.parametrize("context", [8, 32])
def test_the_flops_of_a_token_are_those_that_torch_counts(context):
    model = GPT(GPTConfig(vocab_size=40, layers=3, dim=16, heads=2, context=32))
    tokens = torch.zeros(2, context, dtype=torch.int64)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    assert counter.get_total_flops() == flops_per_token(model, context) * tokens.numel()


NAMES = {
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA H100 80GB HBM3": "H100",
    "Tesla V100-SXM2-32GB": "V100",
    "NVIDIA H200": "H200",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA GH200 480GB": None,
    "NVIDIA H100 PCIe": None,
    "NVIDIA H100 NVL": None,
    "NVIDIA GeForce RTX 3060": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_is_known_by_the_name_that_cuda_gives_it(name):
    assert device_named(name) is DEVICES.get(NAMES[name])


@pytest.mark.parametrize("precision, peak", [("fp32", 67e12), ("bf16", 989e12), ("fp16", 989e12)])
def test_the_peak_is_that_of_the_precision(monkeypatch, precision, peak):
    monkeypatch.setattr(meters, "on_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    assert meters.peak_flops(precision) == peak


def test_products_in_tf32_have_a_peak_of_their_own(monkeypatch):
    monkeypatch.setattr(meters, "on_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert meters.peak_flops("fp32") == 494.5e12


def test_on_simulated_ranks_the_peak_of_memory_is_the_ledgers():
    def program():
        held = torch.ones(1000)
        more = torch.ones(500)
        del more
        return held.nbytes, peak_memory()

    run = launch(program, 2)
    for rank, (nbytes, peak) in enumerate(run.results):
        assert peak == (nbytes + 2000, "ledger") and run.memory[rank].peak == peak.nbytes


def test_who_is_not_observed_has_no_ledger():
    assert launch(peak_memory, 1, observe=False).results == [None]


def test_a_process_has_held_at_least_what_it_holds(monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    held = torch.ones(10_000_000)
    assert peak_memory().nbytes > held.nbytes and peak_memory().of == "process"
