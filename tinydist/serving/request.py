"""Requests, and the sequences that are generated for them.

    request  prompt, 3 samples       sequence 0   prompt tokens | output tokens     num_computed_tokens of its tokens
                                     sequence 1   the same      | others            have their keys and values in the
                                     sequence 2   the same      | others            cache; the others are uncomputed

A sequence has no explicit prefill and decode phases. It has tokens, some of which are computed: at first none, then a
chunk of the prompt, and so on. When all are computed, one more is sampled, the only uncomputed one. A preempted
sequence has no computed tokens, but keeps all its tokens.
"""

import random
from dataclasses import dataclass

from ..rules import amount, count, each_of, is_tensor, many, validate, whole, within


def tokens(value):
    """a non-empty list of tokens, each an integer >= 0"""
    return each_of(whole)(value.tolist() if is_tensor(value) else value)


def endings(value):
    """a list, each a token or a list of tokens"""
    return many(value) and all(whole(each) or tokens(each) for each in value)


def above_0_to_1(value):
    """a number > 0 and <= 1"""
    return amount(value) and 0 < value <= 1


@validate(prompt=tokens, max_new_tokens=count, seed=whole, temperature=amount, top_k=count)
@validate(top_p=above_0_to_1, stop=endings, n=within(1, 2**10), cache_salt=str)
@dataclass(frozen=True, eq=False)
class Request:
    """``n`` samples, of at most ``max_new_tokens`` tokens each, after a prompt.

    temperature:  0: greedy; above: logits are divided by it before sampling
    top_k, top_p: sample from the k most likely tokens, and of those from the smallest set with total probability p.
    seed:         of the sampling: a request gets the same tokens, whatever else is served.
    stop:         tokens, or lists of tokens, that end a sample; they are part of its output.
    cache_salt:   KV-cache blocks are shared only between requests with the same salt.
    """

    prompt: list
    max_new_tokens: int = 16
    seed: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    stop: list = ()
    n: int = 1
    cache_salt: str = ""

    def __post_init__(self):
        object.__setattr__(self, "prompt", _listed(self.prompt))
        object.__setattr__(self, "stop", [[each] if whole(each) else _listed(each) for each in self.stop])

    @property
    def longest(self):
        """Tokens of a sample that are ever in the cache: all but the last."""
        return len(self.prompt) + self.max_new_tokens - 1


def _listed(tokens):
    return [int(each) for each in tokens]


class Sequence:
    """One sample of a request: its tokens, and the blocks where their keys and values lie.

    state:          the ``RequestState`` that it belongs to.
    finish_reason:  "length", "stop", "cancelled"; None: it has not finished.
    """

    def __init__(self, state, sample, table):
        self.state, self.request, self.sample, self.table = state, state.request, sample, table
        self.tokens = [*self.request.prompt]
        self.num_computed_tokens, self.finish_reason = 0, None
        self.random = random.Random(f"{self.request.seed}, {sample}")

    @property
    def output_tokens(self):
        return self.tokens[len(self.request.prompt) :]

    @property
    def num_uncomputed_tokens(self):
        return len(self.tokens) - self.num_computed_tokens

    @property
    def num_seqs(self):
        """Sequences that it is, or will be when its prompt is computed."""
        return self.request.n if len(self.state.sequences) < self.request.n else 1

    def match_prefix(self):
        """Take what the prefix cache has. The last token is computed in any case: its row gives the next."""
        self.num_computed_tokens = self.table.match_prefix(self.tokens[:-1])

    def append(self, token):
        self.tokens.append(token)
        if any(self._ends_with(each) for each in self.request.stop):
            self.finish_reason = "stop"
        elif len(self.tokens) == len(self.request.prompt) + self.request.max_new_tokens:
            self.finish_reason = "length"

    def free(self):
        """Return its blocks: nothing is computed."""
        self.table.clear()
        self.num_computed_tokens = 0

    def _ends_with(self, ending):
        written = len(self.tokens) - len(self.request.prompt)
        return len(ending) <= written and self.tokens[-len(ending) :] == ending


class RequestState:
    """A request while it is served, and after: its sequences."""

    def __init__(self, request):
        self.request, self.sequences = request, []

    @property
    def finished(self):
        return all(each.finish_reason for each in self.sequences)

    @property
    def output_tokens(self):
        """Of each sample."""
        return [each.output_tokens for each in self.sequences]
