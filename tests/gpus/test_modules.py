"""Modules on pretended GPUs."""

import pytest
import torch
from gpus.on_gpus import on_gpus, where
from torch import nn


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.to(0),
        lambda m: m.cuda(),
        lambda m: m.to("cuda"),
        lambda m: m.to(torch.cuda.current_device()),
        lambda m: m.to(device="cuda", dtype=torch.float64),
        lambda m: m.to(torch.ones(1, device="cuda")),
    ],
)
def test_modules(move):
    def program():
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        model.add_module("tied", nn.Linear(2, 2))
        model.tied.weight = model[0].weight
        before = list(model.parameters())
        assert move(model) is model and model.tied.weight is model[0].weight
        assert all(one is other and one.is_leaf for one, other in zip(before, model.parameters(), strict=True))
        there = {where(each) for each in (*model.parameters(), *model.buffers())}
        return there, {where(each) for each in (*model.cpu().parameters(), *model.buffers())}

    assert on_gpus(program) == ({"cuda:0"}, {"cpu"})


def test_modules_that_are_made_on_a_gpu():
    def program():
        with torch.device("meta"):
            empty = nn.Linear(2, 2)
        with torch.device("cuda"):
            inside = nn.Linear(2, 2)
        made = nn.Linear(2, 2, device="cuda"), empty.to_empty(device="cuda"), inside
        return where(*[each.weight for each in made], nn.Parameter(torch.ones(2, device="cuda")))

    assert on_gpus(program) == "cuda:0 cuda:0 cuda:0 cuda:0"
