"""A GPT with experts trains over data, expert and tensor parallelism as in one process; so do ZeRO and checkpoints."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from rounding import between_orders, distance
from sampled import sampled
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint import UnshardedModel
from tinydist.data_parallel.averaging import average_flat
from tinydist.experts import EvenRouter, Parts, clip_grad_norm_, split, with_experts
from tinydist.model import GPT, GPTConfig, batch
from tinydist.tensor_parallel import gathered, shard
from tinydist.tensor_parallel.kinds import mlp
from tinydist.tensor_parallel.shard import GPT as TABLE
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

STEPS, ROWS, LENGTH = 10, 8, 8
MESHES = [(2, 2), (1, 2), (2, 4)]  # ranks with the same experts, ranks that share them
WITH_EXPERTS = {name: kind for name, kind in TABLE.items() if name != "blocks.*.mlp"}
WITH_EXPERTS |= {"blocks.*.mlp.experts.*": partial(mlp, up=["up"], down="down")}


def gpt(group=None, dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=2, heads=2, dim=8, context=LENGTH)).to(dtype)
    return with_experts(model, experts=8, top_k=2, hidden=12, group=group, **options)


def groups(edp, ep, tp=1):
    """(data, same experts, experts, tensor)."""
    names = "same_experts", "experts", "tp"
    mesh = init_device_mesh("cpu", (edp, ep, tp), mesh_dim_names=names)
    return mesh[names[:2]]._flatten("data").get_group(), *(mesh.get_group(name) for name in names)


def my_batch(step, data):
    rank, ranks = dist.get_rank(data), dist.get_world_size(data)
    return (each.chunk(ranks)[rank] for each in batch(step, ROWS, LENGTH))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def in_one_process(clip=None, **options):
    model = gpt(**options)
    optimizer, losses = sgd(model.parameters()), []
    for step in range(STEPS):
        losses.append(model.loss(*batch(step, ROWS, LENGTH)))
        losses[-1].backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).detach(), {name: p.detach() for name, p in model.named_parameters()}


def on_ranks(edp, ep, tp=1, clip=None, options=()):
    data, same, experts, tensor = groups(edp, ep, tp)
    model = gpt(experts, **dict(options))
    if tp > 1:
        model = shard(model, tensor, table=WITH_EXPERTS)
    parts = (*zip(split(model), (data, same)),)
    optimizer, losses = sgd(model.parameters()), []
    for step in range(STEPS):
        loss = model.loss(*my_batch(step, data))
        loss.backward()
        for part, group in parts:
            average_flat(part.parameters(), group)
        if clip:
            clip_grad_norm_(model, clip, experts)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss, group=data)
        losses.append(loss / (edp * ep))
    return torch.stack(losses), gathered(model, tensor)


def assert_trains_alike(expected, results):
    losses, weights = expected
    found = {name: weight for _, each in results for name, weight in each.items()}
    assert found.keys() == weights.keys()
    for each, _ in results:
        torch.testing.assert_close(each, losses, rtol=0, atol=1e-10)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    "edp, ep, tp",
    sampled(
        [(1, 1, 1), (2, 2, 1), (1, 4, 1), (1, 8, 1), (1, 2, 2)],
        [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 4, 1), (1, 8, 1), (2, 4, 1), (1, 2, 2), (2, 2, 2)],
    ),
)
def test_ten_steps_are_those_of_one_process(edp, ep, tp):
    results = tinydist.launch(on_ranks, edp * ep * tp, edp, ep, tp, observe=False).results
    assert_trains_alike(in_one_process(), results)


def test_ten_steps_in_float32_are_within_the_bound_of_rounding():
    """With a router whose choice no rounding changes. A step sums over tokens, and over what the layers sum for each;
    weights move by less than they are large."""
    options = {"router": EvenRouter}
    losses, exact = in_one_process(**options)
    results = tinydist.launch(on_ranks, 4, 2, 2, 1, None, {**options, "dtype": torch.float32}, observe=False).results
    terms = STEPS * (ROWS * LENGTH + 2 * (4 * 8 + 2 * LENGTH + 2 * 12) + 256)
    bound = between_orders(torch.float32, terms, 1.0)
    found = {name: weight for _, each in results for name, weight in each.items()}
    assert distance(found, exact) <= bound * distance(exact, {name: torch.zeros_like(w) for name, w in exact.items()})
    assert (results[0][0] - losses).abs().max() <= bound * losses.max()


@pytest.mark.parametrize("edp, ep", [(2, 2), (1, 4)])
def test_clipped_by_the_norm_of_all(edp, ep):
    expected, clip = in_one_process(0.1), 0.1
    assert not torch.allclose(expected[0], in_one_process()[0])
    assert_trains_alike(expected, tinydist.launch(on_ranks, edp * ep, edp, ep, 1, clip, observe=False).results)


def test_norms_of_16_bits_are_summed_up_in_32():
    """The squares of 16-bit numbers overflow, or vanish."""

    def program():
        model = gpt().half()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 300.0)
        return clip_grad_norm_(model, 1.0).item()

    numbers = sum(parameter.numel() for parameter in gpt().parameters())
    (norm,) = tinydist.launch(program, 1, observe=False).results
    assert norm == pytest.approx(300 * numbers**0.5, rel=1e-3)


def test_gradients_of_experts_averaged_over_all_ranks_are_wrong():
    """What is in every second program: one all-reduce for all parameters."""

    def program():
        data, _, experts, _ = groups(1, 2)
        model = gpt(experts)
        model.loss(*my_batch(0, data)).backward()
        average_flat(model.parameters(), data)
        return model.blocks[0].mlp.experts[str(4 * dist.get_rank())].up.weight.grad

    model = gpt()
    model.loss(*batch(0, ROWS, LENGTH)).backward()
    wrong = tinydist.launch(program, 2, observe=False).results[0]
    assert not torch.allclose(wrong, model.blocks[0].mlp.experts["0"].up.weight.grad)


def zero_steps(stage, edp, ep, folder=None, loads=False, steps=range(STEPS)):
    """Weights after some steps of ZeRO, each part over its own ranks; from a checkpoint, or into one."""
    data, same, experts, _ = groups(edp, ep)
    model = gpt(experts)
    kind = {0: unsharded, 1: ZeRO1, 2: ZeRO2}[stage]
    parts = [kind(part, torch.optim.AdamW, group=group, lr=1e-2) for part, group in zip(split(model), (data, same))]
    if loads:
        checkpoint.load(Parts(*parts), folder)
    for step in steps:
        model.loss(*my_batch(step, data)).backward()
        for each, group in zip(parts, (data, same)):
            if stage == 0:
                average_flat(each.module.parameters(), group)
            stepping = each if stage else each.optimizer
            stepping.step()
            stepping.zero_grad()
    if folder and not loads:
        checkpoint.save(Parts(*parts), folder)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def weights_after(edp, ep, stage, *how):
    """Of all ranks: name -> weight."""
    found = {}
    for each in tinydist.launch(zero_steps, edp * ep, stage, edp, ep, *how, observe=False).results:
        found |= each
    return found


def unsharded(part, optimizer_class, group, **options):
    return UnshardedModel(part, optimizer_class(part.parameters(), **options), group)


@pytest.mark.parametrize("stage, edp, ep", sampled([(1, 2, 2), (2, 2, 2)], [(s, *m) for s in (1, 2) for m in MESHES]))
def test_zero_shards_each_part_over_its_own_ranks(stage, edp, ep):
    assert_same_weights(weights_after(edp, ep, stage), weights_after(1, 1, 0))


def test_stage_3_has_both_parts_in_one_model():
    """Clipped by the norm of both."""

    def program():
        data, same, sharing, _ = groups(2, 2)
        model = gpt(sharing)
        experts = set(split(model)[1].parameters())
        ranks_of = lambda parameter: (same if parameter in experts else data, None)  # noqa: E731
        options = dict(units=list(model.blocks), group=data, ranks_of=ranks_of, lr=0.5, momentum=0.9)
        zero, losses = ZeRO3(model, torch.optim.SGD, **options), []
        for step in range(STEPS):
            losses.append(model.loss(*my_batch(step, data)))
            losses[-1].backward()
            zero.clip_grad_norm_(0.1)
            zero.step()
            zero.zero_grad()
        losses = torch.stack(losses).detach()
        dist.all_reduce(losses)
        return losses / 4

    for found in tinydist.launch(program, 4, observe=False).results:
        torch.testing.assert_close(found, in_one_process(0.1)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("stage, saves, loads", [(1, (1, 4), (2, 2)), (2, (2, 2), (1, 8)), (0, (2, 2), (1, 1))])
def test_a_checkpoint_moves_experts_to_another_mesh(tmp_path, stage, saves, loads):
    """And the next three steps are those of the run that was not interrupted."""
    weights_after(*saves, stage, tmp_path, False, range(4))
    moved = weights_after(*loads, stage, tmp_path, True, range(4, 7))
    assert_same_weights(moved, weights_after(*saves, stage, None, False, range(7)))


def assert_same_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-10, msg=name)
