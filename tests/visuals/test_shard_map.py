"""A cell has the colors of the owners of what the ledger says is in it, and no other."""

from functools import partial

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from visuals.drawn import assert_can_be_read, written
from visuals.named_runs import named_run, train
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals, zero
from tinydist.visuals.memory_states import MemoryStates
from tinydist.visuals.ownership_grid import COPY, Cells, moves
from tinydist.visuals.palette import RANKS
from tinydist.visuals.scene import Scene

LAYERS = {"0": "1", "2": "2", "4": "3", "6": "4"}


def colors(name, moment, purpose="parameters", rank=1):
    """Of each layer on a rank."""
    scene = Scene("test", named_run(name).trace, since=0.0)
    cells = Cells(scene.trace, scene.ranks, LAYERS)
    grid = cells.at(MemoryStates(scene, 0, [purpose]).when(moment)[0], purpose)
    return [[color for *_, color in boxes] for boxes in grid[rank]]


def test_a_gathered_layer_has_the_bands_of_all_and_the_others_the_own():
    whole, own = RANKS[:4], [RANKS[1]]
    for layer in range(4):
        expected = [sorted({*whole}) if other == layer else own for other in range(4)]
        found = [sorted(set(bands)) for bands in colors("fsdp", f"F{layer + 1}")]
        assert found == expected


def test_gradients_are_a_ranks_own_until_they_are_reduced():
    assert colors("fsdp", "B3", "gradients") == [[], [], [COPY], [RANKS[1]]]


def test_what_every_rank_has_is_a_copy():
    assert colors("ddp", ("F2", 1), "optimizer states") == [[COPY]] * 4


def test_the_stages_of_zero_own_ever_more():
    def bands(name):
        return [colors(name, ("B1", 1), purpose) for purpose in ("parameters", "optimizer states")]

    assert bands("zero 1")[1] == [[], [], [RANKS[1]], []]  # one row of all layers: the second quarter is layer 3
    assert {color for cell in bands("zero 1")[0] for color in cell} == {*RANKS[:4]}


def test_bands_are_as_high_as_their_part():
    scene = Scene("test", named_run("fsdp").trace, since=0.0)
    grid = Cells(scene.trace, scene.ranks, LAYERS).at(
        MemoryStates(scene, 0, ["parameters"]).when("F1")[0], "parameters"
    )
    for rank in range(4):
        assert (0.0, rank / 4, 1.0, 1 / 4, RANKS[rank]) in grid[rank][3]


def test_a_shard_is_a_band_too_where_one_rank_runs_for_all(capsys):
    run = tinydist.launch(partial(train, fsdp_like), 4, fake=True, only=[0])
    scene = Scene("test", run.trace, [0], since=0.0)
    grid = Cells(scene.trace, [0], LAYERS).at(MemoryStates(scene, 0, ["parameters"]).when("F2")[0], "parameters")
    assert grid[0][3] == [(0.0, 0.0, 1.0, 1 / 4, RANKS[0])]
    figure = visuals.shard_map(run)
    assert "rank 0" in written(figure) and "rank 1" not in written(figure)


def fsdp_like(net):
    return zero.ZeRO3(net, optimizer_class=torch.optim.Adam, units=list(net[::2])), net


def test_where_nothing_has_a_label_it_is_said():
    with pytest.raises(ValueError, match="shard_map: of parameters no tensor has a label: "):
        visuals.shard_map(run_of("star"))


def keep_a_cache():
    rank = torch.distributed.get_rank()
    cache = tinydist.label(torch.zeros(100 + rank), f"sequence {rank}")
    return cache + 1, tinydist.mark("there")


def test_what_a_program_has_labelled_is_owned_too():
    run = tinydist.launch(keep_a_cache, 3)
    labels = [f"sequence {rank}" for rank in range(3)]
    figure = visuals.shard_map(run, "there", purposes=["activations"], labels=labels)
    assert filled(figure) == {to_hex(RANKS[rank]): 1 for rank in range(3)}
    assert_can_be_read(figure)


def boxes(name, purpose, labels, moment):
    """[rank][label] -> (left, top, width, height, color)."""
    scene = Scene("test", named_run(name).trace, since=0.0)
    return Cells(scene.trace, scene.ranks, {label: label for label in labels}).at(moment, purpose)


def test_rows_and_columns_of_a_weight_are_told_apart():
    late = named_run("tensor parallel").seconds * 0.9
    for rank, (up, down) in enumerate(boxes("tensor parallel", "parameters", ["up.weight", "down.weight"], late)):
        assert up == [(0.0, rank / 4, 1.0, 1 / 4, RANKS[rank])]  # ColwiseParallel: rows of what Linear stores
        assert down == [(rank / 4, 0.0, 1 / 4, 1.0, RANKS[rank])]
    figure = visuals.shard_map(named_run("tensor parallel"))
    assert {"up", "down", "parameters", "gradients", "optimizer states"} <= set(written(figure))
    assert "each rank's own copy" not in written(figure)  # a bias of one cannot be seen
    assert_can_be_read(figure)


def test_a_bias_that_all_have_does_not_make_a_weight_whole():
    late = named_run("tensor parallel").seconds * 0.9
    for rank, (down,) in enumerate(boxes("tensor parallel", "parameters", ["down"], late)):
        assert down == [(rank / 4, 0.0, 1 / 4, 1.0, RANKS[rank])]


@pytest.mark.parametrize("name", ["pipeline", "torch pipeline"])
def test_each_stage_is_all_of_its_ranks(name, capsys):
    figure = visuals.shard_map(named_run(name))
    assert filled(figure) == {to_hex(RANKS[rank]): 1 for rank in range(4)}
    assert {"stage", *"0123"} <= set(written(figure))
    assert "gradients" not in written(figure)  # nobody has any at rest: there is no optimizer
    assert_can_be_read(figure)


def test_experts_are_spread_and_their_router_is_copied():
    figure = visuals.shard_map(named_run("experts"))
    assert filled(figure) == {to_hex(RANKS[rank]): 2 for rank in range(4)} | {to_hex(COPY): 4}
    assert {"experts", *"12345678", "router", "each rank's own copy"} <= set(written(figure))
    assert_can_be_read(figure)


def test_a_cache_is_cut_as_the_program_says():
    for rank, (heads, tokens) in enumerate(boxes("caches", "activations", ["by heads", "by tokens"], "there")):
        assert heads == [(0.0, rank / 4, 1.0, 1 / 4, RANKS[rank])]
        assert tokens == [(rank / 4, 0.0, 1 / 4, 1.0, RANKS[rank])]
    figure = visuals.shard_map(named_run("caches"), "there", ["activations"])
    assert {"by", "heads", "tokens"} <= set(written(figure))
    assert_can_be_read(figure)


def filled(figure):
    """Color -> how many bands."""
    found = [
        to_hex(color) for part in figure.axes[0].collections if part.get_zorder() == 3 for color in part.get_facecolor()
    ]
    return {color: found.count(color) for color in found}


def test_all_model_states_are_drawn_at_rest(capsys):
    figure = visuals.shard_map(named_run("fsdp"))
    assert filled(figure) == {to_hex(RANKS[rank]): 3 * 4 for rank in range(4)}
    assert {"parameters", "gradients", "optimizer states", "layer", "belongs to rank 3"} <= set(written(figure))
    assert capsys.readouterr().out.startswith(
        "rank 0 holds parameters 2.00 MB, gradients 2.00 MB, optimizer states 4.00"
    )


@pytest.mark.parametrize("name", ["ddp", "torch ddp", "fsdp", "zero 1", "zero 2", "zero 3"])
def test_it_can_be_read(name):
    assert_can_be_read(visuals.shard_map(named_run(name)))
    assert_can_be_read(visuals.shard_map(named_run(name), moment=["F1", "F2", "B1"]))


def test_arrows_show_what_moves_between_two_moments():
    figure = visuals.shard_map(named_run("fsdp"), moment=["F1", "F2"])
    arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 4 * 3  # an all-gather: from everybody to everybody
    still = visuals.shard_map(named_run("ddp"), moment=["F1", "F2"])
    assert not [patch for patch in still.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def test_a_message_moves_from_its_source_to_its_destination():
    trace = named_run("pipeline").trace
    assert set(moves(trace, range(4), 0.0, trace.seconds)) == {(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)}
    assert np.all([pair[0] != 3 for pair in moves(trace, [0, 1], 0.0, trace.seconds)])
