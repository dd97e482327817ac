"""Sampling: each token as often as its share says."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from tinydist.serving import Request
from tinydist.serving.sampling import next_tokens

THROWS = 1000


def thrown(number, **options):
    """A sequence whose dice show that number."""
    return SimpleNamespace(request=Request([0], **options), random=SimpleNamespace(random=lambda: number))


def shares(logits, **options):
    """Token -> how often it comes, when the dice show each number equally often."""
    throws = [thrown((i + 0.5) / THROWS, **options) for i in range(THROWS)]
    tokens = next_tokens(logits.expand(THROWS, -1), throws)
    return {token: times / THROWS for token, times in Counter(tokens).items()}


def expected(logits, temperature, top_k=None, top_p=1.0):
    """Slow and obvious."""
    likeliest = logits.argsort(descending=True).tolist()[:top_k]
    weights = {i: ((logits[i] - logits.max()).double() / temperature).exp().item() for i in likeliest}
    kept, so_far = {}, 0.0
    for i in likeliest:
        if so_far < top_p:
            kept[i] = weights[i]
        so_far += weights[i] / sum(weights.values())
    return {i: weight / sum(kept.values()) for i, weight in kept.items()}


@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=1),
        dict(temperature=0.5),
        dict(temperature=3, top_k=4),
        dict(temperature=1, top_p=0.7),
        dict(temperature=2, top_k=5, top_p=0.6),
        dict(temperature=1, top_k=1),
        dict(temperature=1, top_p=1e-9),
        dict(temperature=1e-3),
        dict(temperature=1e-320),
        dict(temperature=1, top_k=50),
    ],
)
def test_each_comes_by_its_share(options):
    logits = torch.randn(8, generator=torch.Generator().manual_seed(0))
    found, wanted = shares(logits, **options), expected(logits, **options)
    assert found.keys() <= wanted.keys()
    assert all(abs(found.get(i, 0) - share) <= 1.01 / THROWS for i, share in wanted.items())


def test_each_row_has_its_own_rules():
    logits = torch.tensor([[0.0, 3, 2, 1]] * 4)
    rules = [dict(), dict(temperature=1, top_k=2), dict(temperature=1, top_p=0.5), dict(temperature=1)]
    assert next_tokens(logits, [thrown(0.999999, **each) for each in rules]) == [1, 2, 1, 0]


def test_the_largest_throw_is_still_a_token_that_may_come():
    logits = torch.tensor([[1.0, -torch.inf, 1.0, 1.0, -torch.inf]])
    assert next_tokens(logits, [thrown(1 - 2**-53, temperature=1.0)]) == [3]


def test_what_is_no_number_is_nobodys_choice():
    with pytest.raises(ValueError, match=r"^next_tokens: the logits are NaN for sequence 1 of 2$"):
        next_tokens(torch.tensor([[0.0, 1.0], [0.0, torch.nan]]), [thrown(0.5), thrown(0.5)])
