"""A 1Cycle with four bugs, none of which raises an error."""

import math

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED

LEG = "end + (start - end) * (1 + math.cos(math.pi * gone)) / 2"


def case(peak, steps, rise, about, start=25.0, end=1e4):
    return alone(lambda: (peak, steps, rise, start, end), f"peak {peak:g}, {steps} steps, rise {rise:g}: {about}")


def test_cases():
    yield case(0.1, 10, 0.3, "a short run")
    yield case(1.0, 11, 0.5, "half up, half down")
    yield case(0.003, 40, 0.3, "torch's defaults")
    yield case(0.7, 33, 0.21, "a top between two steps", start=3.0, end=7.0)
    yield case(2.0, 25, 0.4, "a gentle start", start=2.0, end=100.0)


@exercise(
    title="Find four bugs in a 1Cycle",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", INSTEAD, SOLVED),
        Values(
            "rates and momenta of all steps, as torch's OneCycleLR has them, of 10 to 40 steps",
            names=("the rates", "the momenta"),
        ),
    ],
    mistakes=[
        mistake(
            "The last step does not have the least rate: steps are counted from 0, so the last one is steps - 1",
            "(step - top) / (steps - 1 - top)",
            "(step - top) / (steps - top)",
            given=True,
        ),
        mistake(
            "Momentum moves with the rate. Where the rate is high, it has to be low",
            "momenta.append(between(0.95, 0.85, 0.95, step))",
            "momenta.append(between(0.85, 0.95, 0.85, step))",
            given=True,
        ),
        mistake(
            "The run ends at the peak divided by `end`. It is the first rate that is divided by it, so that the last "
            "one is far below it",
            "first / end",
            "peak / end",
            given=True,
        ),
        mistake(
            "The way down begins where the way up did, and not at the peak: the rate jumps at the top",
            "return leg(middle, last,",
            "return leg(first, last,",
            given=True,
        ),
        mistake(
            "The top is at rise x steps - 1, where steps are counted from 0",
            "top = rise * steps - 1",
            "top = rise * steps",
        ),
    ],
    hints=[
        "Print rates and momenta of 10 steps. At which step should each be largest? What is the last rate?",
        "first, peak, first/end; and 0.95, 0.85, 0.95: three numbers each, of which the middle one is at the top.",
        "What is `gone` in the last step? It has to be 1.",
    ],
    why="Each of the four trains. A rate that ends ten times too high looks like a schedule that does not work, and a "
    "momentum that rises with the rate like a peak that is too high. So compare a schedule with a plain one, number by "
    "number, before you compare losses.",
)
def mended_one_cycle(peak, steps, rise, start, end):
    """Mend this 1Cycle: it has four bugs. Return (rates, momenta), two lists of ``steps`` floats.

    The rate goes from peak / start up to the peak, and down to peak / start / end in the last step; momentum goes from
    0.95 to 0.85 and back. Both by half a cosine wave on each side of the top, which is at step rise x steps - 1 (which
    need not be whole). Steps are counted from 0.
    """
    top = rise * steps - 1
    first = peak / start

    def leg(start, end, gone):
        return end + (start - end) * (1 + math.cos(math.pi * gone)) / 2

    def between(first, middle, last, step):
        if step <= top:
            return leg(first, middle, step / top)
        return leg(middle, last, (step - top) / (steps - 1 - top))

    rates, momenta = [], []
    for step in range(steps):
        rates.append(between(first, peak, first / end, step))
        momenta.append(between(0.95, 0.85, 0.95, step))
    return rates, momenta
