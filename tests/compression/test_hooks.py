"""PowerSGD, top-k, local steps: torch's own, what is lost and kept, bytes."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has, sgd, tiny_mlp, train, train_in_one_process, weights
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from unobserved import launch

import tinydist
from tinydist.compression import LocalSteps, PowerSGD, TopK
from tinydist.data_parallel import DDP

START = 2


def ours(rank, steps=6):
    model = tiny_mlp()
    hook = PowerSGD(rank, start=START)
    torchs_columns(hook, model)
    return train(DDP(model, hook=hook), sgd(model.parameters()), steps=steps)


def torchs_columns(hook, model):
    """The columns that torch would draw first, for the one bucket that all parameters are in."""
    torch.manual_seed(np.random.RandomState(0).randint(1_000_000_000))
    for p in reversed(list(model.parameters())):  # as they come in backward
        if hook.pays(p):
            hook.q[p] = torch.randn(p.shape[1], hook.rank)


def theirs(rank, steps=6):
    model = tiny_mlp()
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(PowerSGDState(None, rank, start_powerSGD_iter=START), powerSGD_hook)
    return train(wrapped, sgd(model.parameters()), steps=steps)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("rank", [1, 2])
def test_power_sgd_equals_torchs(ranks, rank):
    expected = launch(theirs, ranks, rank).results[0]
    assert_every_rank_has(expected, launch(ours, ranks, rank).results)
    whole = train_in_one_process(steps=6)
    assert any((whole[name] - expected[name]).abs().max() > 1e-4 for name in whole)  # it does compress


def test_power_sgd_of_bf16():
    """On two ranks with the same data: the rank-1 gradient of one row is sent whole."""

    def program():
        model = torch.nn.Linear(16, 16, bias=False, dtype=torch.bfloat16)
        DDP(model, hook=PowerSGD(1, start=0))(torch.arange(16, dtype=torch.bfloat16)).sum().backward()
        return model.weight.grad

    for gradient in launch(program, 2).results:
        torch.testing.assert_close(gradient.float(), torch.arange(16.0).expand(16, 16), rtol=2**-6, atol=0.1)


@pytest.mark.parametrize("rank", [1, 2])
def test_power_sgd_sends_thin_matrices(rank):
    def program(start):
        model = tiny_mlp()
        train(DDP(model, hook=PowerSGD(rank, start)), sgd(model.parameters()), steps=1)

    sizes = [p.shape for p in tiny_mlp().parameters()]
    thin = [size for size in sizes if len(size) == 2 and 2 * rank * sum(size) < size.numel()]
    rest = sum(size.numel() for size in sizes if size not in thin)
    compressed, full = (reduced(tinydist.launch(program, 2, start)) for start in (0, 1))
    assert thin and compressed == 4 * (rest + rank * sum(map(sum, thin)))
    assert full == 4 * sum(size.numel() for size in sizes)


def reduced(run):
    """Bytes of all gradients that rank 0 hands to collectives: DDP's broadcasts are of the start."""
    return sum(event.transfer.nbytes for event in run.trace.of(0) if event.name in ("all_reduce", "all_gather_single"))


def test_all_numbers_are_all_of_ddp():
    def program():
        model = tiny_mlp()
        return train(DDP(model, hook=TopK(1.0)), sgd(model.parameters()))

    assert_every_rank_has(train_in_one_process(), launch(program, 4).results)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_top_k_does_not_send_it_keeps(ranks):
    """With plain SGD: the weights have moved by all gradients, but for what is still kept."""

    def program():
        model = tiny_mlp()
        before, gradients = weights(model), {name: 0 for name, _ in model.named_parameters()}
        hook = TopK(0.1)
        wrapped = DDP(model, hook=hook, bucket_bytes=500)
        for step in range(4):
            wrapped.zero_grad()
            loss = (wrapped(torch.full((1, 8), 0.1 * (step + dist.get_rank()))) ** 2).sum()
            for (name, _), gradient in zip(
                model.named_parameters(), torch.autograd.grad(loss, model.parameters(), retain_graph=True)
            ):
                gradients[name] = gradients[name] + gradient
            loss.backward()
            torch.optim.SGD(model.parameters(), lr=0.01).step()
        kept = {name: hook.errors[p] for name, p in model.named_parameters()}
        return before, weights(model), gradients, kept

    results = launch(program, ranks).results
    for name in results[0][0]:
        due = sum(gradients[name] - kept[name] for _, _, gradients, kept in results) / ranks
        for before, after, _, _ in results:
            torch.testing.assert_close(before[name] - after[name], 0.01 * due, rtol=1e-4, atol=1e-6)
    assert all(any(kept[name].abs().max() > 0 for name in kept) for _, _, _, kept in results)


def test_top_k_sends_values_and_positions():
    def program(steps):
        model = tiny_mlp()
        train(DDP(model, hook=TopK(0.05)), sgd(model.parameters()), steps=steps)

    numel = sum(p.numel() for p in tiny_mlp().parameters())
    none, one = ([sum(row) for row in tinydist.launch(program, 4, steps).traffic] for steps in (0, 1))
    assert [after - before for before, after in zip(none, one)] == [3 * 12 * round(0.05 * numel)] * 4


def local(every, steps, outer=None):
    model = tiny_mlp()
    optimizer = LocalSteps(torch.optim.SGD(model.parameters(), lr=0.1), every, outer)
    return train(model, optimizer, steps=steps)


def test_to_agree_in_each_step_is_data_parallelism():
    plain = train_in_one_process(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    found = launch(local, 4, 1, 3, lambda tensors: torch.optim.SGD(tensors, lr=1.0)).results
    assert_every_rank_has(plain, found)


def test_local_steps_equal_the_plain_algorithm():
    """Two rounds of two steps on two ranks, written out."""

    def alone(start, rounds, rank):
        model = tiny_mlp()
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        share = lambda batch: [tensor.chunk(2)[rank] for tensor in batch]  # noqa: E731
        from tiny_training import F, global_batch

        for step in rounds:
            inputs, targets = share(global_batch(step))
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return weights(model)

    agreed, momentum = weights(tiny_mlp()), None
    for steps in ([0, 1], [2, 3]):
        ends = [alone(agreed, steps, rank) for rank in range(2)]
        moved = {name: agreed[name] - (ends[0][name] + ends[1][name]) / 2 for name in agreed}
        momentum = moved if momentum is None else {name: 0.9 * momentum[name] + moved[name] for name in moved}
        agreed = {name: agreed[name] - 0.7 * (moved[name] + 0.9 * momentum[name]) for name in agreed}
    assert_every_rank_has(agreed, launch(local, 2, 2, 4).results)


@pytest.mark.parametrize("every, agreements", [(1, 6), (2, 3), (4, 1)])
def test_local_steps_send_only_when_ranks_agree(every, agreements):
    sent = sum(tinydist.launch(local, 2, every, 6).traffic[0])
    assert sent == agreements * 4 * sum(p.numel() for p in tiny_mlp().parameters())
