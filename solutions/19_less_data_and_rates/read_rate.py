"""Read a range test whose curve is noisy, whose rates are not evenly spaced, and which breaks."""

import math
import statistics
from functools import partial
from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


def curve(seed, steps, breaks=math.inf, spike=None, height=-3, recovers=None):
    """A loss that falls around some rate and rises later, with noise. After the first NaN there may be more numbers."""
    draw = Random(seed)
    middle, bottom, rates, losses, rate = draw.uniform(-3.4, -2.6), draw.uniform(-1.7, -1.2), [], [], 1e-5
    for _ in range(steps):
        rate *= draw.uniform(1.1, 1.5) ** (60 / steps)
        place = math.log10(rate)
        loss = 5 - 2 / (1 + math.exp(-4 * (place - middle))) + 3 * max(0.0, place - bottom) ** 2
        losses.append(loss + draw.gauss(0, 0.03))
        rates.append(rate)
    if spike is not None:
        losses[spike] += height
    if recovers is not None:
        losses[recovers - 5 : recovers] = [loss + 8 for loss in losses[recovers - 5 : recovers]]
    if breaks < 1:
        first = int(breaks * steps)
        losses[first] = math.nan
        losses[first + 1 :] = [1.0 - 0.1 * i for i in range(steps - first - 1)]
    return rates, losses


def test_cases():
    for seed, steps, options, about in [
        (0, 40, {}, "a quiet curve"),
        (1, 60, {}, "more steps"),
        (2, 50, {"spike": 3}, "one loss far too low, early"),
        (3, 60, {"breaks": 0.8}, "NaN, and lower losses after it"),
        (4, 60, {"spike": 45}, "one loss far too low, late"),
        (5, 80, {"breaks": 0.9}, "NaN late, and lower losses after it"),
        (6, 60, {"recovers": 57}, "it breaks, and falls again"),
        (7, 60, {"spike": 0, "height": 3}, "the first loss far too high"),
    ]:
        yield alone(partial(curve, seed, steps, **options), f"{steps} steps, {about}")


@exercise(
    title="Read the right rate from a range test",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic, and the statistics module", INSTEAD, SOLVED),
        Values(
            "both rates, from curves of 40 to 80 steps with noise, with outliers, and with NaN",
            names=("the steepest", "the lowest"),
            variants=[
                (
                    "Training has broken at the first NaN: leave out what comes after it, too, and not NaN alone",
                    "    finite = losses[:end]",
                    "    rates = [rate for rate, loss in zip(rates, losses) if math.isfinite(loss)]\n"
                    "    finite = [loss for loss in losses if math.isfinite(loss)]\n"
                    "    end = len(finite)",
                ),
                (
                    "At the ends of the curve, too, the median is taken: of the losses that are there",
                    "statistics.median(finite[max(0, i - 2) : i + 3])",
                    "statistics.median(finite[i - 2 : i + 3]) if 2 <= i < end - 2 else finite[i]",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "One outlier decides: take the median of five losses, and not their mean",
            "statistics.median(finite[",
            "statistics.mean(finite[",
        ),
        mistake(
            "Without smoothing noise decides",
            "statistics.median(finite[max(0, i - 2) : i + 3])",
            "finite[i]",
        ),
        mistake(
            "The window is centered on the step: one that looks back alone shifts what you read to higher rates",
            "max(0, i - 2) : i + 3",
            "max(0, i - 4) : i + 1",
        ),
        mistake(
            "The slope is by the logarithm of the rate, which grows unevenly here: divide by its change",
            " / math.log(rates[i + 1] / rates[i - 1])",
            "",
        ),
        mistake(
            "Slopes per rate are steepest where rates are least: take its logarithm",
            "math.log(rates[i + 1] / rates[i - 1])",
            "(rates[i + 1] - rates[i - 1])",
        ),
        mistake(
            "The steepest descent is asked for, not the steepest rise",
            "min(range(1, lowest), key=slope)",
            "max(range(1, lowest), key=slope)",
        ),
        mistake(
            "A loss that has risen may fall again, at rates that are too high: look before the lowest alone",
            "range(1, lowest)",
            "range(1, end - 1)",
        ),
        mistake(
            "A central difference is about step i: from i - 1 to i + 1",
            "(smooth[i + 1] - smooth[i - 1]) / math.log(rates[i + 1] / rates[i - 1])",
            "(smooth[i + 1] - smooth[i]) / math.log(rates[i + 1] / rates[i])",
        ),
    ],
    hints=[
        "First throw away what comes from the first loss on that is not finite. Then smooth, and then read.",
        "smooth[i] is the median of finite[max(0, i - 2) : i + 3]: at the ends there are fewer than five.",
        "The slope of step i, 0 < i < lowest: (smooth[i + 1] - smooth[i - 1]) / log(rates[i + 1] / rates[i - 1]).",
    ],
    why="What a reading gives depends on how it smooths, more than on the curve: a running average that looks back "
    "reads rates that are too high. And both rates are bounds of a short run, not the best rate of a long one.",
)
def read_rate(rates, losses):
    """Return (steepest, lowest), two of ``rates``, of a range test.

    ``rates`` and ``losses`` are lists of floats; rates grow, though not by one factor; a loss may be NaN, and whatever
    comes from there on counts for nothing. Smooth: each loss becomes the median of five, from two steps before it to
    two after it, as far as they are there. ``lowest`` is the rate of the least smoothed loss (the first such).
    ``steepest`` is that of the step before it, not the first one, at which the smoothed loss falls fastest: its change
    from one step before to one step after, over the change of the rate's logarithm (the first such, again).
    """
    # ? What counts?
    end = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    finite = losses[:end]
    # ? Smooth, without shifting.
    smooth = [statistics.median(finite[max(0, i - 2) : i + 3]) for i in range(end)]
    lowest = smooth.index(min(smooth))

    # ? Where is it steepest?
    def slope(i):
        return (smooth[i + 1] - smooth[i - 1]) / math.log(rates[i + 1] / rates[i - 1])

    steepest = min(range(1, lowest), key=slope)
    return rates[steepest], rates[lowest]
