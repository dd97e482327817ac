"""torch's DistributedDataParallel, unmodified, on simulated ranks: what one process computes."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sampled import sampled
from tiny_training import (
    HIDDEN,
    OUT,
    WIDTH,
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
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch_names import FORWARD_SYNC
from unobserved import launch

import tinydist

A_LAYER = 1e-4  # MiB: a bucket is full with a bias and a weight


def trained(options=None, hook=None, state=None, model=tiny_mlp, steps=3):
    ddp = DDP(model(), **(options or {}))
    if hook:
        ddp.register_comm_hook(state() if state else None, hook)
    return train(ddp, sgd(ddp.parameters()), steps=steps)


@pytest.mark.parametrize("ranks", sampled((1, 4), (1, 2, 4, 8)))
def test_weights_equal_one_process(ranks):
    assert_every_rank_has(train_in_one_process(), launch(trained, ranks).results)


@pytest.mark.parametrize("seed", sampled([0], range(3)))
def test_weights_equal_one_process_in_a_shuffled_schedule(seed):
    options = {"bucket_cap_mb": A_LAYER}
    run = launch(trained, 4, options, schedule="shuffle", seed=seed)
    assert_every_rank_has(train_in_one_process(), run.results)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket_cap_mb": A_LAYER},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"static_graph": True, "bucket_cap_mb": A_LAYER},
        {"gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": A_LAYER, "static_graph": True},
        {FORWARD_SYNC: False, "init_sync": False},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_option_leaves_the_weights_of_one_process(options):
    assert_every_rank_has(train_in_one_process(), tinydist.launch(trained, 4, options).results)


def test_small_buckets_are_several_buckets():
    def count_buckets():
        seen = []

        def hook(state, bucket):
            seen.append(bucket.index())
            return default_hooks.allreduce_hook(None, bucket)

        trained({"bucket_cap_mb": A_LAYER}, hook, steps=2)
        return max(seen) + 1

    assert launch(count_buckets, 2).results == [3, 3]  # of three layers


class Branches(nn.Module):
    """Uses another branch on odd numbers: the other's parameters get no gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Linear(WIDTH, HIDDEN)
        self.branches = nn.ModuleList([nn.Linear(HIDDEN, OUT) for _ in range(3)])  # the last is used by no rank

    def forward(self, inputs, number):
        return self.branches[number % 2](torch.tanh(self.stem(inputs)))


def test_find_unused_parameters_averages_branches_that_only_some_ranks_use():
    def on_ranks():
        model = DDP(Branches(), find_unused_parameters=True, bucket_cap_mb=A_LAYER)
        optimizer = sgd(model.parameters())
        for step in range(3):
            inputs, targets = my_rows(global_batch(step))
            optimizer.zero_grad()
            F.mse_loss(model(inputs, dist.get_rank()), targets).backward()
            optimizer.step()
        return weights(model)

    model = Branches()
    optimizer = sgd(model.parameters())
    for step in range(3):
        shares = zip(*(tensor.chunk(4) for tensor in global_batch(step)))
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(shares):
            (F.mse_loss(model(inputs, number), targets) / 4).backward()
        optimizer.step()
    assert_every_rank_has(weights(model), launch(on_ranks, 4).results)


class Twice(nn.Module):
    """Uses a layer twice, the second time under activation checkpointing: DDP needs a static graph for it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.stem, self.head = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.again = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh())

    def forward(self, inputs):
        hidden = self.again(torch.tanh(self.stem(inputs)))
        return self.head(checkpoint(self.again, hidden, use_reentrant=False))


def test_static_graph_with_a_layer_used_twice_and_checkpointed():
    options = {"static_graph": True, "bucket_cap_mb": A_LAYER}
    run = launch(lambda: trained(options, model=Twice), 4)
    assert_every_rank_has(train_in_one_process(Twice()), run.results)


def test_no_sync_accumulates_micro_batches():
    def on_ranks():
        model = DDP(tiny_mlp())
        optimizer = sgd(model.parameters())
        for step in range(2):
            halves = list(zip(*(tensor.chunk(2) for tensor in my_rows(global_batch(step)))))
            optimizer.zero_grad()
            with model.no_sync():
                inputs, targets = halves[0]
                (F.mse_loss(model(inputs), targets) / 2).backward()
            inputs, targets = halves[1]
            (F.mse_loss(model(inputs), targets) / 2).backward()
            optimizer.step()
        return weights(model)

    assert_every_rank_has(train_in_one_process(steps=2), launch(on_ranks, 4).results)


@pytest.mark.parametrize("throw", [False, True], ids=["shadowing", "throwing"])
def test_join_takes_uneven_inputs(throw):
    """Rank r has r + 1 batches. A rank without any counts as a gradient of zero, unless all stop with the first."""

    def on_ranks():
        model = DDP(tiny_mlp(), bucket_cap_mb=A_LAYER)
        optimizer = sgd(model.parameters())
        try:
            with model.join(throw_on_early_termination=throw):
                for step in range(dist.get_rank() + 1):
                    inputs, targets = my_rows(global_batch(step))
                    optimizer.zero_grad()
                    F.mse_loss(model(inputs), targets).backward()
                    optimizer.step()
        except RuntimeError as stopped:
            assert throw and "exhausted" in str(stopped)
        return weights(model)

    model = tiny_mlp()
    optimizer = sgd(model.parameters())
    for step in range(1 if throw else 4):
        shares = zip(*(tensor.chunk(4) for tensor in global_batch(step)))
        optimizer.zero_grad()
        for rank, (inputs, targets) in enumerate(shares):
            if rank >= step:
                (F.mse_loss(model(inputs), targets) / 4).backward()
        optimizer.step()
    results = launch(on_ranks, 4).results
    # The optimizer of a rank that ran out of batches stands still; join() sends it the last rank's weights.
    assert_every_rank_has(weights(model), results)


class Counts(nn.Module):
    """Remembers the numbers it was given, in a buffer that each forward changes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("sum", torch.zeros(2))

    def forward(self, number):
        self.sum += number
        return (self.weight * number).sum()


@pytest.mark.parametrize("broadcast", [True, False])
def test_buffers_are_those_of_rank_0_before_each_forward(broadcast):
    def on_ranks():
        model = DDP(Counts(), **{FORWARD_SYNC: broadcast})
        for _ in range(3):
            model(1.0 + dist.get_rank()).backward()
        return model.module.sum[0].item()

    # What rank 0 had after two steps, and then 1 + rank; or three times 1 + rank.
    expected = [3.0, 4.0, 5.0] if broadcast else [3.0, 6.0, 9.0]
    assert launch(on_ranks, 3).results == expected


def test_batch_norm_statistics_are_those_of_rank_0():
    def statistics(model, share):
        for step in range(2):
            model(share(global_batch(step))[0]).sum().backward()
        model.eval()(torch.zeros(1, WIDTH))
        return dict(model.named_buffers())

    run = launch(lambda: statistics(DDP(nn.BatchNorm1d(WIDTH)), my_rows), 2)
    rows_of_rank_0 = statistics(nn.BatchNorm1d(WIDTH), lambda batch: [tensor.chunk(2)[0] for tensor in batch])
    assert_every_rank_has({f"module.{name}": buffer for name, buffer in rows_of_rank_0.items()}, run.results)


def test_sync_batch_norm_is_refused_on_cpus_as_by_real_processes():
    def on_ranks():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4)))
        with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
            DDP(model)

    launch(on_ranks, 2)


# Hooks.


def own_hook(state, bucket):
    """All-reduce, then divide: in a callback."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / dist.get_world_size())


def chained_hook(state, bucket):
    """Two callbacks, the second on what the first returned."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] * 2).then(lambda done: done.value() / 2 / dist.get_world_size())


def waiting_hook(state, bucket):
    """Blocks in backward and hands back a future that is done."""
    dist.all_reduce(bucket.buffer())
    future = torch.futures.Future()
    future.set_result(bucket.buffer() / dist.get_world_size())
    return future


def gathering_hook(state, bucket):
    """Another collective than all_reduce."""
    world = dist.get_world_size()
    everyone = torch.empty(world * bucket.buffer().numel())
    future = dist.all_gather_single(everyone, bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: everyone.view(world, -1).mean(0))


@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": A_LAYER}], ids=["one bucket", "small buckets"])
@pytest.mark.parametrize(
    "hook",
    [default_hooks.allreduce_hook, own_hook, chained_hook, waiting_hook, gathering_hook],
    ids=lambda f: f.__name__,
)
def test_exact_hooks_leave_the_weights_of_one_process(hook, options):
    assert_every_rank_has(train_in_one_process(), launch(trained, 4, options, hook).results)


@pytest.mark.parametrize(
    "hook, state, atol",
    [
        (default_hooks.fp16_compress_hook, None, 2e-3),
        (default_hooks.fp16_compress_wrapper(own_hook), None, 2e-3),
        # Each gradient as a matrix of rank 1, from the third step on.
        (powerSGD_hook.powerSGD_hook, lambda: PowerSGDState(None, 1, start_powerSGD_iter=2), 0.03),
    ],
    ids=["fp16", "fp16 wrapper", "PowerSGD"],
)
def test_lossy_hooks_leave_nearly_the_weights_of_one_process(hook, state, atol):
    run = launch(trained, 4, {}, hook, state)
    assert_every_rank_has(train_in_one_process(), run.results, atol)
    assert_every_rank_has(run.results[0], run.results, atol=0)


def test_a_hook_that_is_wrong_is_seen():
    """The comparison above can fail: here the gradients of ranks stay their own."""

    def forget(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with pytest.raises(AssertionError, match="on rank 0"):
        assert_every_rank_has(train_in_one_process(), launch(trained, 4, {}, forget).results)


def message_in_a_late_hook():
    """Rank 1 receives before it joins the first bucket, what rank 0 sends after it has: no cycle, as nobody waits
    for a bucket before backward ends."""
    rank = dist.get_rank()
    model = DDP(tiny_mlp(), bucket_cap_mb=A_LAYER)
    heard = torch.zeros(1)

    def talk(gradient):
        if rank == 0:
            dist.send(torch.tensor([7.0]), 1)
        else:
            dist.recv(heard, 0)

    optimizer = sgd(model.parameters())
    for step in range(3):
        inputs, targets = my_rows(global_batch(step))
        # Gradients come from the last layer to the first: the output's before all buckets, the input's after all.
        inputs.requires_grad_()
        optimizer.zero_grad()
        output = model(inputs)
        (inputs if rank == 0 else output).register_hook(talk)
        F.mse_loss(output, targets).backward()
        optimizer.step()
    return heard.item(), weights(model)


@pytest.mark.parametrize("schedule", ["fifo", "shuffle"])
def test_a_message_inside_backward_is_no_deadlock(schedule):
    run = launch(message_in_a_late_hook, 2, schedule=schedule)
    heard, found = zip(*run.results)
    assert heard == (0.0, 7.0)
    assert_every_rank_has(train_in_one_process(), found)


def test_two_models_take_turns():
    def on_ranks():
        models = [DDP(tiny_mlp()), DDP(tiny_mlp(), bucket_cap_mb=A_LAYER)]
        return [train(model, sgd(model.parameters())) for model in models]

    for both in zip(*launch(on_ranks, 2).results):
        assert_every_rank_has(train_in_one_process(), both)


def test_a_model_in_each_of_two_groups():
    def on_ranks():
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        rank = dist.get_rank()
        model = DDP(tiny_mlp(), process_group=groups[rank // 2])
        return train(model, sgd(model.parameters()), lambda batch: [tensor.chunk(2)[rank % 2] for tensor in batch])

    assert_every_rank_has(train_in_one_process(), launch(on_ranks, 4).results)


@pytest.mark.parametrize("shuffle", [False, True])
def test_distributed_sampler_gives_every_row_to_one_rank(shuffle):
    rows = TensorDataset(torch.arange(24))

    def on_ranks():
        sampler = DistributedSampler(rows, shuffle=shuffle)
        sampler.set_epoch(1)
        loader = DataLoader(rows, batch_size=2, sampler=sampler, num_workers=0)
        return [batch.tolist() for (batch,) in loader]

    results = launch(on_ranks, 4).results
    assert sorted(row for batches in results for batch in batches for row in batch) == list(range(24))
    assert [len(batches) for batches in results] == [3] * 4
    assert (results[0][0] == [0, 4]) is not shuffle
