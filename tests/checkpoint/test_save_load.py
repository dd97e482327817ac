"""Checkpoints: saved by some ranks in one stage, loaded by others in another; and training goes on."""

import io

import pytest
import torch
from data_parallel.awkward_model import Awkward
from tiny_training import assert_every_rank_has, weights
from torch import nn
from zero.ladder import Alone, everything, linear, mine, stage_1, stage_2, stage_3, train, whole_weights

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint import UnshardedModel
from tinydist.data_parallel import DDP
from tinydist.zero import CPUOffload, NVMeOffload, ZeROInfinity, ZeROOffload


def in_two_halves():
    module = Awkward()
    rung = Alone(module, torch.optim.AdamW, lr=0.01)
    train(rung, everything, steps=2)
    middle = weights(module)
    train(rung, lambda step: everything(step + 2), steps=2)
    return middle, weights(module)


def first_half(stage, save):
    zero = stage(Awkward(), lr=0.01)
    train(zero, mine, steps=2)
    return through_a_file(save(zero))


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def second_half(stage, states):
    module = Awkward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)  # all of it must come from the state
        module.scale.fill_(7.0)
    zero = stage(module, lr=7.0)
    checkpoint.load(zero, *states)
    loaded = whole_weights(zero)
    train(zero, lambda step: mine(step + 2), steps=2)
    return loaded, whole_weights(zero)


@pytest.mark.parametrize("saving, loading", [(4, 3), (1, 8), (3, 1)])
@pytest.mark.parametrize("save", [checkpoint.gathered, checkpoint.sharded])
@pytest.mark.parametrize("stages", [(stage_2, stage_2), (stage_3, stage_1), (stage_1, stage_3)])
def test_training_goes_on(saving, loading, save, stages):
    states = tinydist.launch(first_half, saving, stages[0], save, observe=False).results
    if save is checkpoint.gathered:
        states = states[-1:]  # every rank has all
    run = tinydist.launch(second_half, loading, stages[1], states[::-1], observe=False)
    middle, end = in_two_halves()
    loaded, found = zip(*run.results)
    assert_every_rank_has(middle, loaded)
    assert_every_rank_has(end, found)


@pytest.mark.parametrize("save", [checkpoint.gathered, checkpoint.sharded])
@pytest.mark.parametrize("stage", [ZeROOffload, ZeROInfinity])
def test_training_goes_on_with_another_home(save, stage, tmp_path):
    """From the host to a disk, by other ranks."""
    units = {"units": linear} if stage is ZeROInfinity else {}

    def on(device):
        return lambda module, **options: stage(module, offload_device=device(), **units, **options)

    states = tinydist.launch(first_half, 3, on(CPUOffload), save, observe=False).results
    states = states[:1] if save is checkpoint.gathered else states
    run = tinydist.launch(second_half, 2, on(lambda: NVMeOffload(tmp_path)), states)
    loaded, found = zip(*run.results)
    middle, end = in_two_halves()
    assert_every_rank_has(middle, loaded)
    assert_every_rank_has(end, found)


def test_training_goes_on_with_ddp_and_comes_back(tmp_path):
    def zero_again(load):
        zero = stage_3(Awkward(), lr=0.01)
        if load:
            checkpoint.load(zero, tmp_path)
        else:
            train(zero, mine, steps=2)
            checkpoint.save(zero, tmp_path)
        return zero.steps, whole_weights(zero)

    def second_half_with_ddp():
        module = Awkward()
        rung = UnshardedModel(module, torch.optim.AdamW([p for p in module.parameters() if p.requires_grad]))
        checkpoint.load(rung, tmp_path)
        wrapped = DDP(module)
        for step in (2, 3):
            inputs, targets = mine(step)
            nn.functional.mse_loss(wrapped(inputs), targets).backward()
            rung.optimizer.step()
            rung.optimizer.zero_grad()
        checkpoint.save(rung, tmp_path)
        return rung.steps, weights(module)

    runs = [
        tinydist.launch(*how, observe=False)
        for how in ((zero_again, 4, 0), (second_half_with_ddp, 3), (zero_again, 2, 1))
    ]
    for run, steps, expected in zip(runs, (2, 4, 4), [in_two_halves()[half] for half in (0, 1, 1)]):
        counted, found = zip(*run.results)
        assert set(counted) == {steps}
        assert_every_rank_has(expected, found)


def test_gathered_is_what_torchs_optimizer_keeps():
    module = Awkward()
    rung = Alone(module, torch.optim.AdamW, lr=0.01)
    train(rung, everything, steps=2)
    for state in tinydist.launch(first_half, 3, stage_3, checkpoint.gathered).results:
        for name, parameter in module.named_parameters():
            saved = state["parameters"][name]
            expected = {"weight": parameter.detach()} | {
                key: value for key, value in rung.optimizer.state.get(parameter, {}).items() if key != "step"
            }
            torch.testing.assert_close(saved["vectors"], expected, rtol=0, atol=1e-6)
            assert not parameter.requires_grad or saved["scalars"]["step"] == 2


def test_a_shard_is_this_ranks_part_and_sends_nothing():
    def program(save):
        zero = stage_3(nn.Linear(16, 16), torch.optim.SGD)
        return sum(entry["vectors"]["weight"].numel() for entry in save(zero)["parameters"].values())

    run, without, gathered = (
        tinydist.launch(program, 4, save)
        for save in (checkpoint.sharded, lambda _: {"parameters": {}}, checkpoint.gathered)
    )
    assert run.results == [16 * 17 // 4] * 4 and run.traffic == without.traffic
    assert gathered.results == [16 * 17] * 4
    assert sum(map(sum, gathered.traffic)) - sum(map(sum, without.traffic)) == 3 * 16 * 17 * 4
