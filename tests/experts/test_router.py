"""Who chooses which experts: against a plain loop over tokens."""

import pytest
import torch
from experts.moe import drawn

from tinydist.experts import EvenRouter, ExpertChoice, Router

D, E, N = 6, 8, 40


def routers(kind=Router, **options):
    router = kind(D, E, generator=drawn(0), **options)
    router.weight.data *= 50
    return router, torch.randn(N, D, generator=drawn(1))


def of_tokens(routing):
    """Token -> {expert: weight}."""
    found = {token: {} for token in range(N)}
    for token, number, weight in zip(routing.tokens.tolist(), routing.experts.tolist(), routing.weights.tolist()):
        assert number not in found[token]
        found[token][number] = weight
    return found


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("top_k", [1, 3, 8])
def test_the_best_experts_with_their_scores(score, normalize, top_k):
    router, x = routers(top_k=top_k, score=score, normalize=normalize, scale=2.5)
    for token, chosen in of_tokens(router(x)).items():
        logits = router.weight @ x[token]
        scores = logits.softmax(0) if score == "softmax" else logits.sigmoid()
        assert set(chosen) == set(scores.topk(top_k).indices.tolist())
        total = scores[list(chosen)].sum().item() if normalize else 1
        assert chosen == pytest.approx({n: 2.5 * scores[n].item() / total for n in chosen}, rel=1e-5)


def test_a_bias_changes_the_choice_and_not_the_weights():
    router, x = routers(top_k=2, score="sigmoid", normalize=False, bias=True)
    before = of_tokens(router(x))
    router.bias[5] = 10
    after, scores = of_tokens(router(x)), (x @ router.weight.T).sigmoid()
    assert all(5 in chosen for chosen in after.values()) and not all(5 in chosen for chosen in before.values())
    for token, chosen in after.items():
        assert chosen == pytest.approx({n: scores[token, n].item() for n in chosen}, rel=1e-5)


def test_experts_of_the_best_groups_alone():
    """Each group is worth the sum of its two best."""
    router, x = routers(top_k=2, score="sigmoid", groups=4, kept_groups=2)
    differs = 0
    for token, chosen in of_tokens(router(x)).items():
        scores = (router.weight @ x[token]).sigmoid()
        groups = scores.view(4, 2).sum(1).topk(2).indices.tolist()
        allowed = [number for group in groups for number in (2 * group, 2 * group + 1)]
        assert set(chosen) == {max(allowed, key=lambda n: scores[n]), *sorted(allowed, key=lambda n: scores[n])[-2:]}
        differs += set(chosen) != set(scores.topk(2).indices.tolist())
    assert differs


def test_the_even_router_loads_all_alike_without_a_look():
    router, x = routers(EvenRouter, top_k=3)
    routing = router(x)
    assert routing.counts() == [15] * E == routing.load.tolist()
    assert all(len(chosen) == 3 for chosen in of_tokens(routing).values())
    routing = router(x[:3])
    assert routing.counts() == [2] + [1] * 7 == routing.load.tolist()


def test_each_expert_chooses_the_tokens_that_score_highest():
    router = ExpertChoice(D, E, capacity_factor=1.5, generator=drawn(0))
    x = torch.randn(N, D, generator=drawn(1))
    routing, scores = router(x), (x @ router.weight.T).softmax(1)
    assert routing.counts() == [8] * E == routing.load.tolist()
    for number in range(E):
        mine = routing.tokens[routing.experts == number]
        assert set(mine.tolist()) == set(scores[:, number].topk(8).indices.tolist())


def test_the_gradient_reaches_the_router_through_the_weights():
    router, x = routers(top_k=2)
    routing = router(x)
    (routing.weights * torch.linspace(1, 2, len(routing.weights))).sum().backward()
    assert router.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    "options, rule",
    [
        (dict(top_k=9), r"top_k \(9\) experts must be in 1 of 1 groups of 8"),
        (dict(top_k=5, groups=4, kept_groups=2), r"top_k \(5\) experts must be in 2 of 4 groups of 2"),
        (dict(top_k=1, groups=3), r"experts \(8\) must be divisible by groups \(3\)"),
        (dict(top_k=1, groups=2, kept_groups=3), "kept_groups must be an integer from 1 to 2, got 3"),
        (dict(top_k=1, score="tanh"), "score must be one of softmax, sigmoid, got 'tanh'"),
        (dict(top_k=0), "top_k must be an integer >= 1, got 0"),
    ],
)
def test_what_a_router_cannot_be(options, rule):
    with pytest.raises(ValueError, match=rule):
        Router(D, E, **options)
