"""A routing: which expert each token goes to, as a flat list of assignments; and a count of what became of them.

    tokens   0  0  1  1  2  2          token 0 goes to experts 3 and 0,
    experts  3  0  3  1  3  2          and its output is .7 of the one's and .3 of the other's
    weights .7 .3 .6 .4 .9 .1

    assignments = combined + dropped   for every layer in every forward; else a token was lost

A list, not k columns: assignments may be dropped, and where experts choose, tokens have different numbers of them.
"""

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, eq=False)
class Routing:
    """Of N tokens to E experts: A assignments that are left of ``assigned``."""

    tokens: torch.Tensor  # int64 [A]
    experts: torch.Tensor  # int64 [A]
    weights: torch.Tensor  # [A]
    num_tokens: int
    num_experts: int
    assigned: int  # before any was dropped
    width: int  # experts of a token, at most
    scores: torch.Tensor | None = None  # [N, E]: of all experts, for losses
    logits: torch.Tensor | None = None  # [N, E]
    load: torch.Tensor | None = None  # int64 [E]: assignments of each expert, before any was dropped
    known: tuple | None = None  # assignments of each expert, if no tensor must be read: fake ones have no values

    @classmethod
    def of_choices(cls, chosen, weights, num_experts, known=None, **more):
        """``chosen``, ``weights`` [N, k]: the experts of each token."""
        N, k = chosen.shape
        tokens = torch.arange(N, device=chosen.device).repeat_interleave(k)
        return cls.of(tokens, chosen.flatten(), weights.flatten(), N, num_experts, k, known=known, **more)

    @classmethod
    def of(cls, tokens, experts, weights, num_tokens, num_experts, width, **more):
        """Of assignments, one for each item of three tensors [A]."""
        load = torch.zeros(num_experts, dtype=torch.int64, device=experts.device)
        load = load.scatter_add(0, experts, torch.ones_like(experts))  # [E]
        return cls(tokens, experts, weights, num_tokens, num_experts, len(experts), width, load=load, **more)

    @property
    def dropped(self):
        return self.assigned - len(self.tokens)

    def kept(self, mask):
        """The assignments for which ``mask`` [A] is true; the others are dropped."""
        left = mask.nonzero().squeeze(1)
        tokens, experts, weights = self.tokens[left], self.experts[left], self.weights[left]
        return replace(self, tokens=tokens, experts=experts, weights=weights, known=None)

    def detached(self):
        """The same without a graph."""
        differentiable = {"weights": self.weights, "scores": self.scores, "logits": self.logits}
        return replace(self, **{name: each.detach() for name, each in differentiable.items() if each is not None})

    def counts(self):
        """By expert: how many assignments are left. A list: it says how large messages are."""
        if self.known is not None:
            return list(self.known)
        return torch.bincount(self.experts, minlength=self.num_experts).tolist()


@dataclass(frozen=True)
class Load:
    """What a layer did with the assignments of its last forward, on this rank."""

    assigned: int
    combined: int
    dropped: int
    by_expert: tuple  # assigned to each of all E, by this rank's tokens
    computed: tuple  # rows that each of this rank's own experts computed, whoever had sent them

    def check(self, what):
        if self.assigned != self.combined + self.dropped:
            became = f"{self.combined} combined + {self.dropped} dropped"
            raise RuntimeError(f"{what}: a token was lost: {self.assigned} assignments, but {became}")
        return self


def places(keys, num_keys):
    """[A] of whole numbers below ``num_keys`` to [A]: how many with the same key come before."""
    order = keys.argsort(stable=True)
    counts = torch.bincount(keys, minlength=num_keys)
    begins = counts.cumsum(0) - counts
    numbered = torch.arange(len(keys), device=keys.device) - begins[keys[order]]
    return torch.empty_like(numbered).scatter(0, order, numbered)
