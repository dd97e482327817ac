"""The norm of gradients of which some are in parts and some in copies, is that of the whole model."""

import pytest
import torch
from tensor_parallel.wholes import RANKS, gradient, named, text, whole
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.tensor_parallel import clip_grad_norm_, gathered, shard


def clipped(model, clip, gather, limit=0.01):
    model.loss(*text()).backward()
    norm = clip(model, limit)
    return norm.detach(), gather(model, of=gradient)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("sequence", [None, "save"])
def test_clipping_equals_that_of_one_process(ranks, sequence):
    expected = clipped(whole(), lambda model, most: nn.utils.clip_grad_norm_(model.parameters(), most), named)

    def program():
        return clipped(shard(whole(), sequence_parallel=sequence), clip_grad_norm_, gathered)

    assert_every_rank_has(expected, tinydist.launch(program, ranks, observe=False).results)


def test_counting_copies_as_often_as_there_are_gives_another_norm():
    """The squares of all ranks' gradients, added up: those of copies t times."""

    def program():
        model = shard(whole())
        model.loss(*text()).backward()
        squares = {parameter: parameter.grad.square().sum() for parameter in model.parameters()}
        naive = torch.stack([*squares.values()]).sum()
        torch.distributed.all_reduce(naive)
        copies = sum(square for parameter, square in squares.items() if not hasattr(parameter, "cut"))
        return naive, copies, clip_grad_norm_(model, 1.0)

    naive, copies, right = tinydist.launch(program, 4, observe=False).results[0]
    torch.testing.assert_close(naive, right**2 + 3 * copies)
    assert copies > 1e-3 * right**2


def test_it_sends_one_number():
    def program(clip):
        model = shard(whole())
        model.loss(*text()).backward()
        if clip:
            clip_grad_norm_(model, 1.0)

    without, with_it = (sum(map(sum, tinydist.launch(program, 4, clip).traffic)) for clip in (False, True))
    assert with_it - without == 4 * 2 * 3  # bytes, of an all-reduce: 2 (t-1)/t on each of 4 ranks


def test_gradients_below_the_limit_stay_and_those_that_are_missing_are_passed_over():
    def program():
        model = shard(whole())
        model.position.weight.requires_grad_(False)
        model.loss(*text()).backward()
        before = model.norm.weight.grad.clone()
        clip_grad_norm_(model, 1e9)
        return torch.equal(before, model.norm.weight.grad), model.position.weight.grad

    assert tinydist.launch(program, 2, observe=False).results == [(True, None)] * 2
