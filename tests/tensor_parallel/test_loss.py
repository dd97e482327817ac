"""Cross-entropy of logits in parts: torch's own, of all of them; and nobody has all of them."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import assert_every_rank_has

import tinydist
from tinydist.tensor_parallel import cross_entropy

N, V = 7, 23  # 23 divides by none of the worlds


def logits(dtype=torch.float64):
    return (4 * torch.randn(N, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)


def targets(ignored=()):
    found = torch.tensor([0, 22, 5, 11, 12, 12, 3])
    found[list(ignored)] = -100
    return found


def torchs_own(all_logits, given, **options):
    all_logits.requires_grad_()
    loss = F.cross_entropy(all_logits, given, **options)
    loss.sum().backward()
    return loss.detach(), all_logits.grad


def in_parts(given, dtype=torch.float64, **options):
    t = dist.get_world_size()
    mine = logits(dtype).tensor_split(t, 1)[dist.get_rank()].clone().requires_grad_()
    loss = cross_entropy(mine, given, V, **options)
    loss.sum().backward()
    parts = [None] * t
    dist.all_gather_object(parts, mine.grad)
    return loss.detach(), torch.cat(parts, 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equals_torchs_own(ranks, smoothing, reduction):
    options = {"label_smoothing": smoothing, "reduction": reduction}
    expected = torchs_own(logits(), targets(ignored=[2, 5]), **options)
    found = tinydist.launch(lambda: in_parts(targets(ignored=[2, 5]), **options), ranks, observe=False).results
    assert_every_rank_has(expected, found, atol=1e-12)


@pytest.mark.parametrize("ranks", [2, 3])
def test_bfloat16_is_added_up_in_float32(ranks):
    """To what torch gives in float32 for the same logits, rounded once."""
    loss, gradient = torchs_own(logits(torch.bfloat16).float(), targets())
    expected = loss.bfloat16(), gradient.bfloat16()
    run = tinydist.launch(lambda: in_parts(targets(), torch.bfloat16), ranks, observe=False)
    assert_every_rank_has(expected, run.results, atol=2**-9)
    assert run.results[0][0] == loss.bfloat16()


def test_nothing_overflows():
    def program():
        mine = torch.tensor([[1000.0, -1000.0]]) if dist.get_rank() else torch.tensor([[-1e4, 990.0]])
        return cross_entropy(mine, torch.tensor([1]), 4).item()

    assert tinydist.launch(program, 2).results == [pytest.approx(10.0, abs=1e-4)] * 2


def test_an_ignored_token_of_another_number_and_all_ignored_as_torch():
    def program():
        mine = torch.zeros(2, 3)
        one = cross_entropy(mine, torch.tensor([5, 1]), 6, ignore_index=5)
        none = cross_entropy(mine, torch.tensor([5, 5]), 6, ignore_index=5)
        return one.item(), none.isnan().item()

    assert tinydist.launch(program, 2).results == [(pytest.approx(torch.tensor(6.0).log().item()), True)] * 2


def test_two_numbers_a_token_travel_and_no_rank_has_all_logits():
    """Forward two all-reduces, of N and 2N numbers; backward none. At the peak 3 tensors of N V/t numbers."""
    rows, vocabulary, t = 64, 4096, 4

    def program():
        mine = torch.ones(rows, vocabulary // t, requires_grad=True)
        cross_entropy(mine, torch.zeros(rows, dtype=torch.long), vocabulary).backward()

    run = tinydist.launch(program, t)
    assert sum(run.traffic[0]) == pytest.approx(2 * (t - 1) / t * 3 * rows * 4)
    assert run.memory[0].peak < 4.1 * rows * vocabulary / t * 4


@pytest.mark.parametrize(
    "given, vocabulary, error",
    [
        (torch.tensor([1, 6]), 6, IndexError),
        (torch.tensor([1, -1]), 6, IndexError),
    ],
)
def test_a_target_that_is_no_token_is_refused_as_torch_does(given, vocabulary, error):
    with pytest.raises(error):
        F.cross_entropy(torch.zeros(2, 6), given)
    with pytest.raises((IndexError, RuntimeError), match=r"index .* is out of bounds"):
        tinydist.launch(lambda: cross_entropy(torch.zeros(2, 3), given, vocabulary), 2, observe=False)


@pytest.mark.parametrize("shape, target", [((2, 4), (2,)), ((2, 3), (3,)), ((2, 2, 3), (2,))])
def test_shapes_that_do_not_fit(shape, target):
    rule = r"cross_entropy: expected targets \[N\] and logits \[N, 3\], of 6 on 2 ranks, got"
    with pytest.raises(ValueError, match=rule):
        tinydist.launch(lambda: cross_entropy(torch.zeros(shape), torch.zeros(target).long(), 6), 2, observe=False)
