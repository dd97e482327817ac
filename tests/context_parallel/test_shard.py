"""A whole model on parts of a sequence: its loss and gradients, with data parallelism and ZeRO, in any kind."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from context_parallel.sequences import on_ranks
from sampled import sampled
from tiny_training import assert_every_rank_has
from torch.distributed.device_mesh import init_device_mesh

from tinydist.attention import Decoder, DecoderConfig, Yarn
from tinydist.context_parallel import shard_attention, shard_sequence
from tinydist.data_parallel import DDP
from tinydist.model import GPT, GPTConfig
from tinydist.zero import ZeRO2

KINDS = ("ring", "gather", "ulysses", "hybrid")
DECODER = dict(vocab_size=31, layers=2, heads=8, kv_heads=2, dim=32)


def gpt(**options):
    return GPT(GPTConfig(vocab_size=31, context=40, layers=2, heads=8, dim=32, **options))


MODELS = {
    "GPT": gpt,
    "decoder": lambda: Decoder(DecoderConfig(**DECODER)),
    "YaRN": lambda: Decoder(DecoderConfig(**DECODER, rotary=Yarn(4, 8))),
}


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def text(T, rows=2, step=0):
    tokens = torch.randint(31, (rows, T + 1), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:]


def alone(name, T):
    model = make(name)
    loss = model.loss(*text(T))
    return loss.detach(), *torch.autograd.grad(loss, [*model.parameters()])


def mean(tensor):
    tensor = tensor.detach().clone()
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def sharded(name, kind, T, balanced):
    model, groups = make(name), {}
    if kind == "hybrid":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ring", "ulysses"))
        groups = {"group": mesh.get_group("ring"), "within": mesh.get_group("ulysses")}
    shard_attention(model, kind=kind, balanced=balanced, tokens=T if T % 4 else None, **groups)
    mine = [shard_sequence(each, groups.get("group"), balanced=balanced) for each in text(T)]
    if groups:
        mine = [shard_sequence(each, groups["within"], balanced=False) for each in mine]
    loss = model.loss(*mine)
    return [mean(each) for each in (loss, *torch.autograd.grad(loss, [*model.parameters()]))]


@pytest.mark.parametrize("T, balanced", sampled([(32, True), (29, True)], [(32, True), (32, False), (29, True)]))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_of_one_rank(name, kind, T, balanced):
    assert_every_rank_has(alone(name, T), on_ranks(sharded, 4, name, kind, T, balanced), atol=1e-12)


def train(model, rows, optimizer=None, call=None):
    """The weights after some steps."""
    call, optimizer = call or model, optimizer or torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        tokens, targets = rows(step)
        optimizer.zero_grad()
        F.cross_entropy(call(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


@pytest.mark.parametrize("wrap", ["DDP", "ZeRO 2"])
def test_with_data_parallelism_gradients_are_averaged_over_both(wrap):
    """dp 2 x cp 2: a rank has half of half of the sequences; one group of all ranks averages gradients."""

    def program():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        cp, dp = mesh.get_group("cp"), mesh.get_local_rank("dp")
        model = shard_attention(make("GPT"), cp)

        def mine(step):
            return [shard_sequence(each[2 * dp : 2 * dp + 2], cp) for each in text(32, 4, step)]

        if wrap == "DDP":
            return train(model, mine, call=DDP(model))
        return train(model, mine, ZeRO2(model, torch.optim.SGD, lr=0.5, reduce_dtype=None))

    expected = train(make("GPT"), lambda step: text(32, 4, step))
    assert_every_rank_has(expected, on_ranks(program, 4), atol=1e-10)


def broken(model, **options):
    return on_ranks(lambda: shard_attention(model(), **options) and None, 2)


def test_errors():
    with pytest.raises(ValueError, match="within is the second group of kind='hybrid', got kind='hybrid' and None"):
        broken(gpt, kind="hybrid")
    with pytest.raises(
        ValueError, match=r"blocks.0.attention has dropout of its weights \(0.1\), which is not sharded"
    ):
        broken(lambda: gpt(dropout=0.1))
    with pytest.raises(ValueError, match=r"blocks.0.attention has a sliding window \(4\), which is not sharded"):
        broken(lambda: Decoder(DecoderConfig(**DECODER, windows=(4,))))


def test_a_part_of_another_length_or_beyond_the_context():
    def program(T, tokens):
        shard_attention(make("GPT"), tokens=tokens).loss(*text(T))

    with pytest.raises(ValueError, match=r"shard_attention: of 29 tokens this rank has 15, got 16 \(rank 0\)"):
        on_ranks(program, 2, 16, 29)
    with pytest.raises(ValueError, match="shard_attention: a sequence of 44 tokens exceeds the context length 40"):
        on_ranks(program, 2, 22, None)
