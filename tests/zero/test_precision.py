"""In which precision gradients are added up; and loss scalers, whose decision must be that of all ranks."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import tiny_mlp
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from zero.ladder import STAGES, mine, stage_2, whole_weights

import tinydist
from tinydist.precision import LossScaler, StaticLossScale

on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
MANY = 512


def added_up(stage, quiet, reduce_dtype):
    """The gradient of one bf16 layer, as the parts that the ranks own: one microbatch, ``MANY`` times."""
    layer = torch.nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    zero = stage(layer, reduce_dtype=reduce_dtype)
    x = torch.full((1, 4), 1 + dist.get_rank(), dtype=torch.bfloat16)
    for left in reversed(range(MANY)):
        zero.reduction.synchronize = left == 0 or not quiet
        (layer(x).sum() / MANY).backward()
    return zero.buckets[0].grad.float()


@on_all_stages
@pytest.mark.parametrize("quiet", [False, True], ids=["each is reduced", "no_sync"])
def test_many_microbatches_add_up_in_fp32(stage, quiet):
    """Of each, the same gradient comes: so their sum is known. In 16 bits it stops to grow when it is 256 of them."""
    for found in tinydist.launch(added_up, 2, stage, quiet, torch.float32, observe=False).results:
        torch.testing.assert_close(found, torch.full_like(found, 1.5), rtol=0.005, atol=0)
    for found in tinydist.launch(added_up, 2, stage, quiet, None, observe=False).results:
        assert (found < 0.7 * 1.5).all()


@on_all_stages
def test_what_a_scale_has_kept_from_vanishing_in_16_bits_does_not_vanish_when_it_is_taken_off(stage):
    """A gradient of 2^-26 is 0 in fp16, and times a scale of 2^16 it is not."""

    def program():
        layer = torch.nn.Linear(1, 1, bias=False, dtype=torch.float16)
        zero = stage(layer, torch.optim.SGD, reduce_dtype=None, lr=2.0**26)
        before, scaler = zero.buckets[0].master.clone(), LossScaler(StaticLossScale(2.0**16))
        scaler.scale(2.0**-26 * layer(torch.ones(1, 1, dtype=torch.float16)).float().sum()).backward()
        scaler.unscale_(zero)
        zero.clip_grad_norm_(1.0)
        zero.step()
        return (before - zero.buckets[0].master).item()

    assert tinydist.launch(program, 1, observe=False).results == [1.0]


# Loss scalers.


def scaled_backward(module, scaler, harm=1):
    """The loss of rank 1 is ``harm`` times as large."""
    inputs, targets = mine(0)
    scaler.scale(F.mse_loss(module(inputs), targets) * (harm if dist.get_rank() == 1 else 1)).backward()


def test_under_ddp_all_gradients_overflow_so_torchs_scaler_skips_on_all():
    """The all-reduce carries an infinity to every rank."""

    def program():
        module = DistributedDataParallel(tiny_mlp())
        optimizer, scaler = torch.optim.SGD(module.parameters(), lr=1.0), torch.amp.GradScaler("cpu")
        before = module.module[0].weight.detach().clone()
        scaled_backward(module, scaler, harm=torch.inf)
        scaler.step(optimizer)
        scaler.update()
        return not torch.equal(before, module.module[0].weight), scaler.get_scale()

    stepped, scales = zip(*tinydist.launch(program, 3, observe=False).results)
    assert stepped == (False,) * 3 and scales == (2.0**15,) * 3


def overflow_in_one_shard(stage, scaler):
    """The first number of the first bucket, which rank 0 owns, is infinite."""
    zero = stage(tiny_mlp(), torch.optim.SGD, lr=1.0)
    scaled_backward(zero.module, scaler)
    if dist.get_rank() == 0:
        zero.buckets[0].grad[0] = torch.inf
    return zero


@on_all_stages
def test_in_shards_one_rank_alone_sees_an_overflow_and_torchs_scaler_asks_nobody(stage):
    """The others would step, and wait for the one that does not, or have other weights from then on."""

    def program():
        scaler = torch.amp.GradScaler("cpu")
        zero = overflow_in_one_shard(stage, scaler)
        scaler.unscale_(zero)
        return bool(sum(scaler._found_inf_per_device(zero).values()))

    assert tinydist.launch(program, 3, observe=False).results == [True, False, False]


@on_all_stages
@pytest.mark.parametrize("scaler", [LossScaler, lambda: ShardedGradScaler("cpu")], ids=["ours", "torch's for shards"])
def test_scalers_that_ask_all_ranks_skip_on_all(stage, scaler):
    def program():
        used = scaler()
        zero = overflow_in_one_shard(stage, used)
        used.step(zero)
        used.update()
        return zero.steps

    assert tinydist.launch(program, 3, observe=False).results == [0] * 3


@pytest.mark.parametrize("scaler", [LossScaler, lambda: ShardedGradScaler("cpu"), lambda: torch.amp.GradScaler("cpu")])
def test_without_an_overflow_a_scaled_step_is_an_unscaled_one(scaler):
    def program(scaled):
        zero, used = stage_2(tiny_mlp(), torch.optim.SGD, lr=1.0), scaler()
        inputs, targets = mine(0)
        loss = F.mse_loss(zero.module(inputs), targets)
        if scaled:
            used.scale(loss).backward()
            used.step(zero)
        else:
            loss.backward()
            zero.step()
        return whole_weights(zero)

    plain, scaled = (tinydist.launch(program, 2, each, observe=False).results for each in (False, True))
    torch.testing.assert_close(scaled, plain, rtol=0, atol=1e-6)
