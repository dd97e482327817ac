"""Whose bytes they are: of parameters with their gradients and states, of activations, of what a program labels."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import tinydist
from tinydist import zero
from tinydist.tracing.trace import Held

LAYER = 4 * 8 * 8  # bytes of a layer's weight
RANKS = 2
NAMES = ["0", "1"]


def layers():
    return nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in NAMES])


def test_gradients_and_states_have_their_parameters_name():
    def program():
        model = layers()
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        model(torch.ones(2, 8)).sum().backward()
        tinydist.mark("backward is over")
        optimizer.step()
        tinydist.mark("end")

    (held,) = tinydist.launch(program, 1).memory
    weights = {"0.weight": LAYER, "1.weight": LAYER}
    assert held.at("backward is over", by="label", purpose="parameters") == weights
    assert held.at("backward is over", by="label", purpose="gradients") == weights
    states = {name: 2 * nbytes + 4 for name, nbytes in weights.items()}  # two moments, and a count of steps
    assert held.at("end", by="label", purpose="optimizer states") == states
    assert held.at("end", label="0") == {"parameters": LAYER, "gradients": LAYER, "optimizer states": 2 * LAYER + 4}


def test_activations_have_the_name_of_the_module_that_made_them():
    def program():
        model = layers()
        x = model(torch.ones(2, 8))
        tinydist.mark("end")
        return x

    run = tinydist.launch(program, 1)
    held = run.memory[0].at("end", by="label", purpose="activations")
    assert held == {"": 64, "0": 64, "1": 64}  # the input was made in no module


def test_a_program_labels_what_it_holds():
    def program():
        cache = tinydist.label(torch.zeros(4, 8), "cache")
        tinydist.mark("one")
        tinydist.label(cache[1], "request 7")
        tinydist.mark("two")
        tinydist.label(cache[1:3], "request 8", shard=2)
        tinydist.mark("three")
        return cache

    (held,) = tinydist.launch(program, 1).memory
    assert held.at("one", by="label") == {"cache": 128}
    assert held.at("two", by="label") == {"cache": 96, "request 7": 32}
    assert held.at("three", by="label") == {"cache": 64, "request 8": 64}
    assert held.at("three", by="shard", label="request 8") == {2: 64}
    assert held.peak == 128 and held.peak_between(label="request 8") == 64


def test_a_label_is_known_from_the_start_and_goes_with_its_memory():
    def program():
        x = torch.zeros(8)
        tinydist.mark("before")
        tinydist.label(x, "layer 1")
        x.untyped_storage().resize_(0)
        tinydist.mark("freed")
        x.untyped_storage().resize_(32)
        tinydist.mark("back")
        return x

    (held,) = tinydist.launch(program, 1).memory
    assert [held.at(name, by="label") for name in ("before", "freed", "back")] == [{"layer 1": 32}, {}, {"layer 1": 32}]


def test_a_shard_says_along_which_dimension_the_whole_is_cut():
    def program():
        rows = tinydist.label(torch.ones(8), "rows", shard=0)
        return rows, tinydist.label(torch.ones(8), "columns", shard=0, dim=1)

    changes = tinydist.launch(program, 1).memory[0].changes
    assert [(each.label, each.shard, each.shard.dim) for each in changes if each.nbytes > 0] == [
        ("rows", 0, 0),
        ("columns", 0, 1),
    ]


@pytest.mark.parametrize("shard", [-1, 1.5, True])
def test_a_shard_is_that_of_a_rank(shard):
    with pytest.raises(ValueError, match=f"label: shard must be an integer >= 0 or None, got {shard}"):
        tinydist.label(torch.ones(1), "layer 1", shard=shard)


# Who owns what.


def trained(prepare):
    """Two steps of two layers; each rank marks "rest" after backward, and "F1" when layer 1 has run."""
    model = layers()
    model[1].register_forward_hook(lambda *_: tinydist.mark("F1"))  # before those that free the layer
    trainer = prepare(model)
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
        tinydist.mark("rest")
        trainer.step()
        trainer.zero_grad()


def by_fully_shard(model):
    for layer in model:
        fully_shard(layer)
    return torch.optim.SGD(fully_shard(model).parameters(), lr=0.1, foreach=False)


def by_our_own(stage):
    if stage == 3:
        return lambda model: zero.ZeRO3(model, torch.optim.SGD, units=list(model), prefetch=False, lr=0.1)
    one_layer = dict(bucket_bytes=LAYER, lr=0.1)
    return lambda model: [zero.ZeRO1, zero.ZeRO2][stage - 1](model, torch.optim.SGD, **one_layer)


def grid_of(prepare, moment, purpose):
    run = tinydist.launch(trained, RANKS, prepare)
    return run.trace.owners((moment, 1), purpose, NAMES)


def test_of_a_sharded_layer_each_rank_has_its_part():
    for prepare in (by_fully_shard, by_our_own(3)):
        for rank, row in enumerate(grid_of(prepare, "rest", "parameters")):
            assert row == {name: Held(LAYER // RANKS, LAYER, {rank: LAYER // RANKS}) for name in NAMES}
            assert {cell.state for cell in row.values()} == {"shard"}


def test_a_layer_is_whole_while_it_runs():
    for rank, row in enumerate(grid_of(by_our_own(3), "F1", "parameters")):
        others = {owner: LAYER // RANKS for owner in range(RANKS)}
        assert row["1"].shards == others | {rank: 2 * LAYER // RANKS}  # its own, and all as they were gathered
        assert [row[name].state for name in NAMES] == ["shard", "whole"]
    for rank, row in enumerate(grid_of(by_fully_shard, "F1", "parameters")):
        assert row["1"].shards == {rank: LAYER // RANKS, None: LAYER}
        assert [row[name].state for name in NAMES] == ["shard", "whole"]


@pytest.mark.parametrize("stage, states", [(1, ["whole"] * 2), (2, ["shard"] * 2), (3, ["shard"] * 2)])
def test_gradients_of_each_stage_after_backward(stage, states):
    for rank, row in enumerate(grid_of(by_our_own(stage), "rest", "gradients")):
        assert [row[name].state for name in NAMES] == states
        assert all(set(cell.shards) == ({None} if stage == 1 else {rank}) for cell in row.values())


def test_gradients_of_fully_shard_after_backward():
    for rank, row in enumerate(grid_of(by_fully_shard, "rest", "gradients")):
        assert row == {name: Held(LAYER // RANKS, LAYER, {rank: LAYER // RANKS}) for name in NAMES}


def test_a_layer_that_nobody_has_is_empty():
    def program():
        kept = tinydist.label(torch.ones(4), "kept")
        tinydist.mark("here")
        tinydist.label(torch.ones(4), "gone")
        tinydist.mark("end")
        return kept

    (row,) = tinydist.launch(program, 1).trace.owners("end", "activations", ["kept", "gone"])
    assert row["kept"] == Held(16, 16, {None: 16}) and row["kept"].state == "whole"
    assert row["gone"].nbytes == 0 and row["gone"].state == "empty"
