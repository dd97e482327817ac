"""Published scores of attention variants: each beside its own multi-head model, with the worst test, and a choice."""

from tinydist.attention.published_scores import SCORES
from tinydist.lab.author import Own, alone, exercise, mistake

from .chapter import SOLVED
from .divided_attention import BY_HAND, Part

PUBLISHED = [(name, each.cache, each.scores, each.multi_head) for name, each in SCORES.items()]
# Points in eighths, so that no difference is rounded.
PAIR = ("A", 0.25, {"x": 40.0, "y": 60.5}, {"x": 41.5, "y": 60.0})
BETTER = ("B", 0.5, {"x": 50.0, "y": 70.0}, {"x": 49.0, "y": 70.25})
GAINS = ("C", 0.125, {"x": 33.0, "z": 21.0, "w": 64.0}, {"w": 61.0, "x": 35.0, "y": 80.0, "z": 20.5})
SMALLEST = ("D", 0.03125, {"y": 12.0}, {"x": 90.0, "y": 21.0})


def given(about, studies, most):
    return alone(lambda: ([*studies], most), f"{about}, at most {most:g} points lost")


def test_cases():
    yield given("one variant, two tests", [PAIR], 2.0)
    yield given("a variant that loses too much, and a test of its multi-head model alone", [SMALLEST], 2.0)
    yield given("two variants, of two teams", [PAIR, BETTER], 2.0)
    yield given("one that loses just as much as it may", [PAIR, BETTER], 1.5)
    yield given("two, of which one loses too much", [PAIR, BETTER], 1.25)
    yield given("tests that only one of the models took", [BETTER, GAINS, SMALLEST], 2.0)
    yield given("four variants", [SMALLEST, GAINS, PAIR, BETTER], 10.0)
    yield given("a gain that hides a loss", [GAINS, BETTER], 0.5)
    yield given("none is good enough", [SMALLEST, GAINS, PAIR], 0.125)
    yield given("what was published", PUBLISHED, 0.5)
    yield given("what was published", PUBLISHED, 1.0)


TESTS = "[scores[test] - multi_head[test] for test in scores if test in multi_head]"


@exercise(
    title="Read published scores",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Part("mean", "mean", "of the changes on all tests that both models took"),
        Part("worst", "worst", "the change on the worst test. DeepSeek's 7B with a single KV head: -12.9"),
        Part(
            "choice",
            "choice",
            "the least cache among those that lose little on every test. Of all that chapters 09 and 09b show, with at "
            "most half a point lost: MLA, 250B",
        ),
    ],
    mistakes=[
        mistake(
            "All are held against the first multi-head model. Each variant has one of its own, which the same team "
            "trained alike; another team's differs in much else",
            "if test in multi_head]",
            "if test in studies[0][3]]",
            "- multi_head[test]",
            "- studies[0][3].get(test, 0)",
        ),
        mistake(
            "The means of both models are compared, over different tests. Only tests that both took can be compared",
            "sum(changes) / len(changes)",
            "sum(scores.values()) / len(scores) - sum(multi_head.values()) / len(multi_head)",
        ),
        mistake(
            "That is the largest change in either direction. A gain is not the worst",
            "min(changes)",
            "max(changes, key=abs)",
        ),
        mistake(
            "These are percent of the score. Points are the difference",
            TESTS,
            TESTS.replace("scores[test] - multi_head[test]", "100 * (scores[test] / multi_head[test] - 1)"),
        ),
        mistake(
            "A good mean can hide a test that loses much: it is the worst test that may lose so many points",
            "for each, loss in zip(studies, worst)",
            "for each, loss in zip(studies, mean)",
        ),
        mistake(
            "Of those that are good enough take the least cache: not the largest, nor the best mean",
            "min(enough)",
            "max(enough)",
        ),
        mistake(
            "At most so many points: a variant that loses just as many is good enough",
            "loss >= -most",
            "loss > -most",
        ),
        mistake(
            "None loses little enough, and yet one is chosen: keep multi-head attention then",
            'if enough else "multi-head"',
            "if enough else min((each[1], each[0]) for each in studies)[1]",
        ),
    ],
    hints=[
        "A change is a score minus that of the multi-head model in the same study, on the same test.",
        "Loop over the tests of the variant, and leave out those that its multi-head model did not take.",
        "The worst change is the smallest, whatever its sign. Good enough is worst >= -most; of those, take the least "
        "cache.",
    ],
    why="A headline gives the mean of the best pair. MLA in 16B gains 0.7 points on average and loses as much on its "
    "worst test, and what eight KV heads lose differs by four points between two teams.",
)
def read_scores(studies, most):
    """What each variant's scores say beside its multi-head model's, and which variant to take.

    ``studies`` is a list of (name, left, scores, multi_head): ``left`` is the share of multi-head attention's cache
    that is left; ``scores`` and ``multi_head`` are the points by test of the variant, and of the multi-head model that
    the same team trained. Some tests have been taken by one of the two only, and cannot be compared.

    Return {"mean": [...], "worst": [...], "choice": ...}: for each study, in their order, the mean change in points
    over the tests that both took, and the change on the worst of these; and the name of the variant with the least
    cache among those that lose at most ``most`` points on every test, or "multi-head" if there is none.
    """
    # ? of each study the changes, test by test; their mean, and the worst
    # ? which are good enough?
    mean, worst = [], []
    for _, _, scores, multi_head in studies:
        changes = [scores[test] - multi_head[test] for test in scores if test in multi_head]
        mean.append(sum(changes) / len(changes))
        worst.append(min(changes))
    enough = [(each[1], each[0]) for each, loss in zip(studies, worst) if loss >= -most]
    return {"mean": mean, "worst": worst, "choice": min(enough)[1] if enough else "multi-head"}
