"""The all-gather of stages 1 and 2 behind the next forward: same results, bytes and peaks, and less time."""

from functools import partial

import pytest
import torch
from sampled import later
from torch import nn
from zero.ladder import stage_1, stage_2, stage_3
from zero.test_held import LAYER, LAYERS, peaks
from zero.test_overlap import FAST, RANKS, ROWS, WIDTH
from zero.test_sent import step_of, volume
from zero.test_stages import AT_ONCE, assert_equals_one_process

import tinydist
from tinydist.hardware import Cluster, costs
from tinydist.zero import FlatSharding, PerParameterSharding, ZeRO1, ZeRO2, ZeROOffload


def overlapped(stage, *arguments, **options):
    return stage(*arguments, overlap_param_gather=True, **options)


on_both_stages = pytest.mark.parametrize("stage", [stage_1, stage_2], ids=lambda stage: stage.__name__)
on_both_layouts = pytest.mark.parametrize("sharding", [FlatSharding, PerParameterSharding])


@on_both_stages
@on_both_layouts
@pytest.mark.parametrize("ranks", [1, later(2), 3, later(4), later(8)])
def test_equals_one_process(stage, sharding, ranks):
    assert_equals_one_process(partial(overlapped, stage, sharding=sharding), ranks, AT_ONCE)


def test_offloaded_weights_come_back_behind_forward():
    assert_equals_one_process(partial(overlapped, ZeROOffload, bucket_bytes=200), 3, AT_ONCE)


@on_both_stages
@on_both_layouts
def test_sends_the_same_bytes(stage, sharding):
    assert step_of(partial(overlapped, stage, sharding=sharding)) == volume(2)


@pytest.mark.parametrize("stage", [ZeRO1, ZeRO2])
def test_holds_no_more(stage):
    """In one flat buffer what arrives is in place; per parameter, buckets in progress take memory for as long."""
    assert peaks(stage, overlap_param_gather=True) == peaks(stage)
    apart = {"sharding": PerParameterSharding}
    more, before = peaks(stage, overlap_param_gather=True, **apart), peaks(stage, **apart)
    assert before["communication"] <= more["communication"] <= 2 * LAYER < LAYERS * LAYER
    assert {**more, "communication": 0} == {**before, "communication": 0}


# Virtual time.


def steps(count, stage, overlap):
    module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    bucket = WIDTH * WIDTH * 4
    zero = stage(module, torch.optim.SGD, bucket_bytes=bucket, overlap_param_gather=overlap, lr=0.1)
    for _ in range(count):
        module(torch.ones(ROWS, WIDTH)).sum().backward()
        zero.step()
        zero.zero_grad()


def seconds_of_a_step(stage, overlap):
    cluster = Cluster("A100 80GB", RANKS, FAST)
    two, three = (
        tinydist.launch(steps, RANKS, count, stage, overlap, fake=True, only=[0]).on(cluster).seconds
        for count in (2, 3)
    )
    return three - two


@pytest.mark.parametrize("stage", [ZeRO1, ZeRO2])
def test_hides_all_gathers_but_the_first(stage):
    gather = costs.ring_all_gather(WIDTH * WIDTH * 4, RANKS, FAST)
    saved = seconds_of_a_step(stage, overlap=False) - seconds_of_a_step(stage, overlap=True)
    assert (LAYERS - 2) * gather < saved <= LAYERS * gather


# What is read before forward has gathered it.


def after_a_step():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    zero = ZeRO2(module, torch.optim.SGD, bucket_bytes=40, overlap_param_gather=True, lr=0.1)
    module(torch.ones(2, 3)).sum().backward()
    zero.step()
    zero.zero_grad()
    return module, zero


def test_a_parameter_is_the_shard_until_forward_uses_it():
    def shapes():
        module, zero = after_a_step()
        last = [tuple(module[1].weight.shape)]
        module[0](torch.ones(2, 3))
        last.append(tuple(module[0].weight.shape))
        zero.finish_param_gather()
        return [*last, tuple(module[1].weight.shape)]

    assert tinydist.launch(shapes, 2).results == [[shard, (3, 3), (2, 3)] for shard in ((4,), (2,))]


def test_state_dict_has_new_weights():
    def weights():
        module, zero = after_a_step()
        saved = {key: value.clone() for key, value in module.state_dict().items()}
        zero.finish_param_gather()
        return all(torch.equal(saved[key], value) for key, value in module.state_dict().items())

    assert tinydist.launch(weights, 2).results == [True] * 2


def test_a_layer_that_is_called_alone_is_trained_too():
    """Gathered are all, in the same order on all ranks, before the next step."""

    def losses():
        module, zero = after_a_step()
        for _ in range(2):
            module[1](torch.ones(2, 3)).sum().backward()
            zero.step()
            zero.zero_grad()
        zero.finish_param_gather()
        return module[1].bias.tolist(), module[0].weight.shape

    (bias, shape), *_ = tinydist.launch(losses, 3).results
    assert shape == (3, 3) and bias == pytest.approx([start - 3 * 0.1 * 2 for start in bias_at_start()])


class Table(nn.Module):
    """Adds the rows of an embedding that it never calls, as GPTs do with their positions."""

    def __init__(self):
        super().__init__()
        self.linear, self.position = nn.Linear(3, 3), nn.Embedding(8, 3)

    def forward(self, x):
        return self.linear(x) + self.position.weight[: len(x)]


@pytest.mark.parametrize("stage", [ZeRO1, ZeRO2])
def test_what_a_module_reads_of_one_that_it_does_not_call_is_there(stage):
    def weights(overlap):
        torch.manual_seed(0)
        module = nn.Sequential(Table(), Table())
        zero = stage(module, torch.optim.SGD, bucket_bytes=40, overlap_param_gather=overlap, lr=0.1)
        for _ in range(3):
            module(torch.ones(4, 3)).square().sum().backward()
            zero.step()
            zero.zero_grad()
        zero.finish_param_gather()
        return [parameter.tolist() for parameter in module.parameters()]

    assert tinydist.launch(weights, 2, True).results == tinydist.launch(weights, 2, False).results


def bias_at_start():
    def start():
        return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))[1].bias.tolist()

    return tinydist.launch(start, 1).results[0]


def test_stage_3_has_nothing_to_overlap():
    with pytest.raises(ValueError, match="overlap_param_gather is for stages 1 and 2; stage 3 gathers a unit before"):
        tinydist.launch(lambda: stage_3(nn.Linear(2, 2), overlap_param_gather=True), 2)
