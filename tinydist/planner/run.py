"""Cost of a training run: GPU hours, days, money, energy; and the overhead of failures and checkpoints.

    steps      tokens / (batch x tokens of a sequence)            GPU hours    seconds x devices / 3600

Failures. Each loses the work since the last checkpoint, and the time to start again. With C seconds for a checkpoint, M
between failures, R for a start, a checkpoint every t seconds costs C/t + t/(2M) + R/M of the time. The least is at

    t = sqrt(2 C M)                       Young 1974
    t = sqrt(2 C M) (1 + sqrt(C/18M) + C/18M) - C      Daly 2006, better where C is no longer small

Goodput is the fraction of time spent on useful work.
"""

from dataclasses import dataclass
from math import sqrt

from ..rules import amount, part, positive, validate
from .search import Candidate

HOUR, DAY = 3600, 86400


@validate(checkpoint=positive, between_failures=positive)
def young(checkpoint, between_failures):
    """Seconds from one checkpoint to the next."""
    return sqrt(2 * checkpoint * between_failures)


@validate(checkpoint=positive, between_failures=positive)
def daly(checkpoint, between_failures):
    """The same, to a higher order; where a checkpoint takes longer than half the time between failures, that."""
    ratio = checkpoint / (2 * between_failures)
    if ratio >= 1:
        return between_failures
    return young(checkpoint, between_failures) * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint


@validate(checkpoint=amount, between_failures=positive, restart=amount, interval=positive)
def goodput(checkpoint, between_failures, restart=0.0, interval=None):
    """The fraction of time not lost to checkpoints, repeated work and restarts."""
    interval = interval or daly(checkpoint, between_failures)
    lost = checkpoint / interval + (interval / 2 + restart) / between_failures
    return max(0.0, 1 / (1 + lost))


def above_0(value):
    """a number > 0 and at most 1"""
    return part(value) and value > 0


@validate(candidate=Candidate, tokens=positive, price=amount, watts=amount, goodput=above_0)
@dataclass(frozen=True)
class RunCost:
    """``price``: of a device and hour, in the reader's currency. ``watts``: of a device with its share of the rest."""

    candidate: Candidate
    tokens: float
    goodput: float = 1.0
    price: float = 0.0
    watts: float = 0.0

    @property
    def steps(self):
        return self.tokens / (self.candidate.plan.batch * self.candidate.model.tokens)

    @property
    def seconds(self):
        return self.steps * self.candidate.seconds / self.goodput

    @property
    def days(self):
        return self.seconds / DAY

    @property
    def gpu_hours(self):
        return self.seconds * self.candidate.plan.ranks / HOUR

    @property
    def cost(self):
        return self.gpu_hours * self.price

    @property
    def energy(self):
        """Joules."""
        return self.gpu_hours * HOUR * self.watts

    def __str__(self):
        text = f"{self.tokens:.3g} tokens: {self.days:.1f} days, {self.gpu_hours:,.0f} GPU hours"
        text += f", {self.cost:,.0f} at {self.price} an hour" if self.price else ""
        return text + (f", {self.energy / 3.6e9:,.0f} MWh" if self.watts else "")
