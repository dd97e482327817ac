"""Speculative decoding: a draft model proposes tokens, which the target model verifies in one pass (lossless).

    draft      x1 ~ q1   x2 ~ q2   x3 ~ q3          num_draft_tokens K (gamma in the paper): K small steps
    verify     p1        p2        p3        p4     one step of the large one, K + 1 rows: it reads its weights once
    accept     x1 with probability min(1, p1(x1) / q1(x1)), then x2, ...
    else       a token of max(0, p - q), normalized, and the rest of the draft is dropped; all accepted: one of p4

A token x appears with probability q min(1, p/q) + (1 - sum of min(p, q)) max(0, p - q) / sum of max(0, p - q) = p: the
draft affects only the speed, not the distribution. Greedy is the case in which p and q have one token each.

    a = sum of min(p, q)      the acceptance rate of drafted tokens; if they are independent, a round gives on
    (1 - a^(K+1)) / (1 - a)   average so many tokens, and is so many times as fast, if a draft costs c of a step:
    (1 - a^(K+1)) / ((1 - a) (K c + 1))

Decoding one sequence is memory-bound: K + 1 rows take the time of one. In large batches they do not, and the speedup is
smaller. Rejection costs nothing: cache entries beyond the length are masked, and overwritten.

Sources: Leviathan, Kalman, Matias 2023, Fast Inference from Transformers via Speculative Decoding, algorithm 1,
equation 1, theorem 3.8; Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative Sampling.
"""

from dataclasses import dataclass

import torch

from ..attention import Decoder
from ..rules import amount, floats, listed, part, validate, within
from .sampling import tempered

draft_length = within(0, 1000)


@validate(acceptance=part, num_draft_tokens=draft_length)
def expected_tokens(acceptance, num_draft_tokens):
    """Expected tokens per round at this acceptance rate: 1 + a + a^2 + ... + a^K."""
    return sum(acceptance**power for power in range(num_draft_tokens + 1))


@validate(acceptance=part, num_draft_tokens=draft_length, cost=amount)
def speedup(acceptance, num_draft_tokens, cost):
    """Over decoding without a draft; ``cost``: a step of the draft, in steps of the target."""
    return expected_tokens(acceptance, num_draft_tokens) / (num_draft_tokens * cost + 1)


@validate(drafted=torch.Tensor, q=floats, p=floats, draws=floats)
def verify(drafted, q, p, draws):
    """Accept or reject ``drafted`` [K], sampled from q [K, V], against the target's p [K + 1, V]. Returns tokens.

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
class Speculation:
    tokens: list  # the new ones
    accepted: list  # how many drafted tokens, by round
    rounds: int  # steps of the target


@validate(target=Decoder, draft=Decoder, prompt=torch.Tensor, count=listed, num_draft_tokens=draft_length)
@validate(temperature=amount, generator=torch.Generator)
@torch.no_grad()
def speculate(target, draft, prompt, count, num_draft_tokens=4, temperature=1.0, generator=None):
    """``count`` tokens after ``prompt`` [T], distributed as ``target`` alone would generate them: a ``Speculation``.

    target, draft:     of the same vocabulary.
    num_draft_tokens:  number of draft tokens per round.
    temperature:       0: greedy.
    """
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(f"speculate: prompt must be [T] with at least one token, got {list(prompt.shape)}")
    sizes = target.config.vocab_size, draft.config.vocab_size
    if sizes[0] != sizes[1]:
        raise ValueError(f"speculate: vocab_size of target ({sizes[0]}) and draft ({sizes[1]}) must be equal")
    capacity = len(prompt) + count
    target, draft = Reader(target, capacity, temperature), Reader(draft, capacity, temperature)
    tokens, accepted = prompt.tolist(), []
    while len(tokens) < capacity:
        K, known, q = min(num_draft_tokens, capacity - len(tokens) - 1), len(tokens), []
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
    return Speculation(tokens[len(prompt) :], accepted, len(accepted))


def draw(number, generator):
    return torch.rand(number, dtype=torch.float64, generator=generator)


class Reader:
    """A model with its KV cache of one sequence."""

    def __init__(self, model, capacity, temperature):
        self.model, self.temperature = model, temperature
        self.caches, self.length = model.caches(1, capacity), 0

    def read(self, tokens):
        """The distribution of the next token after each one that it has not read, [n, V]."""
        logits = self.model(torch.tensor([tokens[self.length :]]), self.caches)[0]
        self.length = len(tokens)
        return probabilities(logits, self.temperature)

    def forget(self, length):
        """All but the first ``length`` tokens."""
        self.length = min(self.length, length)
        for cache in self.caches:
            cache.lengths = [self.length]


def probabilities(logits, temperature):
    """Of each token, in float64. Temperature 0: 1 for the most likely."""
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    return tempered(logits, float(temperature)).softmax(-1)
