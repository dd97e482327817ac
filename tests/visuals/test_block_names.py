"""Blocks have the names of layers and passes, from programs that say none; parts are as coarse as layers."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from visuals.named_runs import named_run
from visuals.some_runs import run_of

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.visuals.block_names import BlockNames
from tinydist.visuals.scene import Scene

LAYERS = ["F1", "F2", "F3", "F4", "B4", "B3", "B2", "B1"]


def computed(run, rank=0):
    """The names of a rank's blocks, in their order."""
    (row,) = Scene("test", run.trace, [rank]).rows
    names = [block.name for block in row.compute if block.name]
    return [name for name, before in zip(names, [None, *names]) if name != before]


def sent(run, rank=0):
    (row,) = Scene("test", run.trace, [rank]).rows
    return [block.name for block in row.communication]


@pytest.mark.parametrize("name", ["ddp", "torch ddp", "fsdp", "zero 1", "zero 2", "zero 3"])
def test_the_passes_of_each_layer_and_the_optimizer_have_names(name):
    found = computed(named_run(name))
    assert found[:9] == [*LAYERS, "Adam"]


@pytest.mark.parametrize("name", ["torch pipeline", "pipeline"])
def test_the_passes_of_a_pipeline_are_named_by_their_microbatch(name):
    passes = computed(named_run(name), rank=3)
    assert sorted(passes) == ["B0", "B1", "B2", "F0", "F1", "F2"]


def test_a_transfer_is_named_by_what_it_is_for():
    assert sent(named_run("fsdp"))[:6] == ["AG1", "AG2", "AG3", "AG4", "AG4", "AG3"]
    assert sent(named_run("zero 2"))[:2] == ["RS4–1", "AG4–1"]
    assert sent(named_run("torch ddp")) == ["AR0"]  # a bucket


def test_a_message_is_named_by_its_other_end():
    assert set(sent(named_run("pipeline"), rank=1)) == {"←0", "→2", "←2", "→0"}


def test_a_run_without_modules_has_no_names():
    row = Scene("test", run_of("overlap").trace, [0]).rows[0]
    assert {(block.kind, block.name) for block in row.compute} == {("compute", "")}


def gpt(steps=1):
    model = GPT(GPTConfig(vocab_size=64, context=16, layers=3, heads=2, dim=16))
    tokens = torch.zeros(2, 16, dtype=torch.long)
    for _ in range(steps):
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()


def test_parts_are_blocks_and_not_each_linear_of_them():
    run = tinydist.launch(gpt, 1, fake=True)
    assert [name for name in computed(run) if name[0] == "F"] == ["F embedding", "F1", "F2", "F3", "F norm", "F head"]
    called = BlockNames(run.trace).called
    assert called["blocks.2"] == "3" and called["head"] == "head"
    assert "head" not in BlockNames(run.trace).holding  # its weights are the embedding's


def test_layers_whose_weights_went_into_a_row_are_layers_still():
    def program():
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        row = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
        torch.nn.utils.vector_to_parameters(row, net.parameters())
        net(torch.ones(8, 8)).sum().backward()

    assert computed(tinydist.launch(program, 1)) == ["F1", "F2", "B2", "B1"]


def test_a_program_that_names_its_passes_is_called_by_these():
    def program():
        layer = torch.nn.Linear(8, 8)
        for number in range(2):
            with tinydist.region(f"work {number}"):
                layer(torch.ones(8, 8)).sum().backward()

    assert computed(tinydist.launch(program, 1)) == ["work 0", "work 1"]


def test_in_a_region_that_is_the_whole_step_passes_have_their_letters():
    def program():
        layer = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(layer.parameters())
        for _ in range(2):
            with tinydist.region("step"):
                layer(torch.ones(8, 8)).sum().backward()
                with tinydist.region("log"):
                    layer.weight.grad.norm()
                optimizer.step()
        with tinydist.region("evaluate"):
            layer(torch.ones(8, 8))

    assert computed(tinydist.launch(program, 1)) == ["F", "B", "log", "Adam", "F", "B", "log", "Adam", "evaluate"]


def test_regions_name_what_plain_functions_compute():
    def program():
        x = torch.ones(64, 64)
        with tinydist.region("QKV"):
            x = x @ x
        with tinydist.region("MLP"):
            x @ x

    assert computed(tinydist.launch(program, 1, fake=True, backend="simulated")) == ["QKV", "MLP"]


def test_one_region_around_everything_hides_no_layer():
    def program():
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        with tinydist.region("all"):
            net(torch.ones(8, 8)).sum().backward()

    assert computed(tinydist.launch(program, 1)) == ["F1", "F2", "B2", "B1"]


def test_an_optimizer_that_wraps_another_is_called_as_that():
    assert {name for name in computed(named_run("zero 3")) if name[0] not in "FB"} == {"Adam"}


def test_a_group_of_one_rank_has_names_too():
    def program():
        dist.all_reduce(torch.ones(4))

    assert sent(tinydist.launch(program, 1)) in ([], ["AR"])


def test_a_transfer_that_a_region_names_is_called_by_it():
    def program():
        for number in (1, 2):
            with tinydist.region(f"F{number}"):
                x = torch.ones(64, 64) @ torch.ones(64, 64)
            with tinydist.region(f"AR{number}"):
                dist.all_reduce(x)
            with tinydist.region("norms"):
                dist.all_reduce(x)

    assert sent(tinydist.launch(program, 2, fake=True)) == ["AR1", "AR norms", "AR2", "AR norms"]


def test_where_regions_are_passes_the_rest_is_other():
    def program():
        with tinydist.region("F1"):
            x = torch.ones(64, 64) @ torch.ones(64, 64)
        with tinydist.region("B1"):
            x = x @ x
        with tinydist.region("update"):
            x += 1

    row = Scene("test", tinydist.launch(program, 1, fake=True).trace, [0]).rows[0]
    assert [block.kind for block in row.compute] == ["forward", "backward", "other"]


def test_a_transfer_of_a_part_that_is_known_is_named_by_it():
    assert sent(named_run("tensor parallel"))[-2:] == ["AR down", "AR down"]
