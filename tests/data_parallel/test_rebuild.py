"""Buckets made anew in the order of the first step's gradients: those of torch's Reducer, and the time they save."""

from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.distributed as dist
from data_parallel.awkward_model import Awkward, train, train_alone
from sampled import sampled
from tiny_training import assert_every_rank_has
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP, join
from tinydist.hardware import Cluster, Link
from tinydist.hardware.devices import A100_80GB

SIZES = (7, 12, 3, 9, 5, 7)  # of layers, each an unlike number of bytes


class Chain(nn.Module):
    """Layers of the SIZES, used in ``order``; on rank 0 of ``twins`` two of them the other way round."""

    def __init__(self, order=range(6), twins=False, aside=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(size, 2) for size in SIZES])
        self.order = list(order)
        if twins and dist.get_rank() == 0:
            self.order[1], self.order[2] = self.order[2], self.order[1]
        self.aside = nn.Linear(5, 5) if aside else None

    def forward(self, x):
        for number in self.order:
            x = torch.tanh(self.layers[number](x.mean(1, keepdim=True).expand(-1, SIZES[number])))
        return x


def steps(wrap, count=4, **options):
    model = wrap(Chain(**options))
    for step in range(count):
        with tinydist.region(f"step {step}"):
            model(torch.ones(3, 7)).sum().backward()
            model.zero_grad()


def sizes_by_step(run, count=4):
    """Bytes of the all-reduces of gradients, in their order."""
    return [
        [event.transfer.nbytes for event in run.between(f"step {step}").trace.of(0) if event.name == "all_reduce"]
        for step in range(count)
    ]


OTHERWISE = (4, 1, 3, 0, 2, 5)
ORDERS = pytest.mark.parametrize("order", [range(6), OTHERWISE], ids=["as defined", "otherwise"])


def torchs(model, size, **options):
    return DistributedDataParallel(model, bucket_cap_mb=size / 2**20, gradient_as_bucket_view=True, **options)


@pytest.mark.parametrize(
    "ranks, size",
    sampled([(1, 100), (2, 40), (2, 150), (4, 100), (4, 300)], product([1, 2, 4], [40, 100, 150, 300])),
)
@ORDERS
def test_from_the_second_step_on_each_bucket_is_torchs(ranks, size, order):
    def program(wrap):
        steps(lambda model: wrap(model, size), order=order)

    ours, theirs = (
        sizes_by_step(tinydist.launch(program, ranks, wrap))
        for wrap in (lambda model, size: DDP(model, bucket_bytes=size), torchs)
    )
    assert ours[1:] == theirs[1:] and len(ours[1]) > 1
    assert sum(ours[0]) == sum(theirs[0])


@ORDERS
def test_with_a_static_graph_they_are_torchs_as_soon_as_torch_knows(order):
    """What takes no part in it comes last."""

    def program(wrap):
        steps(lambda model: wrap(model, 100, static_graph=True), order=order, aside=True)

    ours, theirs = (
        sizes_by_step(tinydist.launch(program, 2, wrap))
        for wrap in (lambda model, size, **options: DDP(model, bucket_bytes=size, **options), torchs)
    )
    assert ours[1] == ours[2] == theirs[2] == theirs[3]


def test_the_order_costs_one_broadcast_of_a_number_for_each_parameter():
    def broadcasts(count):
        run = tinydist.launch(lambda: steps(lambda model: DDP(model, bucket_bytes=100), count), 2)
        return [event.transfer.nbytes for event in run.trace.of(0) if event.name == "broadcast"]

    one, two, four = map(broadcasts, (1, 2, 4))
    assert two == four == [*one, 4 * 2 * len(SIZES)]


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"bucket_bytes": 2**20}], ids=str)
def test_what_asks_anew_each_time_and_what_is_one_bucket_stay(options):
    run = tinydist.launch(lambda: steps(lambda model: DDP(model, **{"bucket_bytes": 100} | options)), 2)
    assert len({tuple(each) for each in sizes_by_step(run)}) == 1


def test_rank_0_decides_where_ranks_have_other_orders():
    def program():
        model = DDP(Chain(twins=True), bucket_bytes=100)
        for _ in range(2):
            model(torch.ones(3, 7)).sum().backward()
        names = {parameter: name for name, parameter in model.module.named_parameters()}
        return [int(names[parameter].split(".")[1]) for parameter in model.reducer.bucket_of]  # of its layer

    used_by_rank_0 = [0, 2, 1, 3, 4, 5]
    for order in tinydist.launch(program, 3).results:
        assert list(dict.fromkeys(order)) == used_by_rank_0[::-1]


def test_a_rank_without_any_batch_takes_the_order_too():
    """Even rank 0, which has none to tell: then it is that of the definition."""

    def program(empty):
        model = DDP(Chain(), bucket_bytes=100)
        with join(model):
            for _ in range(0 if dist.get_rank() == empty else 3):
                model(torch.ones(3, 7)).sum().backward()
                model.zero_grad()
        return [[parameter.numel() for parameter in bucket.parameters] for bucket in model.reducer.buckets]

    for empty in (0, 1):
        assert tinydist.launch(program, 2, empty).results[0] == tinydist.launch(program, 2, empty).results[1]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_kept_move_to_the_new_buckets(set_to_none):
    def program():
        model = DDP(Awkward(), bucket_bytes=200)
        for _ in range(3):
            model.zero_grad(set_to_none)
            model(torch.ones(2, 8)).sum().backward()
        storages = {bucket.flat.untyped_storage().data_ptr() for bucket in model.reducer.buckets}
        return all(p.grad.untyped_storage().data_ptr() in storages for p in model.reducer.bucket_of)

    assert tinydist.launch(program, 2).results == [True, True]


def test_the_weights_are_still_those_of_one_process():
    run = tinydist.launch(lambda: train(DDP(Awkward(), bucket_bytes=64)), 3)
    assert_every_rank_has(train_alone(), run.results)


# In virtual time.

WIDE, LAYERS = 512, 6
STEADY = replace(A100_80GB, launch_overhead=0.0)


class Deep(nn.Module):
    """As many layers; the last defined is used first, or last."""

    def __init__(self, backwards):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE, bias=False) for _ in range(LAYERS)])
        self.backwards = backwards

    def forward(self, x):
        for layer in reversed(self.layers) if self.backwards else self.layers:
            x = layer(x)
        return x


def test_a_module_defined_backwards_overlaps_from_the_second_step_on():
    def program(backwards):
        model = DDP(Deep(backwards), bucket_bytes=WIDE * WIDE * 4)
        for step in range(3):
            with tinydist.region(f"step {step}"):
                model(torch.ones(256, WIDE)).sum().backward()

    cluster = Cluster(STEADY, 2, Link("slow", 5e-6, 15e9))
    forwards, backwards = (
        [tinydist.launch(program, 2, each, cluster=cluster).between(f"step {step}").seconds for step in (0, 2)]
        for each in (False, True)
    )
    assert backwards[0] > 1.1 * forwards[0], "the bucket that is sent first is full last"
    assert backwards[1] == pytest.approx(forwards[1], rel=1e-9)
