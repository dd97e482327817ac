"""Beside torch's own: parallelize_module with ColwiseParallel, RowwiseParallel, SequenceParallel, and loss_parallel."""

import pytest
import torch
import torch.nn.functional as F
from tiny_training import assert_every_rank_has
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.tensor_parallel import cross_entropy, gathered, shard

VOCABULARY, STEPS = 48, 3


def decoder():
    torch.manual_seed(0)
    return Decoder(DecoderConfig(vocab_size=VOCABULARY, layers=2, heads=8, kv_heads=8, dim=32)).double()


def text(step):
    tokens = torch.randint(VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:].flatten()


def train(model, loss_of, gather):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(loss_of(model, *text(step)))
        optimizer.step()
    return losses, gather(model)


# Ours.


def ours(sequence):
    def loss_of(model, tokens, targets):
        loss = cross_entropy(model(tokens).flatten(0, 1), targets, VOCABULARY)
        loss.backward()
        return loss.detach()

    return train(shard(decoder(), sequence_parallel=sequence), loss_of, gathered)


# Torch's.


def plan(sequence):
    """Of a block. Tokens are cut along dim 1 between layers, or are not."""
    between = Shard(1) if sequence else Replicate()
    entering = {"input_layouts": (between,), "desired_input_layouts": (Replicate(),)}
    norms = {name: SequenceParallel() for name in ("attention_norm", "mlp_norm") if sequence}
    columns = ("attention.query", "attention.key", "attention.value")
    return (
        norms
        | {"attention": PrepareModuleInput(**entering)}
        | {name: ColwiseParallel() for name in columns}
        | {name: ColwiseParallel(input_layouts=between) for name in ("gate", "up")}
        | {name: RowwiseParallel(output_layouts=between) for name in ("attention.out", "down")}
    )


def torchs(sequence):
    mesh, model = init_device_mesh("cpu", (torch.distributed.get_world_size(),)), decoder()
    between = Shard(1) if sequence else Replicate()
    whole = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, whole | ({"norm": SequenceParallel()} if sequence else {}))
    for block in model.blocks:
        parallelize_module(block, mesh, plan(sequence))

    def loss_of(model, tokens, targets):
        with loss_parallel():
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets)
            loss.backward()
        return loss.full_tensor().detach()

    def full(parameter):
        return (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach()

    return train(model, loss_of, lambda model: {name: full(p) for name, p in model.named_parameters()})


@pytest.mark.parametrize("sequence", [None, "save"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_and_weights_after_steps_are_those_of_parallelize_module(ranks, sequence):
    expected = tinydist.launch(torchs, ranks, sequence, observe=False).results
    found = tinydist.launch(ours, ranks, sequence, observe=False).results
    assert_every_rank_has(expected[0], expected, atol=1e-12)
    assert_every_rank_has(expected[0], found, atol=1e-12)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_loss_and_its_gradient_are_those_of_loss_parallel(ranks):
    logits = torch.randn(12, VOCABULARY, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = torch.randint(VOCABULARY, (12,), generator=torch.Generator().manual_seed(2))
    targets[3] = -100

    def theirs():
        mine = distribute_tensor(logits, init_device_mesh("cpu", (ranks,)), [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = F.cross_entropy(mine, targets)
            loss.backward()
        return loss.full_tensor().detach(), mine.grad.to_local()

    def ours():
        mine = logits.chunk(ranks, 1)[torch.distributed.get_rank()].clone().requires_grad_()
        loss = cross_entropy(mine, targets, VOCABULARY)
        loss.backward()
        return loss.detach(), mine.grad

    expected, found = (tinydist.launch(each, ranks, observe=False).results for each in (theirs, ours))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
