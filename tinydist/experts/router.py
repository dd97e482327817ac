"""Routers: a linear layer scores the experts for each token; the best k are chosen, or each expert chooses its tokens.

                    score      chosen by               weights
    Switch          softmax    the best 1              its score                                  normalize=False
    Mixtral         softmax    the best k              their scores, of sum 1
    DeepSeek-V3     sigmoid    the best k of           their scores without the bias, of sum 1,
                               score + bias, in the    times 2.5
                               best groups
    expert choice   softmax    each expert its C       the scores; a token may get no expert, or many

A bias changes the choice and not the weights: so it balances the load and leaves the gradient alone (balance.py moves
it). A group is all experts of a node, say: a token of DeepSeek-V3 goes to 4 of 8 groups, those with the largest sums of
their two best scores, and so to 4 nodes at most. Scores are computed in fp32.

Expert choice looks at all tokens of a batch, later ones too: a decoder that generates cannot.

    2 D E flops a token

Sources: Fedus et al., Switch Transformers, 2021, section 2.1; Jiang et al., Mixtral of Experts, 2024, section 2.1;
DeepSeek-AI, DeepSeek-V3, 2024, section 2.1.2; Zhou et al., Mixture-of-Experts with Expert Choice Routing, 2022.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from ..rules import count, flag, must, one_of, positive, validate, within
from .routing import Routing


class Scores(nn.Module):
    """x [N, D] to logits and scores [N, E], in fp32 at least, in autocast too."""

    def __init__(self, dim, experts, score="softmax", generator=None):
        super().__init__()
        self.dim, self.experts, self.score = dim, experts, score
        self.weight = nn.Parameter(torch.empty(experts, dim).normal_(0, 0.02, generator=generator))

    def scored(self, x):
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"{type(self).__name__}: expected tokens [N, {self.dim}], got {list(x.shape)}")
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(x.to(wide), self.weight.to(wide))
        return logits, logits.softmax(1) if self.score == "softmax" else logits.sigmoid()


@validate(dim=count, experts=count, top_k=count, score=one_of(("softmax", "sigmoid")), normalize=flag, scale=positive)
@validate(bias=flag, groups=count, kept_groups=count, generator=torch.Generator)
class Router(Scores):
    """``router(x)``: the ``Routing`` of x [N, D] to the best ``top_k`` of ``experts``.

    normalize:            the weights of a token have the sum 1.
    scale:                times this.
    bias:                 a buffer [E] is added to the scores for the choice (``update_biases``).
    groups, kept_groups:  experts in groups; a token's are in the best groups only.
    """

    def __init__(
        self, dim, experts, top_k, *, score="softmax", normalize=True, scale=1.0, bias=False, groups=1,
        kept_groups=None, generator=None,
    ):  # fmt: skip
        super().__init__(dim, experts, score, generator)
        self.top_k, self.normalize, self.scale, self.groups = top_k, normalize, float(scale), groups
        self.kept_groups = groups if kept_groups is None else kept_groups
        must("Router", "kept_groups", within(1, groups), self.kept_groups)
        if experts % groups:
            raise ValueError(f"Router: experts ({experts}) must be divisible by groups ({groups})")
        if top_k > experts // groups * self.kept_groups:
            left = f"{self.kept_groups} of {groups} groups of {experts // groups}"
            raise ValueError(f"Router: top_k ({top_k}) experts must be in {left}")
        self.register_buffer("bias", torch.zeros(experts) if bias else None)
        self.seen = [0] * experts  # assignments since the bias was moved

    def forward(self, x):  # [N, D]
        logits, scores = self.scored(x)
        chosen, known = self.choice(scores.detach())  # [N, k]
        weights = scores.gather(1, chosen)
        if self.normalize:
            weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
        return Routing.of_choices(chosen, weights * self.scale, self.experts, known=known, scores=scores, logits=logits)

    def choice(self, scores):
        """The experts of each token [N, k]; and how many tokens each expert gets, if that needs no look."""
        wanted = scores if self.bias is None else scores + self.bias
        if self.kept_groups < self.groups:
            wanted = self.in_the_best_groups(wanted)
        return wanted.topk(self.top_k, sorted=False).indices, None

    def in_the_best_groups(self, wanted):
        grouped = wanted.unflatten(1, (self.groups, -1))  # [N, G, E/G]
        worth = grouped.topk(min(2, grouped.shape[2])).values.sum(2)  # [N, G]
        best = torch.zeros_like(worth, dtype=torch.bool).scatter(1, worth.topk(self.kept_groups).indices, True)
        return grouped.masked_fill(~best[:, :, None], -math.inf).flatten(1)


class EvenRouter(Router):
    """Token t's experts are the k from t k on, in turn: all equally loaded, for measurements. (Megatron-LM has it as
    ``--moe-router-force-load-balancing``.) Its counts need no values, so it runs on fake tensors."""

    def choice(self, scores):
        N, E, k = *scores.shape, self.top_k
        chosen = torch.arange(N * k, device=scores.device).view(N, k) % E
        each, more = divmod(N * k, E)
        return chosen, (*[each + 1] * more, *[each] * (E - more))


@validate(dim=count, experts=count, capacity_factor=positive, generator=torch.Generator)
class ExpertChoice(Scores):
    """Each expert takes the N/E ``capacity_factor`` tokens with the highest scores: balanced by definition."""

    def __init__(self, dim, experts, capacity_factor=2.0, *, generator=None):
        super().__init__(dim, experts, generator=generator)
        self.capacity_factor = capacity_factor

    def forward(self, x):  # [N, D]
        logits, scores = self.scored(x)
        N, E = scores.shape
        C = min(N, math.ceil(N / E * self.capacity_factor))
        weights, tokens = scores.T.topk(C)  # [E, C]
        experts = torch.arange(E, device=x.device).repeat_interleave(C)
        more = dict(known=(C,) * E, scores=scores, logits=logits)
        return Routing.of(tokens.flatten(), experts, weights.flatten(), N, E, E, **more)
