"""torch's DTensor, DeviceMesh, tensor parallelism and functional collectives, unmodified, on simulated ranks."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from sampled import sampled
from tiny_training import (
    HIDDEN,
    OUT,
    ROWS,
    WIDTH,
    assert_every_rank_has,
    global_batch,
    sgd,
    tiny_mlp,
    train,
    train_in_one_process,
)
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch_names import funcol
from unobserved import launch

import tinydist

# torch advises functional collectives, and still has torch.distributed.nn.functional.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")

WHOLE = torch.arange(70.0).view(10, 7)  # neither dim is divided by 4


def line(ranks):
    return init_device_mesh("cpu", (ranks,))


# DTensor.


@pytest.mark.parametrize("ranks", sampled((1, 3, 4), (1, 2, 3, 4, 8)))
@pytest.mark.parametrize("dim", [0, 1])
def test_a_tensor_is_cut_and_put_together_again(ranks, dim):
    def on_ranks():
        tensor = distribute_tensor(WHOLE, line(ranks), [Shard(dim)])
        return tensor.to_local().clone(), tensor.full_tensor()

    pieces, wholes = zip(*launch(on_ranks, ranks).results)
    assert torch.equal(torch.cat(pieces, dim), WHOLE)
    assert_every_rank_has(WHOLE, wholes, atol=0)


def test_a_tensor_is_distributed_from_rank_0():
    def on_ranks():
        return distribute_tensor(WHOLE + dist.get_rank(), line(4), [Replicate()]).to_local()

    assert_every_rank_has(WHOLE, launch(on_ranks, 4).results, atol=0)


PLACEMENTS = [Shard(0), Shard(1), Replicate()]


@pytest.mark.parametrize("before", [*PLACEMENTS, Partial()], ids=str)
@pytest.mark.parametrize("after", PLACEMENTS, ids=str)
def test_redistributing_keeps_the_tensor(before, after):
    def on_ranks():
        if before == Partial():
            tensor = DTensor.from_local(WHOLE * dist.get_rank(), line(4), [before])
        else:
            tensor = distribute_tensor(WHOLE * 6, line(4), [before])
        moved = tensor.redistribute(placements=[after])
        assert moved.placements == (after,)
        return moved.to_local().clone(), moved.full_tensor()

    locals_, wholes = zip(*launch(on_ranks, 4).results)
    assert_every_rank_has(WHOLE * 6, wholes, atol=0)  # 0 + 1 + 2 + 3 = 6
    expected = WHOLE * 6
    if after != Replicate():
        assert torch.equal(torch.cat(locals_, after.dim), expected)


@pytest.mark.parametrize("placements", [[Shard(0), Shard(1)], [Shard(1), Shard(0)], [Shard(0), Shard(0)]], ids=str)
def test_redistributing_on_a_2d_mesh_keeps_the_tensor(placements):
    def on_ranks():
        mesh = init_device_mesh("cpu", (2, 3))
        tensor = distribute_tensor(WHOLE, mesh, placements)
        flipped = tensor.redistribute(placements=placements[::-1])
        return tensor.full_tensor(), flipped.full_tensor()

    for wholes in zip(*launch(on_ranks, 6).results):
        assert_every_rank_has(WHOLE, wholes, atol=0)


@pytest.mark.parametrize("placements", [(Shard(0), Shard(1)), (Shard(1), Shard(0)), (Replicate(), Shard(1))], ids=str)
def test_matrix_product_and_its_gradients(placements):
    def on_ranks():
        left, right = (
            distribute_tensor(whole, line(4), [placement]).requires_grad_()
            for whole, placement in zip((WHOLE, WHOLE.T), placements)
        )
        product = left @ right
        product.sin().sum().backward()
        return [tensor.full_tensor().detach() for tensor in (product, left.grad, right.grad)]

    left, right = WHOLE.clone().requires_grad_(), WHOLE.T.clone().requires_grad_()
    product = left @ right
    product.sin().sum().backward()
    run = launch(on_ranks, 4)
    assert_every_rank_has([product.detach(), left.grad, right.grad], run.results, atol=1e-3)  # of values up to 1e4


# DeviceMesh.


def test_a_1d_mesh_is_the_world():
    def on_ranks():
        mesh = line(4)
        total = torch.tensor(mesh.get_local_rank())
        dist.all_reduce(total, group=mesh.get_group())
        return mesh.mesh.tolist(), mesh.get_local_rank(), total.item()

    assert launch(on_ranks, 4).results == [([0, 1, 2, 3], rank, 6) for rank in range(4)]


def test_the_axes_of_a_2d_mesh_are_rows_and_columns():
    def on_ranks():
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        sums = []
        for axis in ("dp", "tp"):
            total = torch.tensor(float(dist.get_rank()))
            dist.all_reduce(total, group=mesh[axis].get_group())
            sums.append(total.item())
        return mesh.get_coordinate(), mesh["dp"].mesh.tolist(), mesh["tp"].mesh.tolist(), sums

    expected = [
        (
            [row, column],
            [column, 3 + column],
            [3 * row, 3 * row + 1, 3 * row + 2],
            [3 + 2.0 * column, 3 + 9.0 * row],
        )
        for row in range(2)
        for column in range(3)
    ]
    expected = [([*at], dp, tp, sums) for at, dp, tp, sums in expected]
    found = [([*at], *rest) for at, *rest in launch(on_ranks, 6).results]
    assert found == expected


def test_axes_of_a_3d_mesh_flatten_into_one():
    def on_ranks():
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        flat = mesh["dp", "tp"]._flatten("model")
        total = torch.tensor(dist.get_rank())
        dist.all_reduce(total, group=flat.get_group())
        return flat.mesh.tolist(), flat.get_local_rank(), total.item()

    first, second = [0, 1, 2, 3], [4, 5, 6, 7]
    expected = [(first, rank, 6) for rank in range(4)] + [(second, rank, 22) for rank in range(4)]
    assert launch(on_ranks, 8).results == expected


def test_a_mesh_from_a_group_and_a_mesh_of_some_ranks():
    def on_ranks():
        evens = dist.new_group([0, 2])
        if dist.get_rank() % 2:
            return None
        mesh = DeviceMesh.from_group(evens, "cpu")
        return distribute_tensor(WHOLE, mesh, [Shard(0)]).to_local().shape[0], mesh.mesh.tolist()

    assert launch(on_ranks, 4).results == [(5, [0, 2]), None, (5, [0, 2]), None]


# Tensor parallelism.


def parallel_mlp(plan):
    return parallelize_module(tiny_mlp(), line(dist.get_world_size()), plan)


@pytest.mark.parametrize("ranks", sampled((1, 4), (1, 2, 4, 8)))
@pytest.mark.parametrize(
    "plan",
    [
        {"0": ColwiseParallel(), "2": RowwiseParallel()},
        {"0": ColwiseParallel(), "2": RowwiseParallel(output_layouts=Shard(1)), "4": RowwiseParallel()},
        {
            "0": ColwiseParallel(output_layouts=Replicate()),
            "2": RowwiseParallel(input_layouts=Replicate()),
            "4": ColwiseParallel(output_layouts=Replicate()),
        },
    ],
    ids=["column then row", "column, row, row", "layouts redone"],
)
def test_tensor_parallel_training_equals_one_process(plan, ranks):
    def on_ranks():
        model = parallel_mlp(plan)
        return train(model, sgd(model.parameters()), share=lambda batch: batch)

    assert_every_rank_has(train_in_one_process(), launch(on_ranks, ranks).results)


class Normed(nn.Module):
    """Between the norms, tensor parallel; at the norms, each rank has some positions of the sequence."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.norm, self.last_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.head = nn.Linear(WIDTH, OUT)

    def forward(self, inputs):  # [batch, sequence, WIDTH]
        hidden = inputs + self.down(torch.tanh(self.up(self.norm(inputs))))
        return self.head(self.last_norm(hidden))


SEQUENCE_PLAN = {
    "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "last_norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


def sequence_training(model):
    optimizer = sgd(model.parameters())
    for step in range(3):
        inputs, targets = (tensor[None].expand(2, -1, -1) for tensor in global_batch(step))
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return {
        name: parameter.full_tensor().detach() if isinstance(parameter, DTensor) else parameter.detach()
        for name, parameter in model.named_parameters()
    }


@pytest.mark.parametrize("ranks", sampled((1, 2), (1, 2, 4)))
def test_sequence_parallel_training_equals_one_process(ranks):
    run = tinydist.launch(lambda: sequence_training(parallelize_module(Normed(), line(ranks), SEQUENCE_PLAN)), ranks)
    assert_every_rank_has(sequence_training(Normed()), run.results)


@pytest.mark.parametrize("ranks", sampled([4], [2, 4]))
def test_loss_parallel_equals_cross_entropy_over_the_whole_vocabulary(ranks):
    targets = torch.arange(ROWS) % OUT

    def on_ranks():
        model = parallel_mlp({"4": ColwiseParallel(use_local_output=False)})
        with loss_parallel():
            loss = F.cross_entropy(model(global_batch(0)[0]), targets)
            loss.backward()
        return loss.full_tensor().detach(), model[0].weight.grad, model[4].weight.grad.full_tensor()

    model = tiny_mlp()
    loss = F.cross_entropy(model(global_batch(0)[0]), targets)
    loss.backward()
    expected = loss.detach(), model[0].weight.grad, model[4].weight.grad
    assert_every_rank_has(expected, launch(on_ranks, ranks).results)


def test_implicit_replication_holds_for_the_rank_that_asked_for_it():
    """And not for those that run while it waits inside."""

    def on_ranks():
        ones = distribute_tensor(torch.ones(4, 6), line(2), [Shard(1)])
        if dist.get_rank() == 0:
            with implicit_replication():
                dist.barrier()
                dist.barrier()
                return (ones + torch.ones(4, 6)).to_local().sum().item()
        dist.barrier()
        with pytest.raises(RuntimeError, match=r"mixed torch.Tensor and DTensor"):
            ones + torch.ones(4, 6)
        dist.barrier()

    assert launch(on_ranks, 2).results == [24, None]


# Functional collectives: the result is a new tensor, waited for when it is used.


def numbered(*shape):
    """Different on each rank and at each place."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) + 100 * dist.get_rank()


def test_functional_collectives():
    def on_ranks():
        group, world = dist.group.WORLD, dist.get_world_size()
        mine = numbered(4, 2)
        found = {
            "all_reduce": funcol.all_reduce(mine, "sum", group),
            "all_reduce avg": funcol.all_reduce(mine, "avg", group),
            "all_gather": funcol.all_gather_single(mine, 0, group),
            "all_gather 1": funcol.all_gather_single(mine, 1, group),
            "reduce_scatter": funcol.reduce_scatter_single(mine, "sum", 0, group),
            "all_to_all": funcol.all_to_all_single(mine, None, None, group),
            "broadcast": funcol.broadcast(mine, 1, group),
            "permute": funcol.permute_tensor(mine.view(8), [(rank + 1) % world for rank in range(world)], group),
        }
        return mine, {name: tensor + 0 for name, tensor in found.items()}

    inputs, results = zip(*launch(on_ranks, 4).results)
    total = sum(inputs)
    for rank, found in enumerate(results):
        assert torch.equal(inputs[rank], torch.arange(8.0).view(4, 2) + 100 * rank)  # left as it was
        assert torch.equal(found["all_reduce"], total)
        assert torch.equal(found["all_reduce avg"], total / 4)
        assert torch.equal(found["all_gather"], torch.cat(inputs))
        assert torch.equal(found["all_gather 1"], torch.cat(inputs, 1))
        assert torch.equal(found["reduce_scatter"], total[rank : rank + 1])
        assert torch.equal(found["all_to_all"], torch.stack([tensor[rank] for tensor in inputs]))
        assert torch.equal(found["broadcast"], inputs[1])
        assert torch.equal(found["permute"], inputs[rank - 1].view(8))


def test_uneven_functional_all_to_all():
    def on_ranks():
        rank = dist.get_rank()
        # Rank r sends each rank d d + 1 rows, so it gets r + 1 rows of each.
        return funcol.all_to_all_single(numbered(6, 2), [rank + 1] * 3, [1, 2, 3], dist.group.WORLD) + 0

    results = launch(on_ranks, 3).results
    inputs = [torch.arange(12.0).view(6, 2) + 100 * rank for rank in range(3)]
    for rank, found in enumerate(results):
        assert torch.equal(found, torch.cat([tensor.split([1, 2, 3])[rank] for tensor in inputs]))


def test_coalesced_functional_collectives():
    def on_ranks():
        group, mine = dist.group.WORLD, [numbered(4, 2), 10 * numbered(8)]
        return (
            [tensor + 0 for tensor in funcol.all_reduce_coalesced(mine, "sum", group)],
            [tensor + 0 for tensor in funcol.all_gather_single_coalesced(mine, group)],
            [tensor + 0 for tensor in funcol.reduce_scatter_single_coalesced(mine, "sum", [0, 0], group)],
            mine,
        )

    results = launch(on_ranks, 4).results
    for part in range(2):
        inputs = [mine[part] for *_, mine in results]
        for rank, (reduced, gathered, scattered, _) in enumerate(results):
            assert torch.equal(reduced[part], sum(inputs))
            assert torch.equal(gathered[part], torch.cat(inputs))
            assert torch.equal(scattered[part], sum(inputs).chunk(4)[rank])


def test_functional_collectives_on_a_mesh_axis():
    def on_ranks():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mine = torch.tensor([float(dist.get_rank())])
        return [(funcol.all_reduce(mine, "sum", axis) + 0).item() for axis in (mesh["dp"], (mesh, 1))]

    assert launch(on_ranks, 4).results == [[2, 1], [4, 1], [2, 5], [4, 5]]


def test_gradients_of_functional_collectives():
    def on_ranks():
        rank, group = dist.get_rank(), dist.group.WORLD
        mine = torch.ones(4, requires_grad=True)
        gathered = funcol.all_gather_single_autograd(mine, 0, group)
        (gathered * torch.arange(16.0)).sum().mul(rank + 1).backward()
        return mine.grad

    # Row by row: the sum over ranks of (rank + 1) is 10.
    for rank, grad in enumerate(launch(on_ranks, 4).results):
        assert torch.equal(grad, 10 * torch.arange(4.0 * rank, 4.0 * rank + 4))


# torch.distributed.nn.functional: collectives with gradients. The loss of rank r is (r + 1) x its output.


def gradient_of(collective, shape=(2,)):
    def on_ranks():
        mine = numbered(*shape).requires_grad_()
        output = collective(mine)
        output = torch.cat(output) if isinstance(output, (tuple, list)) else output
        (output * (dist.get_rank() + 1.0)).sum().backward()
        return output.detach(), mine.grad

    return zip(*launch(on_ranks, 3).results)


def test_gradient_of_all_reduce_is_the_sum_of_all_gradients():
    outputs, grads = gradient_of(lambda mine: dist_nn.all_reduce(mine))
    assert_every_rank_has(torch.tensor([300.0, 303.0]), outputs)
    assert_every_rank_has(torch.full((2,), 6.0), grads)  # 1 + 2 + 3


def test_gradient_of_broadcast_is_summed_at_its_source():
    outputs, grads = gradient_of(lambda mine: dist_nn.broadcast(mine, src=1))
    assert_every_rank_has(torch.tensor([100.0, 101.0]), outputs)
    assert [grad.tolist() for grad in grads] == [[0, 0], [6, 6], [0, 0]]


def test_gradient_of_all_gather_is_summed_over_ranks():
    outputs, grads = gradient_of(lambda mine: dist_nn.all_gather(mine))
    assert_every_rank_has(torch.tensor([0.0, 1, 100, 101, 200, 201]), outputs)
    assert_every_rank_has(torch.full((2,), 6.0), grads)


def test_gradient_of_reduce_scatter_is_that_of_the_rank_a_piece_went_to():
    def reduce_scatter(mine):
        return dist_nn.reduce_scatter(torch.zeros(2), list(mine.chunk(3)))

    outputs, grads = gradient_of(reduce_scatter, (6,))
    assert [output.tolist() for output in outputs] == [[300, 303], [306, 309], [312, 315]]
    assert_every_rank_has(torch.tensor([1.0, 1, 2, 2, 3, 3]), grads)


def test_gradient_of_all_to_all_goes_back_the_way_it_came():
    outputs, grads = gradient_of(lambda mine: dist_nn.all_to_all_single(torch.zeros(3), mine), (3,))
    assert [output.tolist() for output in outputs] == [[0, 100, 200], [1, 101, 201], [2, 102, 202]]
    assert_every_rank_has(torch.tensor([1.0, 2, 3]), grads)


def test_gradient_of_gather_is_that_of_its_destination():
    outputs, grads = gradient_of(lambda mine: dist_nn.gather(mine, dst=1))
    assert [output.tolist() for output in outputs] == [[0] * 6, [0, 1, 100, 101, 200, 201], [0] * 6]
    assert_every_rank_has(torch.full((2,), 2.0), grads)


def test_gradient_of_scatter_is_gathered_at_its_source():
    outputs, grads = gradient_of(lambda mine: dist_nn.scatter(list(mine.chunk(3)), src=1), (6,))
    assert [output.tolist() for output in outputs] == [[100, 101], [102, 103], [104, 105]]
    assert [grad.tolist() for grad in grads] == [[0] * 6, [1, 1, 2, 2, 3, 3], [0] * 6]
