"""Every stage computes what one process computes."""

import pytest
import torch
from tiny_training import assert_every_rank_has
from zero.ladder import STAGES, trained, trained_alone, two_groups

import tinydist

RANKS = (1, 2, 3, 4, 8)
on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


SGD = {"optimizer": torch.optim.SGD, "options": {"lr": 0.2, "momentum": 0.9}}  # Adam ignores a gradient's scale


AT_ONCE = {**SGD, "param_groups": two_groups, "clip": 0.01, "microbatches": 2}


def assert_equals_one_process(stage, ranks, how):
    expected = trained_alone(**how)
    if "clip" in how:
        assert all(expected[f"norm {step}"] > how["clip"] for step in range(4))  # it does clip
    run = tinydist.launch(lambda: trained(stage, **how), ranks, observe=False)
    assert_every_rank_has(expected, run.results)


@on_all_stages
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", [{}, AT_ONCE], ids=["AdamW", "two groups, clipped, accumulated"])
def test_equals_one_process(stage, ranks, how):
    assert_equals_one_process(stage, ranks, how)


@on_all_stages
@pytest.mark.parametrize(
    "how",
    [SGD, {**SGD, "clip": 0.01}, {**SGD, "microbatches": 2}, {"param_groups": two_groups}],
    ids=["SGD", "clipped", "accumulated", "two groups"],
)
def test_each_alone_equals_one_process(stage, how):
    assert_equals_one_process(stage, 3, how)


@on_all_stages
def test_what_is_called_is_the_module(stage):
    def call():
        stage(torch.nn.Linear(2, 2), torch.optim.SGD, lr=0.1)(torch.ones(2))

    with pytest.raises(TypeError, match="is not a module: call the module that was passed to it, model"):
        tinydist.launch(call, 1)
