"""Stage 1, and what all stages have from it: the start, the interface, the errors."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data_parallel.awkward_model import Awkward
from tiny_training import assert_every_rank_has, tiny_mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unobserved import launch
from zero.ladder import STAGES, Alone, everything, mine, stage_1, stage_3, train, trained, trained_alone, whole_weights

import tinydist
from tinydist.precision import LossScaler, MasterWeights
from tinydist.zero import PerParameterSharding, ZeRO1

on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def test_on_processes():
    def program():
        how = {"clip": 0.01, "microbatches": 2}
        by_parameter = {"lr": 0.01, "sharding": PerParameterSharding}
        return [trained(stage, options=options, **how) for stage in STAGES for options in (None, by_parameter)]

    expected = trained_alone(clip=0.01, microbatches=2)
    for results in zip(*tinydist.launch(program, 2, backend="gloo", timeout=60).results):
        assert_every_rank_has(expected, results)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch.distributed.optim uses it
def test_equals_torchs_zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def theirs():
        model = DistributedDataParallel(tiny_mlp())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
        for step in range(4):
            inputs, targets = mine(step)
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return {name: p.detach().clone() for name, p in model.module.named_parameters()}

    expected = tinydist.launch(theirs, 3).results[0]
    assert_every_rank_has(expected, tinydist.launch(lambda: trained(stage_1, tiny_mlp), 3).results)


@on_all_stages
def test_all_start_as_rank_0(stage):
    def program():
        torch.manual_seed(dist.get_rank())
        module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3).requires_grad_(False))
        module[1].running_mean.fill_(dist.get_rank() + 1)
        zero = stage(module)
        return whole_weights(zero) | {"mean": module[1].running_mean}

    first, *others = launch(program, 3).results
    assert_every_rank_has(first, others, atol=0)


@on_all_stages
def test_a_group_of_some_ranks(stage):
    """Two halves of the world, each of which trains for itself."""

    def program():
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        zero = stage(Awkward(), lr=0.01, group=halves[dist.get_rank() // 2])
        train(zero, lambda step: [tensor.chunk(2)[dist.get_rank() % 2] for tensor in everything(step)], clip=0.01)
        return whole_weights(zero)

    module = Awkward()
    alone = Alone(module, torch.optim.AdamW, lr=0.01)
    train(alone, everything, clip=0.01)
    assert_every_rank_has(whole_weights(alone), launch(program, 4).results)


@on_all_stages
def test_schedules_of_the_learning_rate(stage):
    def scheduled(rung, share):
        schedule = torch.optim.lr_scheduler.StepLR(rung.optimizer, 1, gamma=0.5)
        for step in range(3):
            train(rung, lambda _, step=step: share(step), steps=1)
            schedule.step()
        return whole_weights(rung)

    expected = scheduled(Alone(tiny_mlp(), torch.optim.SGD, lr=0.5), everything)
    run = launch(lambda: scheduled(stage(tiny_mlp(), torch.optim.SGD, lr=0.5), mine), 3)
    assert_every_rank_has(expected, run.results)


@on_all_stages
def test_the_optimizer_steps_once_on_all_shards(stage):
    """So that those of torch that work on many tensors at once have them."""
    seen = []

    class Watched(torch.optim.SGD):
        def step(self):
            seen.append([p.grad is not None for group in self.param_groups for p in group["params"]])
            super().step()

    def program():
        zero = stage(tiny_mlp(), Watched, lr=0.1, foreach=True)
        train(zero, mine, steps=1)
        return len(zero.buckets)

    (buckets,) = launch(program, 1).results
    assert seen == [[True] * buckets] and buckets >= 3


@on_all_stages
def test_who_looks_at_a_rank_alone_waits_for_nobody(stage):
    def program():
        zero = stage(tiny_mlp())
        zero.module(torch.ones(1, 8)).sum().backward()
        if dist.get_rank() == 1:
            (group,) = zero.param_groups
            return [tensor.grad.numel() for tensor in group["params"]] == [b.sharding.own for b in zero.buckets]

    assert launch(program, 2).results == [None, True]


@on_all_stages
def test_a_parameter_that_takes_no_part_has_a_gradient_of_zeros(stage):
    """Without weight decay, it stays as it was."""
    how = {"optimizer": torch.optim.Adam, "make": lambda: Awkward(unused=True)}
    run = launch(lambda: trained(stage, **how), 3)
    assert_every_rank_has(trained_alone(**how), run.results)


@on_all_stages
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bits_on_one_rank_are_master_weights(stage, dtype):
    """On one rank nothing is averaged, so it is the same to the last bit."""

    def halves(step):
        return [tensor.to(dtype) for tensor in everything(step)]

    alone = Alone(tiny_mlp().to(dtype), lambda parameters, **options: MasterWeights(parameters, **options), lr=0.01)
    alone.clip_grad_norm_ = alone.optimizer.clip_grad_norm_
    norms = train(alone, halves, clip=0.01)

    def program():
        zero = stage(tiny_mlp().to(dtype), lr=0.01)
        return train(zero, halves, clip=0.01), whole_weights(zero)

    ((found, weights),) = launch(program, 1).results
    torch.testing.assert_close(torch.stack(found), torch.stack(norms))
    torch.testing.assert_close(weights, whole_weights(alone), rtol=2**-10 if dtype == torch.float16 else 2**-7, atol=0)


@on_all_stages
def test_fp16_with_a_loss_scaler(stage):
    """An overflow on one rank's shard: no rank steps. The scale then halves, and training goes on."""

    def program():
        zero, scaler, stepped = stage(tiny_mlp().half(), lr=0.01), LossScaler(), []
        start = whole_weights(zero)
        for step in range(3):
            inputs, targets = (tensor.half() for tensor in mine(step))
            loss = F.mse_loss(zero.module(inputs).float(), targets.float())
            (scaler.scale(loss) * (1e6 if step == 0 and dist.get_rank() == 1 else 1)).backward()
            stepped.append(scaler.step(zero))
            scaler.update()
            zero.zero_grad()
            if step == 0:
                assert_every_rank_has(start, [whole_weights(zero)], atol=0)
        return stepped, whole_weights(zero)

    stepped, found = zip(*launch(program, 2).results)
    assert stepped == ([False, True, True],) * 2
    assert_every_rank_has(found[0], found, atol=0)
    assert all(weight.isfinite().all() for weight in found[0].values())


# Errors.


def fails(program, error, message, ranks=2):
    with pytest.raises(error, match=message):
        launch(program, ranks)


@on_all_stages
def test_a_rank_with_another_module(stage):
    def program():
        stage(nn.Sequential(*(nn.Linear(2, 2) for _ in range(1 + dist.get_rank() // 2))))

    fails(program, ValueError, "rank 2 has 4 and rank 0 has 2; first difference: 1.bias", ranks=3)


def test_nothing_to_train():
    fails(
        lambda: stage_1(nn.Linear(2, 2).requires_grad_(False)),
        ValueError,
        "no parameter of the module requires a gradient",
    )


def test_a_group_with_another_modules_parameters():
    foreign = [nn.Parameter(torch.ones(2, 5))]
    fails(lambda: stage_3(tiny_mlp(), param_groups=foreign), ValueError, r"not in the module: \[2, 5\]")


def test_buckets_that_hold_nothing():
    fails(lambda: ZeRO1(tiny_mlp(), bucket_bytes=0), ValueError, "bucket_bytes must be a number > 0, got 0")


@on_all_stages
def test_parameters_that_are_to_be_apart_share_no_bucket_and_a_bucket_counts_in_the_norm_as_much_as_is_said(stage):
    """Of two kinds, one does not count: the norm is that of the other."""

    def program():
        module = tiny_mlp()
        biases = {parameter for parameter in module.parameters() if parameter.dim() < 2}
        zero = stage(module, torch.optim.SGD, apart=biases.__contains__, lr=0.1)
        inputs, targets = mine(0)
        F.mse_loss(module(inputs), targets).backward()
        kinds = [{parameter in biases for parameter in bucket.parameters} for bucket in zero.buckets]
        assert {True} in kinds and {False} in kinds and {True, False} not in kinds
        for bucket, (bias,) in zip(zero.buckets, kinds):
            bucket.norm_weight = 0.0 if bias else 1.0
        return zero.clip_grad_norm_(1e9)

    module = tiny_mlp()
    F.mse_loss(module(everything(0)[0]), everything(0)[1]).backward()
    expected = torch.stack([p.grad.square().sum() for p in module.parameters() if p.dim() == 2]).sum().sqrt()
    assert_every_rank_has(expected, launch(program, 2).results)
