"""By columns, by rows: each is the whole linear; and what goes wrong without f or g."""

import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.tensor_parallel import (
    ColumnParallelLinear,
    Replicated,
    RowParallelLinear,
    SequenceParallel,
    VocabParallelEmbedding,
)

B, T, D, WIDE = 2, 24, 6, 11  # 11 divides by none of the worlds


def layers(dtype=torch.float64):
    torch.manual_seed(0)
    up, down = nn.Linear(D, WIDE).to(dtype), nn.Linear(WIDE, D).to(dtype)
    x = torch.randn(B, T, D, dtype=dtype)
    return up, down, x


def both(up, down, x):
    """Output, and all gradients of a loss that treats each number differently."""
    x.requires_grad_()
    y = down(torch.tanh(up(x)))
    (y * torch.linspace(1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    return y.detach(), x.grad, down.bias.grad


LAYOUTS = {
    "whole": lambda: Replicated(),
    "whole, one after another": lambda: Replicated(async_grad_reduce=False),
    "save": lambda: SequenceParallel(),
    "regather": lambda: SequenceParallel(way="regather"),
    "regather, one after another": lambda: SequenceParallel(way="regather", async_grad_reduce=False),
    "overlap": lambda: SequenceParallel(way="overlap"),
    "tokens first": lambda: SequenceParallel(dim=0, way="regather"),
    "a ring, tokens first": lambda: SequenceParallel(dim=0, way="overlap"),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", LAYOUTS)
def test_column_then_row_is_the_whole(name, ranks):
    def program():
        layout, (up, down, x) = LAYOUTS[name](), layers()
        if name.endswith("tokens first"):
            x = x.transpose(0, 1).contiguous()
        up, down = ColumnParallelLinear(up, layout), RowParallelLinear(down, layout)
        if not layout.cuts_tokens:
            return both(up, down, x)
        mine = layout.parts(x)[layout.rank].clone().requires_grad_()
        y = down(torch.tanh(up(mine)))
        weights = torch.linspace(1, 2, x.numel(), dtype=x.dtype)
        weights = weights.view(B, T, D).transpose(0, 1).contiguous() if layout.dim == 0 else weights.view_as(x)
        (y * layout.parts(weights)[layout.rank]).sum().backward()
        found = [layout.gather(each)() for each in (y.detach(), mine.grad)]
        return *([each.transpose(0, 1) for each in found] if layout.dim == 0 else found), down.bias.grad

    assert_every_rank_has(both(*layers()), tinydist.launch(program, ranks, observe=False).results, atol=1e-12)


def test_the_bias_of_rows_is_added_once():
    def program():
        row = RowParallelLinear(nn.Linear(4, 2))
        nn.init.zeros_(row.weight)
        nn.init.ones_(row.bias)
        return row(torch.ones(1, 4 // dist.get_world_size())).tolist()

    assert tinydist.launch(program, 4, observe=False).results == [[[1.0, 1.0]]] * 4


@pytest.mark.parametrize("frozen", ["weight", "bias", "input"])
def test_what_takes_no_gradient_gets_none(frozen):
    def program():
        column = ColumnParallelLinear(layers()[0])
        x = layers()[2].requires_grad_(frozen != "input")
        if frozen != "input":
            getattr(column, frozen).requires_grad_(False)
        column(x).sum().backward()
        return [each.grad is None for each in (column.weight, column.bias, x)]

    expected = [frozen == name for name in ("weight", "bias", "input")]
    assert tinydist.launch(program, 2, observe=False).results == [expected] * 2


def test_in_autocast_products_are_in_16_bits_and_gradients_in_the_parameters_precision():
    def program(sequence):
        layout = SequenceParallel(way=sequence) if sequence else Replicated()
        up, down, x = layers(torch.float32)
        up, down = ColumnParallelLinear(up, layout), RowParallelLinear(down, layout)
        with torch.autocast("cpu", torch.bfloat16):
            y = down(up(x if sequence is None else layout.own(x)))
        y.sum().backward()
        return {y.dtype}, {p.grad.dtype for p in (*up.parameters(), *down.parameters())}

    for sequence in (None, "regather", "overlap"):
        assert tinydist.launch(program, 2, sequence, observe=False).results == [({torch.bfloat16}, {torch.float32})] * 2


@pytest.mark.parametrize("missing, wrong", [("f", "input"), ("g", "output")])
def test_without_f_or_g_nothing_fails_and_the_numbers_are_wrong(missing, wrong):
    """f is what backward does to what enters, g what forward does to what leaves."""

    def program():
        up, down, x = layers()
        layout = Replicated()
        up, down = ColumnParallelLinear(up, layout), RowParallelLinear(down, layout)
        if missing == "f":
            up.entered = True
        else:
            layout.leave = lambda x: x
        return both(up, down, x)[:2]

    expected = both(*layers())[:2]
    found = tinydist.launch(program, 2, observe=False).results[0]
    same = {name: torch.allclose(a, b) for name, a, b in zip(("output", "input"), expected, found)}
    assert not same[wrong]
    assert missing == "g" or same["output"]


def test_an_embedding_of_a_part_of_the_vocabulary_is_the_whole():
    tokens = torch.tensor([[0, 12, 6, 6], [5, 4, 11, 1]])

    def embedded(make):
        torch.manual_seed(1)
        layer = make(nn.Embedding(13, 3).double())
        out = layer(tokens)
        (out**2).sum().backward()
        return layer, out.detach()

    def program():
        layer, out = embedded(VocabParallelEmbedding)
        return out, layer.weight.cut.whole(layer.weight.grad)

    layer, out = embedded(lambda layer: layer)
    for ranks in (1, 2, 3, 8):
        assert_every_rank_has((out, layer.weight.grad), tinydist.launch(program, ranks, observe=False).results, atol=0)


@pytest.mark.parametrize("token", [13, -1])
def test_a_token_that_is_none_is_refused_as_torch_does(token):
    def program():
        VocabParallelEmbedding(nn.Embedding(13, 3))(torch.tensor([1, token]))

    with pytest.raises(IndexError, match="index out of range"):
        nn.Embedding(13, 3)(torch.tensor([token]))
    with pytest.raises(IndexError, match="index out of range"):
        tinydist.launch(program, 2, observe=False)


def test_more_ranks_than_rows():
    with pytest.raises(ValueError, match="cut: cannot split a dim of size 2 over 3 ranks"):
        tinydist.launch(lambda: ColumnParallelLinear(nn.Linear(2, 2)), 3, observe=False)
