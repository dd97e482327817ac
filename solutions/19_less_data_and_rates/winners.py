"""Which method wins at equal tokens, which at equal FLOPs, or does none?"""

from itertools import pairwise
from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED

MEANS = "{name: sum(found) / len(found) for name, found in losses.items()}"

SECOND = "best, second = sorted(means, key=means.get)[:2]"


def curves(seed, gaps, spread, costs, points=6):
    """name -> one curve a seed, of (tokens, FLOPs, loss). ``spread``: of all methods, or name -> of each."""
    draw = Random(seed)
    methods = {}
    for name, gap in gaps.items():
        methods[name] = []
        wide = spread[name] if isinstance(spread, dict) else spread
        for _ in range(5):
            shift = gap + draw.uniform(-wide, wide) / 2
            stretch = draw.choice((0.8, 1.0, 1.2))
            methods[name].append(
                [
                    (tokens := 1000 * stretch * i, costs[name] * tokens, 2 + 3 / (1 + i * stretch) + shift)
                    for i in range(points + (stretch < 1))
                ]
            )
    return methods


def case(about, seed, gaps, spread, costs, tokens=3500.0, flops=3000.0):
    return alone(lambda: (curves(seed, gaps, spread, costs), tokens, flops), about)


def test_cases():
    even = {"baseline": 1.0, "a": 1.0, "b": 1.0}
    yield case("one is far ahead", 0, {"baseline": 0.0, "a": 0.1, "b": -0.3}, 0.05, even)
    yield case("ahead by less than the seeds differ", 1, {"baseline": 0.0, "a": -0.03, "b": 0.02}, 0.2, even)
    yield case("worse at equal tokens, cheaper", 2, {"baseline": 0.0, "a": 0.06, "b": 0.4}, 0.03, even | {"a": 0.6})
    yield case("better at equal tokens, dearer", 3, {"baseline": 0.0, "a": -0.1, "b": 0.2}, 0.03, even | {"a": 1.8})
    dear = even | {"b": 3.0}
    yield case("a curve that ends before the FLOPs", 4, {"baseline": 0.0, "a": 0.2, "b": -0.4}, 0.05, dear)
    short = {"baseline": 1.0, "a": 0.5, "b": 1.0}
    yield case("too cheap to have used the FLOPs", 5, {"baseline": 0.1, "a": -0.5, "b": 0.0}, 0.02, short)
    noisy = {"baseline": 0.4, "a": 0.01, "b": 0.01}
    yield case("the second one's seeds differ", 6, {"baseline": 0.0, "a": -0.12, "b": 0.5}, noisy, even)
    yield case("one seed is lucky", 8, {"baseline": 0.0, "a": -0.08, "b": 0.3}, 0.1, even)
    yield case(
        "two are close together, far ahead of the baseline", 9, {"baseline": 0.0, "a": -0.3, "b": -0.31}, 0.05, even
    )
    yield case("means and medians differ", 12, {"baseline": 0.0, "a": -0.2, "b": 0.3}, 0.2, even)
    yield case("between two points", 7, {"baseline": 0.0, "a": -0.2, "b": 0.1}, 0.05, even, 2750.0, 2250.0)


def as_numbers(answer, methods, tokens, flops):
    """Names as they are; None is a result, too."""
    found = answer(methods, tokens, flops)
    if isinstance(found, tuple) and len(found) == 2:
        return tuple("none" if each is None else each for each in found)
    return found


@exercise(
    title="Which method wins, or does none?",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=as_numbers,
    targets=[
        Own("your own arithmetic", INSTEAD, SOLVED),
        Values(
            "the winner at equal tokens and at equal FLOPs, or None, of three methods with five seeds each",
            names=("at equal tokens", "at equal FLOPs"),
        ),
    ],
    mistakes=[
        mistake(
            "A gap counts only if it exceeds the spread of the seeds: else nobody wins",
            "return best if means[second] - means[best] > max(spreads) else None",
            "return best",
        ),
        mistake(
            "The spread is the larger one of both methods that are compared",
            "> max(spreads)",
            "> min(spreads)",
        ),
        mistake(
            "The gap is that of the means: a lucky seed is no winner",
            MEANS,
            "{name: min(found) for name, found in losses.items()}",
        ),
        mistake(
            "The gap is that of the means, and not of the medians",
            MEANS,
            "{name: sorted(found)[len(found) // 2] for name, found in losses.items()}",
        ),
        mistake(
            "The best has to be ahead of the next best, and not of the baseline alone",
            SECOND,
            f"{SECOND}\n        second = 'baseline' if 'baseline' in taking and best != 'baseline' else second",
        ),
        mistake(
            "A method of which a curve ends before the budget cannot be compared there: leave it out",
            "if all(curve[-1][axis] >= budget for curve in methods[name])",
            "",
            "left[2] + part * (right[2] - left[2])",
            "left[2] + min(1, part) * (right[2] - left[2])",
            "if right[axis] >= budget:",
            "if right[axis] >= budget or right is curve[-1]:",
        ),
        mistake(
            "Between two points take the straight line, and not the next point",
            "left[2] + part * (right[2] - left[2])",
            "right[2]",
        ),
        mistake(
            "FLOPs are the second number of a point, and tokens the first",
            "winner(methods, 1, flops)",
            "winner(methods, 0, flops)",
        ),
    ],
    hints=[
        "Write one function for any of the two axes, and call it twice.",
        "First leave out the methods that cannot be compared. Then read each curve at the budget, by a straight line "
        "between the two points around it.",
        "Sort the methods by their means. The gap is that of the first two, the spread max - min of each one's seeds.",
    ],
    why="The same curves have different winners on different axes, and often none. A table that names the lowest mean "
    "always has a winner. With five seeds the spread is itself uncertain: a gap just above it is worth five more.",
)
def winners(methods, tokens, flops):
    """Return the names of the methods that win at equal tokens and at equal FLOPs, as a tuple; None where none does.

    ``methods`` is a dict: name -> a list of curves, one for each seed, each a list of (tokens, FLOPs, loss) that grows
    in tokens and in FLOPs. ``tokens`` and ``flops`` are the budgets, floats. A method's loss at a budget is read from
    each of its curves, by straight lines between points. A method takes part only if all its curves reach the budget;
    at least two do. The one of the lowest mean wins if the next mean is higher by more than the spread, max - min, of
    the seeds, which is the larger one of these two methods.
    """

    # ? The loss of a curve at a budget on an axis (0: tokens, 1: FLOPs).
    def read(curve, axis, budget):
        for left, right in pairwise(curve):
            if right[axis] >= budget:
                part = (budget - left[axis]) / (right[axis] - left[axis])
                return left[2] + part * (right[2] - left[2])

    # ? Who takes part, who is first, and is the gap large enough?
    def winner(methods, axis, budget):
        taking = [name for name in methods if all(curve[-1][axis] >= budget for curve in methods[name])]
        losses = {name: [read(curve, axis, budget) for curve in methods[name]] for name in taking}
        means = {name: sum(found) / len(found) for name, found in losses.items()}
        best, second = sorted(means, key=means.get)[:2]
        spreads = [max(losses[name]) - min(losses[name]) for name in (best, second)]
        return best if means[second] - means[best] > max(spreads) else None

    return winner(methods, 0, tokens), winner(methods, 1, flops)
