"""A sharded GPT is the whole one: outputs, gradients, training, on any number of ranks, its tokens cut or not."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from rounding import distance
from tensor_parallel.wholes import (
    CONFIG,
    RANKS,
    WAYS,
    alone,
    gradient,
    named,
    on_ranks,
    one_backward,
    steps,
    text,
    whole,
)
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel import ColumnParallelLinear, RowParallelLinear, gathered, shard

each_world = pytest.mark.parametrize("ranks", RANKS)
each_way = pytest.mark.parametrize("sequence", WAYS)


@each_world
@each_way
def test_the_loss_and_all_gradients_are_those_of_the_whole_model(ranks, sequence):
    assert_every_rank_has(alone(one_backward), on_ranks(one_backward, ranks, sequence_parallel=sequence))


@each_world
def test_all_logits_where_they_are_asked_for(ranks):
    def program():
        return shard(whole(), gather_logits=True)(text()[0]).detach()

    expected = whole()(text()[0]).detach()
    assert_every_rank_has(expected, tinydist.launch(program, ranks, observe=False).results)


@pytest.mark.parametrize("ranks, sequence", [(2, "overlap"), (3, "save"), (4, "regather"), (8, None)])
def test_ten_steps_of_sgd(ranks, sequence):
    """In float64 the weights agree in 12 decimals; in float32 they err at most twice as far as the whole model's."""
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    exact = alone(steps, sgd, dtype=torch.float64)
    assert_every_rank_has(
        exact, on_ranks(steps, ranks, sgd, dtype=torch.float64, sequence_parallel=sequence), atol=1e-12
    )
    exact_losses, exact_weights = exact
    rounded_losses, rounded_weights = alone(steps, sgd)
    for losses, weights in on_ranks(steps, ranks, sgd, sequence_parallel=sequence):
        assert distance(weights, exact_weights) <= 2 * distance(rounded_weights, exact_weights)
        assert (losses - exact_losses).norm() <= 2 * (rounded_losses - exact_losses).norm()


@pytest.mark.parametrize("ranks, sequence", [(2, "regather"), (3, "overlap"), (4, None), (8, "save")])
def test_ten_steps_of_adamw(ranks, sequence):
    """The losses: Adam makes whole steps of the noise in gradients that are zero, as the bias of keys has."""
    adamw = partial(torch.optim.AdamW, lr=1e-3)
    expected, _ = alone(steps, adamw)
    losses = [losses for losses, _ in on_ranks(steps, ranks, adamw, sequence_parallel=sequence)]
    assert_every_rank_has(expected, losses, atol=1e-5)


def test_gradients_of_several_backwards_add_up():
    def twice(model, gather):
        for step in range(2):
            model.loss(*text(step)).backward()
        return gather(model, of=gradient)

    assert_every_rank_has(alone(twice), on_ranks(twice, 2, sequence_parallel="save"))


@pytest.mark.parametrize("ranks", [2, 4, 8])
@each_way
def test_bfloat16_within_the_dense_models_own_rounding(ranks, sequence):
    """Twice the error of the whole model in bfloat16, of the loss and of each gradient as a whole."""
    loss, exact = alone(one_backward, dtype=torch.float64)
    rounded_loss, rounded = alone(one_backward, dtype=torch.bfloat16)
    found_loss, found = on_ranks(one_backward, ranks, dtype=torch.bfloat16, sequence_parallel=sequence)[0]
    ulp = torch.finfo(torch.bfloat16).eps * loss
    assert abs(found_loss - loss) <= 2 * max(abs(rounded_loss - loss), ulp)

    assert distance(found, exact) <= 2 * distance(rounded, exact)


def test_on_a_group_that_is_a_part_of_the_world():
    """Rows of a mesh, each with a batch of its own."""

    def program():
        mine = dist.get_rank() // 2
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][mine]
        model = shard(whole(), group, sequence_parallel="save")
        model.loss(*text(mine)).backward()
        return gathered(model, group, of=gradient)

    def expected(step):
        model = whole()
        model.loss(*text(step)).backward()
        return named(model, gradient)

    results = tinydist.launch(program, 4, observe=False).results
    assert_every_rank_has(expected(0), results[:2])
    assert_every_rank_has(expected(1), results[2:])


def test_all_ranks_begin_with_what_rank_0_brings():
    def program():
        torch.manual_seed(dist.get_rank())
        return gathered(shard(GPT(CONFIG)))

    torch.manual_seed(0)
    assert_every_rank_has(named(GPT(CONFIG)), tinydist.launch(program, 3, observe=False).results, atol=0)


def test_tied_weights_stay_tied():
    def program():
        model = shard(whole())
        return model.head.weight is model.embedding.weight

    assert tinydist.launch(program, 2, observe=False).results == [True, True]


def test_parts_of_a_rank():
    """By columns, by rows, of the vocabulary; norms, positions and the biases behind a sum are whole."""

    def program():
        return {name: tuple(parameter.shape) for name, parameter in shard(whole()).named_parameters()}

    first, *_, last = tinydist.launch(program, 4, observe=False).results
    assert first["embedding.weight"] == (65, 72) and last["embedding.weight"] == (64, 72)
    assert first["blocks.0.attention.qkv.weight"] == (3 * 18, 72)
    assert first["blocks.0.attention.out.weight"] == (72, 18)
    assert first["blocks.1.mlp.up.bias"] == (72,) and first["blocks.1.mlp.down.weight"] == (72, 72)
    for name in ("position.weight", "norm.weight", "blocks.0.mlp_norm.bias", "blocks.0.attention.out.bias"):
        assert first[name] == tuple(whole().get_parameter(name).shape)


@pytest.mark.parametrize("sequence", [None, "save", "overlap"])
def test_what_is_frozen_stays_frozen(sequence):
    frozen = ("blocks.0.mlp_norm.weight", "blocks.0.attention.qkv.weight", "blocks.1.mlp.down.bias", "norm.bias")

    def program():
        model = whole()
        for name in frozen:
            model.get_parameter(name).requires_grad_(False)
        shard(model, sequence_parallel=sequence).loss(*text()).backward()
        return [name for name, parameter in model.named_parameters() if parameter.grad is None]

    assert [sorted(names) for names in tinydist.launch(program, 2, observe=False).results] == [sorted(frozen)] * 2


def test_parts_have_the_names_of_their_ranks():
    def program():
        model = shard(whole())
        tinydist.mark("sharded")
        return model

    memory = tinydist.launch(program, 2).memory
    for rank in (0, 1):
        held = memory[rank].at("sharded", by="shard", purpose="parameters", label="blocks.0.mlp.up")
        assert held == {rank: 4 * (144 * 72 + 144)}


def test_a_table_of_ones_own():
    def program():
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        expected = model(torch.ones(1, 4))
        table = {
            "0": lambda linear, context: ColumnParallelLinear(linear, context.layout),
            "2": lambda linear, context: RowParallelLinear(linear, context.layout),
        }
        shard(model, table=table)
        return (model(torch.ones(1, 4)) - expected).abs().max().item() < 1e-6

    assert tinydist.launch(program, 3, observe=False).results == [True] * 3


def five_heads(**sizes):
    return GPT(GPTConfig(heads=5, dim=20, **{"vocab_size": 257} | sizes))


def latent():
    return Decoder(DecoderConfig(latent=16))


@pytest.mark.parametrize(
    "make, how, error",
    [
        (
            five_heads,
            {"sequence_parallel": "save"},
            r"the sequence length \(24\) must be divisible by the tensor-parallel degree \(5\)",
        ),
        (whole, {}, r"shard: num_heads \(24\) must be divisible by the tensor-parallel degree \(5\)"),
        (lambda: five_heads(vocab_size=4), {}, "cannot split a dim of size 4 over 5 ranks"),
        (lambda: Decoder(), {}, r"shard: num_heads \(4\) must be divisible by"),
        (lambda: nn.Linear(2, 2), {}, "the model has no embedding, "),
        (latent, {}, r"the model has no blocks\.\*\.attention\.key, blocks\.\*\.attention\.value\. Pass a table"),
        (whole, {"table": {"nothing": print}}, "the model has no nothing. Pass a table"),
        (
            whole,
            {"sequence_parallel": "twice"},
            "shard: sequence_parallel must be one of save, regather, overlap or None, got 'twice'",
        ),
    ],
)
def test_errors(make, how, error):
    with pytest.raises(ValueError, match=error):
        tinydist.launch(lambda: shard(make(), **how).loss(*text()), 5, observe=False)


def test_ranks_that_bring_different_models():
    def program():
        return shard(GPT(GPTConfig(dim=8 * (1 + dist.get_rank()), heads=2)))

    with pytest.raises(ValueError, match="shard: parameters differ between ranks: rank 1 has"):
        tinydist.launch(program, 2, observe=False)
