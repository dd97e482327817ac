"""torch's sharded data parallelism, unmodified, on simulated ranks: what one process computes."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sampled import later, sampled
from tiny_training import (
    assert_every_rank_has,
    global_batch,
    my_rows,
    sgd,
    tiny_mlp,
    train,
    train_in_one_process,
    weights,
)
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from unobserved import launch

import tinydist

# A layer with tensor parallelism returns a view: nothing here changes it in place.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view:UserWarning")


def sharded(mesh=None, model=tiny_mlp, **options):
    """A model of which every linear layer, and the whole, is sharded."""
    model = model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def trained_sharded(**options):
    model = sharded(init_device_mesh("cpu", (dist.get_world_size(),)), **options)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    return train(model, sgd(model.parameters()))


@pytest.mark.parametrize("ranks", sampled((1, 3, 4), (1, 2, 3, 4, 8)))  # 3 divides neither 16 nor 8: shards are uneven
def test_fully_shard_equals_one_process(ranks):
    rows = {"rows": 9} if ranks == 3 else {}

    def on_ranks():
        model = sharded(init_device_mesh("cpu", (ranks,)))
        return train(model, sgd(model.parameters()), **rows)

    assert_every_rank_has(train_in_one_process(**rows), launch(on_ranks, ranks).results)


@pytest.mark.parametrize("seed", sampled([0], range(3)))
def test_fully_shard_equals_one_process_in_a_shuffled_schedule(seed):
    run = launch(trained_sharded, 4, schedule="shuffle", seed=seed)
    assert_every_rank_has(train_in_one_process(), run.results)


@pytest.mark.parametrize("reshard", [True, False, 2], ids=["ZeRO-3", "ZeRO-2", "to groups of 2"])
def test_resharding_after_forward_changes_nothing(reshard):
    run = tinydist.launch(lambda: trained_sharded(reshard_after_forward=reshard), 4)
    assert_every_rank_has(train_in_one_process(), run.results)


def test_each_rank_holds_its_share():
    def held():
        model = sharded(init_device_mesh("cpu", (4,)))
        return sum(parameter.to_local().numel() for parameter in model.parameters())

    whole = sum(parameter.numel() for parameter in tiny_mlp().parameters())
    assert launch(held, 4).results == [whole // 4] * 4


def test_hsdp_on_a_2d_mesh_equals_one_process():
    def on_ranks():
        model = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
        return train(model, sgd(model.parameters()))

    assert_every_rank_has(train_in_one_process(), launch(on_ranks, 4).results)


@pytest.mark.parametrize("shape", [(2, 2), later(((4, 2),)), later(((2, 4),))], ids=str)
def test_fully_shard_with_tensor_parallel_equals_one_process(shape):
    def on_ranks():
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        model = tiny_mlp()
        head = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": head})
        for layer in (model[0], model[2], model[4], model):
            fully_shard(layer, mesh=mesh["dp"])
        return train(model, sgd(model.parameters()), lambda batch: my_rows(batch, mesh["dp"]))

    run = launch(on_ranks, shape[0] * shape[1])
    assert_every_rank_has(train_in_one_process(), run.results)


def test_mixed_precision_equals_the_same_roundings_in_one_process():
    """Parameters are rounded to bfloat16 to compute, gradients are summed in float32."""

    def on_ranks():
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = sharded(init_device_mesh("cpu", (4,)), mp_policy=policy)
        inputs, targets = my_rows(global_batch(0))
        F.mse_loss(model(inputs).float(), targets).backward()
        return {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}

    sums = {name: 0.0 for name, _ in tiny_mlp().named_parameters()}
    for inputs, targets in zip(*(tensor.chunk(4) for tensor in global_batch(0))):
        model = tiny_mlp().bfloat16()
        F.mse_loss(model(inputs.bfloat16()).float(), targets).backward()
        sums = {name: sums[name] + parameter.grad.float() / 4 for name, parameter in model.named_parameters()}
    assert_every_rank_has(sums, launch(on_ranks, 4).results)


def test_activation_checkpointing_changes_nothing():
    def on_ranks():
        model = nn.Sequential(*(checkpoint_wrapper(nn.Sequential(*pair)) for pair in pairs(tiny_mlp())))
        for block in model:
            fully_shard(block)
        fully_shard(model)
        return train(model, sgd(model.parameters()))

    expected = train_in_one_process(nn.Sequential(*(nn.Sequential(*pair) for pair in pairs(tiny_mlp()))))
    assert_every_rank_has(expected, launch(on_ranks, 4).results)


def pairs(layers):
    layers = list(layers)
    return [layers[start : start + 2] for start in range(0, len(layers), 2)]


def clipped_training(model, share):
    """Weights and the norms before clipping."""
    optimizer, norms = sgd(model.parameters()), []
    for step in range(3):
        inputs, targets = share(global_batch(step))
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        optimizer.step()
    return weights(model) | {"norms": torch.stack(norms).detach()}


@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=str)
def test_gradients_are_clipped_by_the_norm_over_all_shards(shape):
    def on_ranks():
        return clipped_training(sharded(init_device_mesh("cpu", shape, mesh_dim_names=names)), my_rows)

    names = ("replicate", "shard")[-len(shape) :]
    expected = clipped_training(tiny_mlp(), lambda batch: batch)
    assert (expected["norms"] > 0.5).all()  # it does clip
    assert_every_rank_has(expected, launch(on_ranks, 4).results)


def test_gradients_are_accumulated_without_communication():
    def on_ranks():
        model = sharded(init_device_mesh("cpu", (4,)))
        optimizer = sgd(model.parameters())
        for step in range(2):
            halves = list(zip(*(tensor.chunk(2) for tensor in my_rows(global_batch(step)))))
            optimizer.zero_grad()
            for number, (inputs, targets) in enumerate(halves):
                model.set_requires_gradient_sync(number == 1)
                (F.mse_loss(model(inputs), targets) / 2).backward()
            optimizer.step()
        return weights(model)

    assert_every_rank_has(train_in_one_process(steps=2), launch(on_ranks, 4).results)


@pytest.mark.parametrize("prefetch", [1, 2])
def test_explicit_prefetching_changes_nothing(prefetch):
    def on_ranks():
        model = sharded(init_device_mesh("cpu", (4,)))
        layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        for index, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[index + 1 : index + 1 + prefetch])
            layer.set_modules_to_backward_prefetch(layers[max(0, index - prefetch) : index][::-1])
        return train(model, sgd(model.parameters()))

    assert_every_rank_has(train_in_one_process(), launch(on_ranks, 4).results)


@pytest.mark.parametrize("strategy", [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP], ids=str)
def test_fsdp1_equals_one_process(strategy):
    def on_ranks():
        model = FullyShardedDataParallel(
            tiny_mlp(),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            sharding_strategy=strategy,
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )
        train(model, sgd(model.parameters()))
        with FullyShardedDataParallel.summon_full_params(model):
            return {name.replace("_fsdp_wrapped_module.", ""): weight for name, weight in weights(model).items()}

    assert_every_rank_has(train_in_one_process(), launch(on_ranks, 4).results)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-3)  # a large eps, as Adam alone ignores a gradient's scale


def trained_with_sharded_adam(bucket_views=False):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(tiny_mlp(), gradient_as_bucket_view=bucket_views)
    options = {"lr": 0.01, "eps": 1e-3, "parameters_as_bucket_view": bucket_views}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **options)
    return optimizer, train(model, optimizer)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch.distributed.optim uses it
@pytest.mark.parametrize("bucket_views", [False, True])
def test_zero_redundancy_optimizer_equals_one_process(bucket_views):
    def on_ranks():
        optimizer, found = trained_with_sharded_adam(bucket_views)
        return len(optimizer.optim.state), found

    held, found = zip(*launch(on_ranks, 4).results)
    assert sum(held) == 6 and max(held) < 6  # each rank has the states of some parameters
    assert_every_rank_has(train_in_one_process(optimizer=adam), found)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_zero_redundancy_optimizer_gathers_its_state_on_one_rank():
    def on_ranks():
        optimizer, _ = trained_with_sharded_adam()
        optimizer.consolidate_state_dict(to=0)
        return averages(optimizer) if dist.get_rank() == 0 else None

    def averages(optimizer):
        return {index: state["exp_avg"] for index, state in optimizer.state_dict()["state"].items()}

    model = tiny_mlp()
    optimizer = adam(model.parameters())
    train(model, optimizer, share=lambda batch: batch)
    gathered, *others = launch(on_ranks, 4).results
    assert_every_rank_has(averages(optimizer), [gathered])
    assert others == [None] * 3


def test_what_torch_refuses_is_torchs_own_error():
    def on_ranks():
        layer = nn.Linear(2, 2)
        layer.scale = nn.Parameter(torch.tensor(2.0))
        fully_shard(layer)

    with pytest.raises(ValueError, match="doesn't support scalar parameters"):
        launch(on_ranks, 2)
