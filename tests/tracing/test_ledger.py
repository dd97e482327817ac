"""The ledger: to the byte what torch's own MemTracker finds, and what each byte is for."""

import copy
import gc
import io
import weakref
from contextlib import nullcontext
from itertools import product

import pytest
import torch
import torch.distributed as dist
from sampled import sampled
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

import tinydist
from tinydist.annotate import PURPOSES
from tinydist.model import GPT, GPTConfig

TINY = GPTConfig(vocab_size=64, context=16, layers=2, heads=2, dim=16)
HALF, FLOAT, LONG = 2, 4, 8  # bytes


def parameters_of(config):
    """In closed form: embeddings and head (tied), positions, 2 norms and 12 D^2 + 9 D a block, the last norm."""
    D = config.dim
    block = 2 * 2 * D + (3 * D * D + 3 * D) + (D * D + D) + (4 * D * D + 4 * D) + (4 * D * D + D)
    return config.vocab_size * D + config.context * D + config.layers * block + 2 * D


def plain(model):
    return model


def checkpointed(model):
    for block in model.blocks:
        block.forward = lambda x, forward=block.forward: checkpoint(forward, x, use_reentrant=False)
    return model


def in_half(model):
    return model.to(torch.bfloat16)


def sharded(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, foreach=False)


def training_step(prepare=plain, optimizer=adamw, batch=2, autocast=False, synchronize=None):
    model = prepare(GPT(TINY))
    optimizer = optimizer(model.parameters())
    tokens = torch.zeros(batch, TINY.context, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        loss = model.loss(tokens, tokens)
    loss.backward()
    if synchronize:
        synchronize(model)
    optimizer.step()


def measured_by_torch(*arguments):
    with MemTracker() as tracker:
        training_step(*arguments)
    (found,) = tracker.get_tracker_snapshot("peak").values()
    return {getattr(key, "value", key): nbytes for key, nbytes in found.items()}


SETTINGS = list(product([plain, checkpointed], [sgd, adamw], [1, 16], [False, True]))
FEW = [(plain, adamw, 1, False), (checkpointed, sgd, 16, False), (checkpointed, adamw, 16, True), (plain, sgd, 1, True)]


@pytest.mark.parametrize("prepare, optimizer, batch, fake", sampled(FEW, SETTINGS))
def test_the_peak_is_torchs_own_to_the_byte(prepare, optimizer, batch, fake):
    """With a batch of 1 the peak is in the optimizer's step, else in backward."""
    run = tinydist.launch(measured_by_torch, 1, prepare, optimizer, batch, fake=fake)
    assert run.memory[0].peak == run.results[0]["Total"] == sum(run.memory[0].at_peak.values())


@pytest.mark.parametrize("arguments", [(in_half,), (plain, adamw, 8, True)], ids=["bfloat16", "autocast"])
def test_the_peak_in_other_dtypes(arguments):
    run = tinydist.launch(measured_by_torch, 1, *arguments)
    assert run.memory[0].peak == run.results[0]["Total"]


def test_the_peak_of_torchs_own_fully_sharded_model():
    run = tinydist.launch(measured_by_torch, 1, sharded, adamw, 8)
    assert run.memory[0].peak == run.results[0]["Total"]


def test_what_the_peak_is_made_of_is_torchs_own():
    run = tinydist.launch(measured_by_torch, 1, plain, sgd, 16)
    ours, theirs = run.memory[0].at_peak, run.results[0]
    assert ours["parameters"] == theirs["Parameter"]
    assert ours["activations"] == theirs["Activation"]
    assert ours["other"] == theirs["Temp"]


# What bytes are for.


def held_at_last(run, rank=0):
    """By purpose, when the rank has ended."""
    return {purpose: nbytes for purpose, nbytes in list(run.memory[rank].over_time())[-1][1].items() if nbytes}


def after_a_step(optimizer):
    model = GPT(TINY)
    optimizer = optimizer(model.parameters())
    tokens = torch.zeros(1, TINY.context, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("fake", [False, True])
def test_what_training_keeps_in_closed_form(fake):
    n, tensors = parameters_of(TINY), sum(1 for _ in GPT(TINY).parameters())
    with_momentum = tinydist.launch(after_a_step, 1, sgd, fake=fake)
    assert held_at_last(with_momentum) == {
        "parameters": n * FLOAT,
        "gradients": n * FLOAT,
        "optimizer states": n * FLOAT,
    }
    with_moments = tinydist.launch(after_a_step, 1, adamw, fake=fake)
    assert held_at_last(with_moments)["optimizer states"] == (2 * n + tensors) * FLOAT  # a count of steps for each
    at_peak = with_moments.memory[0].at_peak
    assert at_peak["parameters"] == at_peak["gradients"] == n * FLOAT


@pytest.mark.parametrize("fake", [False, True])
def test_parameters_in_another_dtype_are_parameters(fake):
    def program():
        layer = nn.BatchNorm1d(10)
        layer(torch.ones(4, 10)).sum().backward()
        return layer.half()

    assert held_at_last(tinydist.launch(program, 1, fake=fake)) == {
        "parameters": 4 * 10 * HALF + LONG,
        "gradients": 2 * 10 * HALF,
    }


def test_buffers_count_as_parameters_and_gradients_as_soon_as_they_are_there():
    def program():
        layer = nn.BatchNorm1d(10)
        layer(torch.ones(4, 10)).sum().backward()
        return layer

    assert held_at_last(tinydist.launch(program, 1)) == {
        "parameters": 4 * 10 * FLOAT + LONG,  # weight, bias, mean, variance; the count of batches
        "gradients": 2 * 10 * FLOAT,
    }


def test_what_forward_makes_are_activations_and_without_autograd_other():
    def program():
        with torch.no_grad():
            other = torch.ones(10)
        return torch.ones(100), other

    assert held_at_last(tinydist.launch(program, 1)) == {"activations": 100 * FLOAT, "other": 10 * FLOAT}


def test_what_a_checkpoint_computes_again_are_activations():
    runs = [tinydist.launch(training_step, 1, prepare, sgd, 16) for prepare in (plain, checkpointed)]
    saved, computed_again = (run.memory[0].at_peak for run in runs)
    assert 0 < computed_again["activations"] < saved["activations"]


def test_views_count_once_and_what_dies_is_gone():
    def program():
        x = torch.ones(100)
        views = [x[:50], x.view(10, 10), x.t(), x.detach()]
        del x
        torch.ones(1000)
        return views

    memory = tinydist.launch(program, 1).memory[0]
    assert [nbytes for _, _, nbytes, *_ in memory.changes] == [400, 4000, -4000]
    assert memory.peak == 4400 and memory.at_peak == {"activations": 4400}
    assert [held["activations"] for _, held in memory.over_time()] == [400, 4400, 400]


def test_a_storage_that_is_resized():
    def program():
        x = torch.ones(100)
        x.untyped_storage().resize_(0)
        y = torch.ones(50)
        x.untyped_storage().resize_(400)
        x.untyped_storage().resize_(400)
        return x, y

    memory = tinydist.launch(program, 1).memory[0]
    assert [nbytes for _, _, nbytes, *_ in memory.changes] == [400, -400, 200, 400]
    assert memory.peak == 600


def test_the_operator_resize_too():
    def program():
        x = torch.ones(100)
        return x.resize_(300)

    assert tinydist.launch(program, 1).memory[0].peak == 1200


# Ranks.


def all_reduce_gradients(model):
    for weight in model.parameters():
        dist.all_reduce(weight.grad, dist.ReduceOp.AVG)


def balance(memory):
    return memory.peak, memory.at_peak, [change[1:] for change in memory.changes]


@pytest.mark.parametrize("fake", [False, True])
def test_every_rank_has_the_ledger_of_a_run_of_one(fake):
    """Moving data between ranks is charged to nobody."""
    arguments = plain, adamw, 2, False, all_reduce_gradients
    alone = tinydist.launch(training_step, 1, *arguments, fake=fake)
    many = tinydist.launch(training_step, 4, *arguments, fake=fake)
    assert all(balance(memory) == balance(alone.memory[0]) for memory in many.memory)


def of_ddp():
    model = DDP(GPT(TINY), bucket_cap_mb=0.01)
    optimizer = adamw(model.parameters())
    tokens = torch.zeros(2, TINY.context, dtype=torch.long)
    for _ in range(2):
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_the_ledger_is_the_same_whatever_the_order_in_which_ranks_run():
    """No rank keeps the tensors of another: not in a collective, not in the future that DDP asks for."""
    runs = [
        tinydist.launch(of_ddp, 4, **how)
        for how in ({}, {}, *({"schedule": "shuffle", "seed": seed} for seed in range(3)))
    ]
    for run in runs[1:]:
        assert run.memory == runs[0].memory


def test_what_an_asynchronous_call_reads_is_held_until_it_is_waited_for():
    def program():
        inputs, output = torch.ones(10), torch.empty(40)
        work = dist.all_gather_single(output, inputs, async_op=True)
        del inputs
        dist.barrier()
        torch.ones(1)
        work.wait()

    for memory in tinydist.launch(program, 4).memory:
        assert [nbytes for _, _, nbytes, *_ in memory.changes][:5] == [40, 160, 4, -4, -40]


# What is left when the run is over.


def test_a_ledger_is_closed_when_its_rank_ends():
    run = tinydist.launch(lambda: torch.ones(100), 2)
    before = [list(program) for program in run.record.programs]
    run.results.clear()
    gc.collect()
    assert [list(program) for program in run.record.programs] == before
    assert run.memory[0].changes[-1][2] == 400


def test_nothing_of_a_run_keeps_its_tensors():
    seen = []

    def program():
        model = DDP(nn.Linear(4, 4))
        optimizer = adamw(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        x = torch.ones(4)
        works = [dist.all_reduce(x, async_op=True), dist.isend(x, 1 - dist.get_rank())]
        dist.recv(torch.empty(4), 1 - dist.get_rank())
        for work in works:
            work.wait()
        dist.isend(x, 1 - dist.get_rank())  # which nobody takes
        seen.extend(map(weakref.ref, (x, model.module.weight, model.module.weight.grad)))

    with pytest.warns(RuntimeWarning, match="ranks 0-1 issued send"):
        run = tinydist.launch(program, 2)
    gc.collect()
    assert len(seen) == 6 and not any(tensor() is not None for tensor in seen)
    assert run.seconds > 0


def test_a_model_that_a_rank_returns_is_a_model_like_others():
    def train(model):
        model(torch.ones(2, 4)).sum().backward()
        sgd(model.parameters()).step()
        return model

    model = tinydist.launch(lambda: train(nn.Linear(4, 4)), 1).results[0]
    train(model)  # in the kernel
    torch.save(train(copy.deepcopy(model)), io.BytesIO())
    run = tinydist.launch(train, 1, model)  # and on a rank of another run
    assert run.results[0] is model


def test_without_observation_nothing_is_recorded_and_no_mode_is_on():
    def program():
        layer = nn.Linear(4, 4)
        return _get_current_dispatch_mode(), layer.weight._post_accumulate_grad_hooks

    run = tinydist.launch(program, 2, observe=False)
    assert run.results == [(None, None)] * 2 and run.record is None
    (mode, hooks), _ = tinydist.launch(program, 2).results
    assert type(mode).__name__ == "Observer" and not hooks


def test_purposes_are_listed_in_the_order_in_which_pictures_stack_them():
    memory = tinydist.launch(lambda: torch.ones(1), 1).memory[0]
    ((_, held),) = memory.over_time()
    assert tuple(held) == PURPOSES


def test_a_program_can_say_what_its_memory_is_for():
    def program():
        with tinydist.purpose("communication"):
            bucket = torch.zeros(1000)
        return bucket, torch.zeros(10)

    [memory] = tinydist.launch(program, 1).memory
    assert memory.at_peak["communication"] == 4000
    with tinydist.purpose("communication"):  # no rank, no ledger
        torch.zeros(10)
    with pytest.raises(ValueError, match=r"purpose: must be one of parameters, .*, got 'fun'"):
        with tinydist.purpose("fun"):
            pass


def test_products_of_whole_numbers_have_bytes_and_no_flops():
    run = tinydist.launch(lambda: torch.ones(8, 8, dtype=torch.int64) @ torch.ones(8, 8, dtype=torch.int64), 1)
    assert run.seconds > 0


def test_the_course_of_memory_knows_at_the_peak_what_the_peak_was_made_of():
    def program():
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters())
        model.loss(*torch.zeros(2, 2, 8, dtype=torch.long)).backward()
        optimizer.step()

    [memory] = tinydist.launch(program, 1).memory
    at_peak = next(held for _, held in memory.over_time() if sum(held.values()) == memory.peak)
    assert {purpose: nbytes for purpose, nbytes in at_peak.items() if nbytes} == memory.at_peak
    assert at_peak["optimizer states"] > 0


def test_a_tensor_on_the_meta_device_holds_nothing():
    def program():
        return torch.nn.Linear(64, 64, device="meta"), torch.ones(2, device="meta") + 1

    for fake in (False, True):
        assert tinydist.launch(program, 1, fake=fake).memory[0].peak == 0


def test_what_is_made_for_an_optimizers_states_is_none_of_its_parameters():
    """As master weights are, on which it steps."""

    def program():
        with tinydist.purpose("optimizer states"):
            master = torch.ones(8)
        optimizer = torch.optim.SGD([master], lr=0.1)
        master.grad = torch.ones(8)
        optimizer.step()
        tinydist.mark("end")
        return master, optimizer

    held = tinydist.launch(program, 1).memory[0].at("end")
    assert held["optimizer states"] == 32 and "parameters" not in held
