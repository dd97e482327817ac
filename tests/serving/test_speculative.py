"""Draft and verify: what comes out is distributed as if the target had written it alone."""

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.attention import Decoder, DecoderConfig, generate
from tinydist.serving.speculative import chosen, expected_tokens, probabilities, speculate, speedup, verify

SIXTHS = [(2, 1, 3), (3, 2, 1), (0, 3, 3), (6, 0, 0), (2, 2, 2)]
ACCEPTS, DRAWS = ([(i + 0.5) / parts for i in range(parts)] for parts in (6, 12))  # in which all shares are whole


def sixths(*rows):
    return torch.tensor(rows, dtype=torch.float64) / 6


@pytest.mark.parametrize("p", SIXTHS)
def test_what_is_accepted_and_what_is_chosen_instead_add_up_to_the_target(p):
    """Exactly: of each draft, tokens accepted at min(p, q), and of what is refused, p - q where that is above 0."""
    for q in SIXTHS:
        (target, draft), out = sixths(p, q), torch.zeros(3, dtype=torch.float64)
        for token, accept, last in product(range(3), ACCEPTS, DRAWS):
            if q[token]:
                taken = verify(torch.tensor([token]), draft[None], sixths(p, p), torch.tensor([accept, last]).double())
                out[taken[0]] += draft[token] / 72
        assert torch.allclose(out, target, atol=1e-12), q


def test_two_tokens_are_distributed_exactly_as_the_targets():
    """Of all pairs of drafts and a grid of draws: the first as p1, and behind an accepted x1 the second as p2."""
    halves, quarters = [1 / 4, 3 / 4], [1 / 8, 3 / 8, 5 / 8, 7 / 8]  # what is accepted, or chosen, has these shares
    p, q = torch.tensor([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) / 4.0, torch.tensor([[1, 1, 2], [1, 1, 2]]) / 4.0
    first, second = Counter(), Counter()
    for drafted in product(range(3), repeat=2):
        weight = float(q[0, drafted[0]] * q[1, drafted[1]])
        for draws in product(halves, halves, quarters):
            out = verify(torch.tensor(drafted), q, p, torch.tensor(draws))
            first[out[0]] += weight / 16
            if len(out) > 1:
                second[out[0], out[1]] += weight / 16
    assert [first[x] for x in range(3)] == pytest.approx(p[0].tolist())
    for x, y in product(range(3), repeat=2):
        assert second[x, y] == pytest.approx(float(torch.minimum(p[0], q[0])[x] * p[1, y]))


def test_what_all_accept_is_followed_by_a_token_of_the_target():
    p = torch.eye(3).double()
    assert verify(torch.tensor([0, 1]), p[:2], p, torch.tensor([0.9, 0.9, 0.5]).double()) == [0, 1, 2]
    assert verify(torch.tensor([0, 0]), p[[0, 0]], p, torch.tensor([0.0, 0.0, 0.5]).double()) == [0, 1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.floats(0, 1))
def test_no_token_without_weight_is_chosen(weights, draw):
    assert weights[chosen(torch.tensor(weights, dtype=torch.float64), torch.tensor(draw))] > 0


def model(dim, seed):
    torch.manual_seed(seed)
    made = Decoder(DecoderConfig(vocab_size=3, layers=1, heads=2, kv_heads=1, dim=dim)).double()
    torch.nn.init.normal_(made.head.weight, std=0.6)
    return made.eval()


LARGE, SMALL = model(16, 0), model(8, 1)
PROMPT = torch.tensor([2, 1, 0, 1])


@pytest.mark.parametrize("ahead", [0, 1, 3, 30])
@pytest.mark.parametrize("draft", [SMALL, LARGE])
def test_greedy_is_what_the_target_writes_alone(draft, ahead):
    written = speculate(LARGE, draft, PROMPT, 20, ahead, temperature=0)
    assert written.tokens == generate(LARGE, [PROMPT], 20)[0].tolist()
    assert sum(written.accepted) + written.rounds == 20 and len(written.accepted) == written.rounds
    if draft is LARGE:  # it accepts all that it would have written
        assert written.rounds == -(-20 // (min(ahead, 19) + 1))


def test_a_temperature_close_to_zero_takes_the_likeliest():
    assert probabilities(torch.tensor([1.0, 3.0, 2.0]), 1e-320).tolist() == [0, 1, 0]


def unlikely(writer, draft, runs=100):
    """Chi-squared of the first two tokens of so many texts, beside what LARGE alone writes; 8 are expected."""
    generator = torch.Generator().manual_seed(0)
    pairs = Counter(tuple(speculate(writer, draft, PROMPT, 2, 2, 0.8, generator).tokens) for _ in range(runs))
    with torch.no_grad():
        first = probabilities(LARGE(PROMPT[None])[0, -1], 0.8)
        longer = torch.stack([torch.cat([PROMPT, torch.tensor([x])]) for x in range(3)])
        both = runs * first[:, None] * probabilities(LARGE(longer)[:, -1], 0.8)
    seen = torch.tensor([[pairs[x, y] for y in range(3)] for x in range(3)])
    return float(((seen - both) ** 2 / both).sum())


def test_sampled_tokens_are_distributed_as_the_targets():
    assert unlikely(LARGE, SMALL) < 8 + 3 * 4
    assert unlikely(SMALL, SMALL, runs=30) > 8 + 6 * 4  # so it would be seen


def test_the_same_seed_writes_the_same():
    once, again, other = (
        speculate(LARGE, SMALL, PROMPT, 12, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)
    )
    assert once == again != other


@pytest.mark.parametrize("a, ahead", [(0.0, 3), (0.5, 2), (0.8, 4), (1.0, 5)])
def test_a_round_gives_as_many_tokens_as_the_formula_says(a, ahead):
    """Equation 1 of Leviathan et al., and what verify does with a draft that is right so often."""
    closed = ahead + 1 if a == 1 else (1 - a ** (ahead + 1)) / (1 - a)
    assert expected_tokens(a, ahead) == pytest.approx(closed)
    assert speedup(a, ahead, 0.1) == pytest.approx(closed / (0.1 * ahead + 1))
    p, q = torch.tensor([[a, 1 - a]] * (ahead + 1)), torch.tensor([[1.0, 0.0]] * ahead)
    draws = torch.rand(1000, ahead + 1, generator=torch.Generator().manual_seed(0))
    tokens = [len(verify(torch.zeros(ahead, dtype=torch.long), q, p, each)) for each in draws]
    assert sum(tokens) / 1000 == pytest.approx(closed, abs=0.15)


def test_errors():
    p, draws = torch.ones(3, 2) / 2, torch.rand(3)
    with pytest.raises(ValueError, match=r"verify: 2 drafted tokens need q \[2, 2\], got \[1, 2\]"):
        verify(torch.tensor([0, 1]), p[:1], p, draws)
    with pytest.raises(ValueError, match="verify: drafted must be integers from 0 to 1"):
        verify(torch.tensor([0, 2]), p[:2], p, draws)
    with pytest.raises(ValueError, match=r"speculate: prompt must be \[T\] with at least one token, got \[0\]"):
        speculate(LARGE, SMALL, PROMPT[:0], 3)
    other = Decoder(DecoderConfig(vocab_size=12, layers=1, heads=2, kv_heads=1, dim=8)).double()
    with pytest.raises(ValueError, match=r"speculate: vocab_size of target \(3\) and draft \(12\) must be equal"):
        speculate(LARGE, other, PROMPT, 3)
