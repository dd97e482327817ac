"""Synthetic request traces: prompt lengths, output lengths, arrival times.

What people asked of ChatGPT (ShareGPT), or an instruction set (Alpaca), has long tails, and is not here. So lengths are
drawn, and only look like theirs: log-normal, rounded up, cut off at ``longest``, and scaled so that the mean of what is
drawn is the published one, to half a percent of a token. The means are measured; the spreads are assumed.

    ShareGPT    prompts 161.31, answers 337.99        Alpaca    19.31 and 58.45        tokens, on the mean

Requests come one by one, independently: the time between two is exponential (Poisson arrivals), as in the paper.

Source: Kwon et al. 2023, PagedAttention, arXiv 2309.06180, section 6.1 and figure 11.
"""

from dataclasses import dataclass
from math import ceil, exp
from random import Random

from ..rules import amount, count, listed, positive, rate, validate, whole


def spread(value):
    """a number > 0 and <= 10"""
    return positive(value) and value <= 10


@validate(name=str, prompt=positive, output=positive, prompt_spread=spread, output_spread=spread, longest=count)
@dataclass(frozen=True)
class Lengths:
    """``prompt`` and ``output``: mean tokens. Spreads: the standard deviation of a length's logarithm."""

    name: str
    prompt: float
    output: float
    prompt_spread: float
    output_spread: float
    longest: int = 1024  # of a prompt, and of an answer

    def __post_init__(self):
        for what, mean in (("prompt", self.prompt), ("output", self.output)):
            if not 1 <= mean <= self.longest:
                raise ValueError(f"Lengths: the mean {what} must be from 1 to longest = {self.longest}, got {mean}")


SHAREGPT = Lengths("ShareGPT-like", 161.31, 337.99, prompt_spread=1.3, output_spread=1.0)
ALPACA = Lengths("Alpaca-like", 19.31, 58.45, prompt_spread=0.5, output_spread=1.0)


@validate(arrival=amount, prompt=listed, output=listed)
@dataclass(frozen=True)
class TraceRequest:
    """A request of a trace: prompt tokens, output tokens, arrival in seconds from the start."""

    arrival: float
    prompt: int
    output: int

    @property
    def tokens(self):
        return self.prompt + self.output


@validate(lengths=Lengths, requests=listed, per_second=rate, seed=whole)
def make_trace(lengths, requests, per_second=float("inf"), seed=0):
    """A list of ``TraceRequest``, by arrival. ``per_second``: request rate; infinite: all arrive at the start."""
    random = Random(seed)
    prompts = drawn(random, requests, lengths.prompt, lengths.prompt_spread, lengths.longest)
    outputs = drawn(random, requests, lengths.output, lengths.output_spread, lengths.longest)
    arrival, trace = 0.0, []
    for prompt, output in zip(prompts, outputs):
        trace.append(TraceRequest(arrival, prompt, output))
        arrival += random.expovariate(1) / per_second
    return trace


def drawn(random, number, mean, spread, longest):
    """Whole numbers from 1 to ``longest``, whose mean is as near to ``mean`` as one common scale brings it."""
    shapes = [exp(random.gauss(0, spread)) for _ in range(number)]

    def scaled(by):
        return [min(longest, ceil(by * shape)) for shape in shapes]

    low, high = 0.0, longest / min(shapes)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(scaled(middle)) < mean * number else (low, middle)
    return scaled(high)
