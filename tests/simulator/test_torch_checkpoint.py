"""torch.distributed.checkpoint, unmodified, on simulated ranks: what was saved comes back, on any number of ranks."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sampled import later
from tiny_training import assert_every_rank_has, sgd, tiny_mlp, train, train_in_one_process, weights
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from unobserved import launch

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-3)


def sharded(shape, optimizer=adam):
    names = ("replicate", "shard")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = tiny_mlp()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, optimizer(model.parameters())


def save_after_training(folder, shape):
    model, optimizer = sharded(shape)
    train(model, optimizer)
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.save(states, checkpoint_id=folder)
    return weights(model)


def load_and_train_on(folder, shape):
    """The weights as loaded, and after training went on."""
    model, optimizer = sharded(shape)
    for parameter in model.parameters():
        nn.init.constant_(parameter, -1.0)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    states = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    return weights(model), train(model, optimizer)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """By four ranks: where, and their weights."""
    folder = tmp_path_factory.mktemp("saved")
    return folder, launch(save_after_training, 4, folder, (4,)).results[0]


@pytest.mark.parametrize("after", [later(((4,),)), later(((2,),)), (1,), later(((8,),)), (2, 2)], ids=str)
def test_a_run_of_four_ranks_goes_on_with_any_number(saved, after):
    """Weights and optimizer states, resharded: as if one process had trained twice as long."""
    folder, before = saved
    loaded, trained = zip(*launch(load_and_train_on, torch.Size(after).numel(), folder, after).results)
    assert_every_rank_has(before, loaded, atol=0)

    model = tiny_mlp()
    optimizer = adam(model.parameters())
    for _ in range(2):
        expected = train(model, optimizer, share=lambda batch: batch)
    assert_every_rank_has(expected, trained)


def test_each_rank_writes_its_own_file(saved):
    written = sorted(path.name for path in saved[0].iterdir())
    assert written == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp", "__3_0.distcp"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # so it shall be
def test_one_process_reads_what_four_ranks_wrote(saved):
    folder, expected = saved
    found = {"model": {name: torch.zeros_like(weight) for name, weight in expected.items()}}
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    assert_every_rank_has(expected, [found["model"]], atol=0)


def test_a_tensor_cut_by_rows_is_read_by_columns(tmp_path):
    whole = torch.arange(70.0).view(10, 7)

    def write():
        tensor = distribute_tensor(whole, init_device_mesh("cpu", (4,)), [Shard(0)])
        dcp.save({"tensor": tensor}, checkpoint_id=tmp_path)

    def read():
        tensor = distribute_tensor(torch.zeros(10, 7), init_device_mesh("cpu", (3,)), [Shard(1)])
        dcp.load({"tensor": tensor}, checkpoint_id=tmp_path)
        return tensor.full_tensor()

    launch(write, 4)
    assert_every_rank_has(whole, launch(read, 3).results, atol=0)


def test_a_whole_state_dict_is_gathered_on_rank_0_and_spread_from_it():
    def on_ranks():
        model, optimizer = sharded((4,))
        trained = train(model, optimizer)
        state = get_model_state_dict(model, options=WHOLE)
        assert bool(state) is (dist.get_rank() == 0)
        fresh, _ = sharded((4,))
        spread = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(fresh, dict(state), options=spread)
        return weights(fresh), trained, state

    fresh, trained, states = zip(*launch(on_ranks, 4).results)
    expected = train_in_one_process(optimizer=adam)
    assert_every_rank_has(expected, [states[0]])
    assert_every_rank_has(trained[0], fresh, atol=0)


def test_a_whole_optimizer_state_is_that_of_one_process():
    def on_ranks():
        model, optimizer = sharded((4,), sgd)
        train(model, optimizer)
        state = get_optimizer_state_dict(model, optimizer, options=WHOLE)
        return {name: values["momentum_buffer"] for name, values in state["state"].items()} if state else None

    model = tiny_mlp()
    optimizer = sgd(model.parameters())
    train(model, optimizer, share=lambda batch: batch)
    expected = {name: optimizer.state[parameter]["momentum_buffer"] for name, parameter in model.named_parameters()}
    assert_every_rank_has(expected, launch(on_ranks, 4).results[:1])


def test_a_checkpoint_that_does_not_fit_is_torchs_own_error_on_every_rank(tmp_path):
    launch(save_after_training, 4, tmp_path, (4,))

    def read():
        with pytest.raises(dcp.api.CheckpointException, match="Missing key"):
            dcp.load({"nonsense": torch.zeros(3)}, checkpoint_id=tmp_path)

    launch(read, 4)


def test_an_asynchronous_save_fails_since_its_thread_is_no_rank(tmp_path):
    """It communicates from a thread of its own, which is none of the ranks."""

    def on_ranks():
        model, _ = sharded((2,))
        dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=tmp_path).result()

    with pytest.raises(RuntimeError, match=r"thread .* is not a rank"):
        launch(on_ranks, 2)
    assert not (tmp_path / ".metadata").exists()
