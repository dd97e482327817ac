"""Request: what somebody asks for; and the sequences that are written for it, while they are.

    request  prompt, 3 samples          sequence 0   prompt tokens | new tokens        computed: how many of its tokens
                                        sequence 1   the same      | others            have their keys and values in
                                        sequence 2   the same      | others            the cache; the rest is ``left``

A sequence knows no phases. It has tokens, of which some are computed: at first none, then a piece of the prompt, and so
on. When all are, the model has said what may come next, and one more token is there: ``left`` is 1. One that loses its
memory has nothing computed, and no token less.
"""

import random
from dataclasses import dataclass

from ..rules import amount, count, each_of, is_tensor, many, takes, whole, within


def tokens(value):
    """a non-empty list of tokens, each an integer >= 0"""
    return each_of(whole)(value.tolist() if is_tensor(value) else value)


def endings(value):
    """a list, each a token or a list of tokens"""
    return many(value) and all(whole(each) or tokens(each) for each in value)


def above_0_to_1(value):
    """a number > 0 and <= 1"""
    return amount(value) and 0 < value <= 1


@takes(prompt=tokens, max_new=count, arrival=amount, seed=whole, temperature=amount, top_k=count, top_p=above_0_to_1)
@takes(stop=endings, n=within(1, 2**10), salt=str)
@dataclass(frozen=True, eq=False)
class Request:
    """``n`` samples, of at most ``max_new`` tokens each, after a prompt.

    arrival:      in seconds.
    temperature:  0 takes the likeliest token; above, logits are divided by it, and a token is drawn
    top_k, top_p: among the k likeliest, and of those the fewest that have a share of p together.
    seed:         of what is drawn: the same request gets the same tokens, whoever is served beside it.
    stop:         tokens, or lists of tokens, after which it is done; they are part of what was written.
    salt:         blocks of the cache are shared with requests of the same salt alone.
    """

    prompt: list
    max_new: int = 16
    arrival: float = 0.0
    seed: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    stop: list = ()
    n: int = 1
    salt: str = ""

    def __post_init__(self):
        object.__setattr__(self, "prompt", _listed(self.prompt))
        object.__setattr__(self, "stop", [[each] if whole(each) else _listed(each) for each in self.stop])

    @property
    def longest(self):
        """Tokens that are ever in the cache for one sample: the last one that is written is not."""
        return len(self.prompt) + self.max_new - 1


def _listed(tokens):
    return [int(each) for each in tokens]


class Sequence:
    """One sample of a request: its tokens, and where they lie.

    served:  what it belongs to, a ``Served``.
    reason:  why it ended: "length", "stop", "cancelled"; None: it has not.
    """

    def __init__(self, served, sample, table):
        self.served, self.sample, self.table = served, sample, table
        self.request = served.request
        self.tokens = [*self.request.prompt]
        self.computed, self.reason = 0, None
        self.random = random.Random(f"{self.request.seed}, {sample}")

    @property
    def new(self):
        """The tokens that were written."""
        return self.tokens[len(self.request.prompt) :]

    @property
    def left(self):
        """Tokens to compute, before there is another."""
        return len(self.tokens) - self.computed

    @property
    def places(self):
        """Sequences that it is, or will be when its prompt has been computed."""
        return self.request.n if len(self.served.sequences) < self.request.n else 1

    def append(self, token):
        self.tokens.append(token)
        if any(self._ends_with(each) for each in self.request.stop):
            self.reason = "stop"
        elif len(self.tokens) == len(self.request.prompt) + self.request.max_new:
            self.reason = "length"

    def _ends_with(self, ending):
        written = len(self.tokens) - len(self.request.prompt)
        return len(ending) <= written and self.tokens[-len(ending) :] == ending


class Served:
    """A request while it is served, and after."""

    def __init__(self, request):
        self.request, self.sequences = request, []

    @property
    def done(self):
        return all(each.reason for each in self.sequences)

    @property
    def new(self):
        """Of each sample, the tokens that were written."""
        return [each.new for each in self.sequences]
