"""Bytes held, by the ledger: of 16-bit parameters 4 + 12/p, 2 + 14/p, 16/p each, and the stated padding (with gradients
in fp32 6 + 12/p, 2 + 16/p, 18/p); and the peaks.
"""

from contextlib import nullcontext

import pytest
import torch
from sampled import later
from torch import nn
from zero.ladder import STAGES, stage_1, stage_3

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

TINY = GPTConfig(vocab_size=61, context=16, layers=2, heads=2, dim=16)
on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def held_at_last(run, rank=0):
    return list(run.memory[rank].over_time())[-1][1]


def end_of_backward(stage, dtype, reduce_dtype):
    """Two steps up to the end of the second backward, where all model states are there and no activation is."""
    torch.set_default_dtype(dtype)
    zero = stage(GPT(TINY), reduce_dtype=reduce_dtype)
    tokens = torch.zeros(1, TINY.context, dtype=torch.long)
    zero.module.loss(tokens, tokens).backward()
    zero.step()
    zero.zero_grad()
    zero.module.loss(tokens, tokens).backward()
    n = sum(torch.Size(shape).numel() for bucket in zero.buckets for shape in bucket.shapes)
    return n, sum(bucket.sharding.padding for bucket in zero.buckets), len(zero.buckets), zero


@on_all_stages
@pytest.mark.parametrize(
    "ranks, dtype, fake, reduce_dtype",
    [
        (1, torch.bfloat16, False, None),
        later((2, torch.float32, False, torch.float32)),
        later((3, torch.float32, True, None)),
        (3, torch.float16, False, torch.float32),
        later((8, torch.bfloat16, True, None)),
        (8, torch.bfloat16, True, torch.float32),
    ],
    ids=str,
)
def test_model_states_to_the_byte(stage, ranks, dtype, fake, reduce_dtype):
    run = tinydist.launch(end_of_backward, ranks, stage, dtype, reduce_dtype, fake=fake, only=[0] if fake else None)
    n, padding, rows, _ = run.results[0]
    size, own = dtype.itemsize, (n + padding) // ranks
    held = held_at_last(run)
    assert n == sum(p.numel() for p in GPT(TINY).parameters()) and padding <= rows * (ranks - 1)
    assert held["parameters"] == size * (own if stage is stage_3 else n + padding)
    in_bits = (reduce_dtype or dtype).itemsize
    assert held["gradients"] == in_bits * (n + padding if stage is stage_1 else own)
    assert held["optimizer states"] == (8 if size == 4 else 12) * own + 4 * rows  # Adam counts each row's steps
    assert held["communication"] == 0
    assert held["activations"] + held["other"] < 500  # tokens, and numbers


# Peaks. In these runs a layer has 4 W^2 bytes, and activations have next to nothing.

W, LAYERS, RANKS = 64, 6, 4
LAYER = 4 * W * W


def deep(stage, steps, **options):
    zero = stage(nn.Sequential(*(nn.Linear(W, W, bias=False) for _ in range(LAYERS))), **options)
    for _ in range(steps):
        zero.module(torch.ones(1, W)).sum().backward()
        zero.step()
        zero.zero_grad()
    return zero


def layerwise(stage, *arguments, **options):
    """In layers of one row each, on all stages."""
    if stage is ZeRO3:
        return stage(*arguments, units=lambda module: isinstance(module, nn.Linear), **options)
    return stage(*arguments, bucket_bytes=LAYER, **options)


def peaks(stage, **options):
    """Purpose -> the most held in the second step, when all states are there."""

    def program(steps):
        return deep(lambda *given, **more: layerwise(stage, *given, **more), steps, **options)

    before, run = (tinydist.launch(program, RANKS, steps) for steps in (1, 2))
    start = len(before.memory[0].changes)
    assert run.memory[0].changes[:start] == before.memory[0].changes
    moments = [held for _, held in run.memory[0].over_time()][start:]
    return {purpose: max(held[purpose] for held in moments) for purpose in moments[0]}


def test_stage_1_holds_all_gradients_and_one_row_more():
    assert peaks(ZeRO1)["gradients"] == LAYERS * LAYER + LAYER


def test_stage_2_frees_gradients_in_backward():
    """A row that fills, one in flight, a gradient that has just come, and the shards."""
    peak = peaks(ZeRO2)["gradients"]
    assert peak <= 3 * LAYER + LAYERS * LAYER // RANKS < LAYERS * LAYER


@pytest.mark.parametrize("stage", [ZeRO2, ZeRO3])
def test_without_sync_gradients_stay_whole_until_they_are_reduced(stage):
    """All of them, and one that has just come; then the one that is reduced, and its shard."""

    def program(quiet):
        zero = layerwise(stage, nn.Sequential(*(nn.Linear(W, W, bias=False) for _ in range(LAYERS))))
        for left in (2, 1, 0):
            with zero.no_sync() if quiet and left else nullcontext():
                zero.module(torch.ones(1, W)).sum().backward()

    runs = [tinydist.launch(program, RANKS, quiet) for quiet in (True, False)]
    quiet, each = (run.memory[0].peak_between(purpose="gradients") for run in runs)
    assert LAYERS * LAYER < quiet <= (LAYERS + 1) * LAYER + 2 * LAYER // RANKS
    assert each <= 3 * LAYER + LAYERS * LAYER // RANKS
    names = [[event.name for event in run.trace.of(0)] for run in runs]
    assert [name.count("reduce_scatter") for name in names] == [LAYERS, 3 * LAYERS]
    gathers = 2 * 3 * LAYERS if stage is ZeRO3 else 0
    assert [name.count("all_gather") for name in names] == [names[0].count("all_gather")] * 2
    assert names[0].count("all_gather") - gathers <= 2  # those of the start


@pytest.mark.parametrize("prefetch, whole", [(True, 2), (False, 1)])
def test_stage_3_frees_parameters(prefetch, whole):
    """The shards, the layer that runs, and the next one."""
    assert peaks(ZeRO3, prefetch=prefetch)["parameters"] == LAYERS * LAYER // RANKS + whole * LAYER


def test_stage_3_without_resharding_holds_all_parameters():
    held = peaks(ZeRO3, reshard_after_forward=False)["parameters"]
    assert held == LAYERS * LAYER // RANKS + LAYERS * LAYER
