"""torch's fully_shard on virtual time: its all-gathers and reduce-scatters run behind compute, as on a GPU."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from tracing.simple_cluster import LAYER_BYTES, LAYERS, PRODUCT, RANKS, ROWS, WIDTH, WIRE, cluster, exactly
from unobserved import launch as launch_unobserved
from zero.ladder import linear

import tinydist
from tinydist.hardware import costs
from tinydist.model import GPT, GPTConfig
from tinydist.zero import ZeRO3

GATHER, SCATTER = (ring(LAYER_BYTES, RANKS, WIRE) for ring in (costs.ring_all_gather, costs.ring_reduce_scatter))


def net():
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def sharded_step(forward=False):
    model = net()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    with torch.set_grad_enabled(not forward):
        loss = model(torch.ones(ROWS, WIDTH)).sum()
    if not forward:
        loss.backward()


def waits(trace, rank=0):
    return sum(event.end - event.start for event in trace.of(rank, "compute") if event.name == "wait")


def test_fully_shard_prefetches_in_forward():
    """Only the first gather is waited for."""
    run = tinydist.launch(sharded_step, RANKS, True, cluster=cluster())
    assert GATHER < PRODUCT
    assert run.seconds == exactly(GATHER + LAYERS * PRODUCT)
    assert waits(run.trace) == exactly(GATHER)


@pytest.mark.parametrize("fake", [False, True])
def test_fully_shard_prefetches_in_backward_and_reduces_beside_it(fake):
    """The first gather is waited for, and the last reduce-scatter. The first layer has no gradient of its input."""
    products = (3 * LAYERS - 1) * PRODUCT
    run = tinydist.launch(sharded_step, RANKS, fake=fake, cluster=cluster())
    assert run.seconds == exactly(GATHER + products + SCATTER)
    on_a_cpu = run.on(cluster(runs_ahead=False)).seconds
    assert on_a_cpu == exactly(LAYERS * (2 * GATHER + SCATTER) + products)


def test_what_waits_is_named_by_the_transfer():
    trace = tinydist.launch(sharded_step, RANKS, cluster=cluster()).trace
    found = [(event.transfer.name, event.what) for event in trace.of(0, "compute") if event.name == "wait"]
    assert found == [("all_gather", "0"), ("reduce_scatter", "0")]


def test_every_gather_but_the_first_overlaps_a_product():
    trace = tinydist.launch(sharded_step, RANKS, cluster=cluster()).trace
    products = [event for event in trace.of(0, "compute") if event.name == "mm"]
    gathers = [event for event in trace.of(0) if event.name == "all_gather" and event.stream != "compute"]
    assert len(gathers) == 2 * LAYERS
    for gather in gathers[2:]:
        assert any(product.start <= gather.start and gather.end <= product.end for product in products)


def steps_of(wrap, count):
    model = net()
    wrap(model)
    for _ in range(count):
        model(torch.ones(ROWS, WIDTH)).sum().backward()


def fully_sharded(model):
    for layer in model:
        fully_shard(layer)
    fully_shard(model)


def zero3(model):
    ZeRO3(model, torch.optim.SGD, units=linear, prefetch=True)


def test_zero_3_of_this_library_hides_nearly_as_much():
    """In its second step: in the first it learns the order. It waits for three transfers, and fully_shard for two."""
    waited = {}
    for wrap in (fully_sharded, zero3):
        one, two = (tinydist.launch(steps_of, RANKS, wrap, count, cluster=cluster()) for count in (1, 2))
        waited[wrap] = (waits(two.trace) - waits(one.trace)) / GATHER
    assert waited == {fully_sharded: exactly(2), zero3: exactly(3)}


def test_contended_products_are_slower_while_collectives_run():
    run = tinydist.launch(sharded_step, RANKS, cluster=cluster())
    slower = run.on(cluster(contention=0.2))
    hidden = (2 * LAYERS - 1) * GATHER + (LAYERS - 1) * SCATTER
    assert slower.seconds == exactly(run.seconds + 0.2 * hidden)


def trained(wrap):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=16, context=8, layers=2, heads=2, dim=16))
    model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        tokens = torch.randint(16, (2, 9), generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        loss = model(tokens[:, :-1]).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def fsdp2(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def fsdp1(model):
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({type(model.blocks[0])}), device_id=torch.device("cpu")
    )


@pytest.mark.parametrize("wrap", [fsdp2, fsdp1])
def test_results_are_those_without_streams_bit_for_bit(wrap):
    """Where nothing is observed, torch's own streams are there, which do nothing."""
    observed = tinydist.launch(trained, RANKS, wrap, cluster="A100 node")
    assert observed.results == launch_unobserved(trained, RANKS, wrap).results
    assert waits(observed.trace) < waits(observed.on(cluster(runs_ahead=False)).trace)


def test_a_gather_that_nobody_waits_for_ends_with_backward():
    """fully_shard asks torch.accelerator for the stream then."""

    def program():
        model = net()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        model[1].set_modules_to_backward_prefetch([model[4]])  # which has been used, and is gathered for nothing
        model(torch.ones(ROWS, WIDTH)).sum().backward()

    assert tinydist.launch(program, RANKS, cluster=cluster()).seconds > 0


def test_what_fully_shard_copies():
    """In and out of the buffers that are sent: a shard, what was gathered, gradients; each read and written."""
    program = tinydist.launch(sharded_step, RANKS, cluster=cluster()).record.programs[0]
    expected = {
        "all_gather_copy_in": 2 * LAYER_BYTES / RANKS,
        "split_with_sizes_copy": 2 * LAYER_BYTES,
        "chunk_cat": 2 * LAYER_BYTES,
    }
    assert {entry.name: entry.nbytes for entry in program if getattr(entry, "name", "") in expected} == expected


def gpt_step(wrap):
    model = GPT(GPTConfig(vocab_size=4096, context=512, layers=6, heads=8, dim=1024))
    wrap(model)
    for _ in range(2):
        tinydist.mark("step")
        model(torch.ones(8, 512, dtype=torch.long)).sum().backward()


def gpt_zero3(model):
    ZeRO3(model, torch.optim.SGD, units=lambda module: module in list(model.blocks), prefetch=True)


def test_a_gpt_on_a_node_hides_most_of_its_collectives():
    """Of fully_shard as of our own."""
    hidden = {}
    for wrap in (fsdp2, gpt_zero3):
        run = tinydist.launch(gpt_step, RANKS, wrap, fake=True, only=[0], cluster="A100 node")
        step = run.between(("step", 1), run.seconds)
        sent = sum(event.end - event.start for event in step.trace.of(0) if event.transfer and event.name != "wait")
        hidden[wrap] = 1 - waits(step.trace) / sent
    assert hidden[fsdp2] == pytest.approx(hidden[gpt_zero3], abs=0.03) and min(hidden.values()) > 0.8
