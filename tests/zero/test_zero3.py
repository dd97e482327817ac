"""Stage 3: torch's fully_shard, step by step; units, their order, and what is whole when."""

import re

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data_parallel.awkward_model import Awkward
from tiny_training import assert_every_rank_has, tiny_mlp, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from unobserved import launch
from zero.ladder import Alone, everything, linear, mine, stage_3, train, trained, trained_alone, whole_weights

import tinydist
from tinydist.zero import ZeRO3
from tinydist.zero.buckets import BucketState


def uneven():
    """No dim divides by 2, 3 or 4; the outermost unit has a parameter of its own, between its units."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 5), nn.LayerNorm(5), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 8))


def fully_sharded(module, **policy):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = {"mp_policy": MixedPrecisionPolicy(**policy)} if policy else {}
    for layer in filter(linear, module):
        fully_shard(layer, mesh=mesh, **policy)
    return Alone(fully_shard(module, mesh=mesh, **policy), torch.optim.AdamW, lr=0.01)


def step_by_step(rung, steps=4):
    """The whole weights and the norm after each step."""
    found = []
    for step in range(steps):
        inputs, targets = mine(step)
        F.mse_loss(rung.module(inputs), targets).backward()
        norm = rung.clip_grad_norm_(0.01).detach()
        rung.step()
        rung.zero_grad()
        found.append({"norm": norm.full_tensor() if isinstance(norm, DTensor) else norm} | whole_weights(rung))
    return found


@pytest.mark.parametrize(
    "ranks, reshard, make",
    [(1, True, uneven), (2, True, uneven), (3, True, uneven), (3, False, uneven), (4, True, tiny_mlp)],
)
def test_equals_fully_shard_step_by_step(ranks, reshard, make):
    def ours():
        return step_by_step(stage_3(make(), lr=0.01, reshard_after_forward=reshard))

    theirs = launch(lambda: step_by_step(fully_sharded(make())), ranks).results
    for found in launch(ours, ranks).results:
        for step in range(4):
            assert_every_rank_has(theirs[0][step], [found[step]])


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("reduce", [torch.float32, torch.bfloat16], ids=str)
def test_16_bits_with_an_fp32_master_equal_fully_shards_mixed_precision(ranks, reduce):
    """There the parameters are fp32, and rounded to compute: what we call the master."""

    def ours():
        zero = stage_3(tiny_mlp().bfloat16(), lr=0.01, reduce_dtype=reduce)
        train(zero, lambda step: [tensor.bfloat16() for tensor in mine(step)])
        return whole_weights(zero)

    def theirs():
        rung = fully_sharded(tiny_mlp().bfloat16().float(), param_dtype=torch.bfloat16, reduce_dtype=reduce)
        train(rung, lambda step: [tensor.bfloat16() for tensor in mine(step)])
        return {name: weight.bfloat16() for name, weight in weights(rung.module).items()}

    expected = launch(theirs, ranks).results[0]
    assert_every_rank_has(expected, launch(ours, ranks).results, atol=0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_frozen_units_are_sharded_too(ranks):
    """Awkward has a frozen layer; it is whole when gradients pass it, and a shard in the end."""

    def program():
        zero = stage_3(Awkward(), lr=0.01)
        train(zero, mine)
        held = sum(p.numel() for p in zero.module.frozen.parameters())
        return held, whole_weights(zero)

    held, found = zip(*launch(program, ranks).results)
    assert sum(held) == 8 * 8 + 8
    assert_every_rank_has(trained_alone(), found)


def test_parameters_are_shards_between_steps():
    def program():
        zero = stage_3(tiny_mlp())
        before = sum(p.numel() for p in zero.module.parameters())
        zero.module(torch.ones(1, 8)).sum().backward()
        return before, sum(p.numel() for p in zero.module.parameters())

    sizes = launch(program, 3).results
    whole = sum(p.numel() for p in tiny_mlp().parameters())
    assert [sum(column) for column in zip(*sizes)] == [whole, whole]
    assert max(own for own, _ in sizes) <= whole // 3 + 3


def whole_layers(zero):
    buckets = [zero.buckets_of[layer][0] for layer in filter(linear, zero.module)]
    return [number for number, bucket in enumerate(buckets) if bucket.state is not BucketState.SHARDED]


@pytest.mark.parametrize(
    "options, forward, backward",
    [
        ({}, [[0, 1], [1, 2], [2]], [[1, 2], [0, 1], [0]]),
        ({"prefetch": False}, [[0], [1], [2]], [[2], [1], [0]]),
        ({"reshard_after_forward": False}, [[0, 1], [0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 1], [0]]),
    ],
    ids=str,
)
def test_what_is_whole_when(options, forward, backward):
    """While each layer runs; layers are those with parameters."""

    def program():
        zero, seen = stage_3(tiny_mlp(), **options), [[], []]

        def before_backward(layer, inputs, output):
            output.register_hook(lambda _: seen[1].append(whole_layers(zero)))

        for layer in filter(linear, zero.module):
            layer.register_forward_pre_hook(lambda *_: seen[0].append(whole_layers(zero)))
            layer.register_forward_hook(before_backward)
        zero.module(torch.ones(1, 8)).sum().backward()
        return *seen, whole_layers(zero)

    assert launch(program, 2).results == [(forward, backward, [])] * 2


class Backwards(nn.Module):
    """Its layers run from the last one defined to the first, the middle one twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for number in (2, 1, 1, 0):
            x = self.layers[number](x)
        return x


def test_the_next_unit_is_gathered_in_the_order_in_which_they_ran():
    """From the second step on: each gather but the first begins one layer ahead."""

    def program():
        zero, seen = ZeRO3(Backwards(), units=linear), []
        buckets = [zero.buckets_of[layer][0] for layer in zero.module.layers]

        def note(number):
            seen.append((number, [place for place, b in enumerate(buckets) if b.state is not BucketState.SHARDED]))

        for number, layer in enumerate(zero.module.layers):
            layer.register_forward_pre_hook(lambda *_, number=number: note(number))
            layer.register_forward_hook(
                lambda layer, inputs, output, number=number: output.register_hook(lambda _: note(number)) and None
            )
        for _ in range(2):
            del seen[:]
            zero.module(torch.ones(1, 8, requires_grad=True)).sum().backward()
        return seen

    forward = [(2, [1, 2]), (1, [1]), (1, [0, 1]), (0, [0])]
    backward = [(0, [0, 1]), (1, [1]), (1, [1, 2]), (2, [2])]
    assert launch(program, 2).results == [forward + backward] * 2


@pytest.mark.parametrize("units", [linear, "by hand", ()], ids=["rule", "by hand", "one unit"])
def test_units_change_nothing(units):
    def program():
        module = Awkward()
        chosen = [module.twice, module.into] if units == "by hand" else units
        zero = ZeRO3(module, units=chosen, lr=0.01)
        train(zero, mine)
        return [type(unit).__name__ for unit in zero.units], whole_weights(zero)

    names, found = zip(*launch(program, 3).results)
    assert names[0] == ["Awkward"] + ["Linear"] * {linear: 4, "by hand": 2, (): 0}[units]
    assert_every_rank_has(trained_alone(), found)


def test_a_tied_weight_belongs_to_what_is_around_both():
    def program():
        zero = stage_3(Awkward())
        own = zero.module.state_dict(keep_vars=True)
        return zero.owner[own["into.weight"]] is zero.module, zero.owner[own["into.bias"]] is zero.module.into

    assert launch(program, 2).results == [(True, True)] * 2


def nested():
    """Units within units, and within them a list and a dict as outputs."""
    torch.manual_seed(2)

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return {"parts": [self.left(x), self.scale * torch.tanh(self.right(x))]}

    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.pairs = nn.ModuleList(Pair() for _ in range(3))

        def forward(self, x):
            for pair in self.pairs:
                x = sum(pair(x)["parts"])
            return x

    return Sums()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_units_within_units(ranks):
    def program():
        zero = ZeRO3(nested(), units=lambda module: linear(module) or type(module).__name__ == "Pair", lr=0.01)
        train(zero, mine)
        return whole_weights(zero)

    assert_every_rank_has(trained_alone(nested), launch(program, ranks).results)


@pytest.mark.parametrize("around", ["units", "layers in units"])
def test_activation_checkpointing_changes_nothing(around):
    def checkpointed(module):
        for layer in filter(linear, module):
            inner = layer.forward
            layer.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)
        return module

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = tiny_mlp()

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    def program():
        zero = stage_3(checkpointed(tiny_mlp()) if around == "layers in units" else Around(), lr=0.01)
        train(zero, mine)
        return {name.removeprefix("layers."): weight for name, weight in whole_weights(zero).items()}

    assert_every_rank_has(trained_alone(tiny_mlp), launch(program, 3).results)


@pytest.mark.parametrize("reshard", [True, False])
def test_evaluation_between_steps_sees_the_new_weights(reshard):
    def program():
        zero, seen = stage_3(tiny_mlp(), lr=0.01, reshard_after_forward=reshard), []
        for step in range(3):
            train(zero, lambda _, step=step: mine(step), steps=1)
            with torch.no_grad():
                seen.append(zero.module(torch.ones(1, 8)))
        return seen

    module, seen = tiny_mlp(), []
    rung = Alone(module, torch.optim.AdamW, lr=0.01)
    for step in range(3):
        train(rung, lambda _, step=step: everything(step), steps=1)
        seen.append(module(torch.ones(1, 8)).detach())
    for found in launch(program, 3).results:
        torch.testing.assert_close(found, seen, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_in_a_shuffled_schedule(seed):
    run = tinydist.launch(lambda: trained(stage_3), 4, schedule="shuffle", seed=seed)
    assert_every_rank_has(trained_alone(), run.results)


def test_a_unit_of_another_module():
    with pytest.raises(ValueError, match=re.escape("ZeRO3: units must be submodules of the module, got Linear")):
        launch(lambda: ZeRO3(tiny_mlp(), units=[nn.Linear(2, 2)]), 2)


def test_a_list_of_modules_is_no_unit():
    with pytest.raises(ValueError, match=r"ModuleList has no forward\(\) and cannot be a unit"):
        launch(lambda: ZeRO3(nested(), units=lambda module: isinstance(module, nn.ModuleList)), 2)
