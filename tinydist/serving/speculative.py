"""Speculative decoding: a small model drafts, a large one verifies all of it at once, and the text is the large one's.

    draft      x1 ~ q1   x2 ~ q2   x3 ~ q3          K steps of a small model, each reading few weights
    verify     p1        p2        p3        p4     one step of the large one, K + 1 rows: it reads its weights once
    accept     x1 with probability min(1, p1(x1) / q1(x1)), then x2, ...
    else       a token of max(0, p - q), normalized, and the rest of the draft is forgotten; all accepted: one of p4

A token x appears with probability q min(1, p/q) + (1 - sum of min(p, q)) max(0, p - q) / sum of max(0, p - q) = p: it
does not matter how bad the draft is, only how long it takes. Greedy is the case in which p and q have one token each.

    a = sum of min(p, q)      how often a drafted token is accepted; independent of one another, a round gives on the
    (1 - a^(K+1)) / (1 - a)   mean so many tokens, and is so many times as fast, if a draft costs c of a step:
    (1 - a^(K+1)) / ((1 - a) (K c + 1))

Decoding one sequence is bound by memory: K + 1 rows take the time of one. In large batches they do not, and it pays
less. Forgetting costs nothing: what is in a cache behind its length is seen by nobody, and written over.

Sources: Leviathan, Kalman, Matias 2023, Fast Inference from Transformers via Speculative Decoding, algorithm 1,
equation 1, theorem 3.8; Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative Sampling.
"""

from dataclasses import dataclass

import torch

from ..attention import Decoder
from ..rules import amount, floats, listed, part, takes, within
from .sampling import tempered

ahead_of_it = within(0, 1000)


@takes(p=floats, q=floats)
def acceptance(p, q):
    """How often a token of q is accepted as one of p: sum of min(p, q), over the last dim."""
    return torch.minimum(p, q).sum(-1)


@takes(acceptance=part, ahead=ahead_of_it)
def expected_tokens(acceptance, ahead):
    """Of a round with ``ahead`` drafted tokens, each accepted so often: 1 + a + a^2 + ... + a^K."""
    return sum(acceptance**power for power in range(ahead + 1))


@takes(acceptance=part, ahead=ahead_of_it, cost=amount)
def speedup(acceptance, ahead, cost):
    """Against decoding without a draft; ``cost``: a step of the draft, in steps of the target."""
    return expected_tokens(acceptance, ahead) / (ahead * cost + 1)


@takes(drafted=torch.Tensor, q=floats, p=floats, draws=floats)
def verify(drafted, q, p, draws):
    """What becomes of ``drafted`` [K], drawn from q [K, V], where the target has p [K + 1, V]: a list of tokens.

    draws [K + 1]:  random numbers from 0 to 1, used for nothing else: one to accept each, one for the last token.
    """
    K, V = len(drafted), p.shape[-1]
    for name, tensor, shape in (("q", q, (K, V)), ("p", p, (K + 1, V)), ("draws", draws, (K + 1,))):
        if tensor.shape != shape:
            raise ValueError(f"verify: {K} drafted tokens need {name} {list(shape)}, got {list(tensor.shape)}")
    if drafted.dtype != torch.long or ((drafted < 0) | (drafted >= V)).any():
        raise ValueError(f"verify: drafted must be integers from 0 to {V - 1}")
    at = torch.arange(K), drafted
    refused = (draws[:K] * q[at] >= p[:K][at]).nonzero().flatten().tolist()
    taken = refused[0] if refused else K
    left = (p[taken] - q[taken]).clamp(min=0) if refused else p[K]
    return [*drafted[:taken].tolist(), chosen(left, draws[K])]


def chosen(weights, draw):
    """An index, as often as its share of ``weights`` [V]."""
    until = weights.cumsum(-1)
    return min(int(torch.searchsorted(until, draw * until[-1], right=True)), int(weights.nonzero().max()))


@dataclass(frozen=True)
class Written:
    tokens: list  # the new ones
    accepted: list  # how many drafted tokens, by round
    rounds: int  # steps of the target


@takes(target=Decoder, draft=Decoder, prompt=torch.Tensor, count=listed, ahead=ahead_of_it, temperature=amount)
@takes(generator=torch.Generator)
@torch.no_grad()
def speculate(target, draft, prompt, count, ahead=4, temperature=1.0, generator=None):
    """``count`` tokens after ``prompt`` [T], distributed as ``target`` alone would write them: a ``Written``.

    target, draft:  of the same vocabulary.
    ahead:          tokens that are drafted in a round.
    temperature:    0: the likeliest token always.
    """
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(f"speculate: takes a prompt [T] of one token at least, got {list(prompt.shape)}")
    sizes = target.config.vocab_size, draft.config.vocab_size
    if sizes[0] != sizes[1]:
        raise ValueError(f"speculate: the target knows {sizes[0]} tokens, and the draft {sizes[1]}")
    capacity = len(prompt) + count
    target, draft = Reader(target, capacity, temperature), Reader(draft, capacity, temperature)
    tokens, accepted = prompt.tolist(), []
    while len(tokens) < capacity:
        K, known, q = min(ahead, capacity - len(tokens) - 1), len(tokens), []
        for _ in range(K):
            q.append(draft.read(tokens)[-1])
            tokens.append(chosen(q[-1], draw(1, generator)[0]))
        p = target.read(tokens)[-K - 1 :]  # [K + 1, V]
        drafted = torch.tensor(tokens[known:], dtype=torch.long)
        taken = verify(drafted, torch.stack(q) if q else p[:0], p, draw(K + 1, generator))
        tokens[known:] = taken
        accepted.append(len(taken) - 1)
        for reader in (target, draft):
            reader.forget(len(tokens) - 1)
    return Written(tokens[len(prompt) :], accepted, len(accepted))


def draw(number, generator):
    return torch.rand(number, dtype=torch.float64, generator=generator)


class Reader:
    """A model, and what it has read of one sequence."""

    def __init__(self, model, capacity, temperature):
        self.model, self.temperature = model, temperature
        self.caches, self.length = model.caches(1, capacity), 0

    def read(self, tokens):
        """Of the tokens that it has not read: how likely each token is to be next, [how many, V]."""
        logits = self.model(torch.tensor([tokens[self.length :]]), self.caches)[0]
        self.length = len(tokens)
        return probabilities(logits, self.temperature)

    def forget(self, length):
        """All that it read behind so many tokens."""
        self.length = min(self.length, length)
        for cache in self.caches:
            cache.lengths = [self.length]


def probabilities(logits, temperature):
    """Of each token, in float64. Temperature 0: all of it on the likeliest."""
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    return tempered(logits, float(temperature)).softmax(-1)
