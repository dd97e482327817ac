"""Sampling: the next token of each sequence, from its logits, with a per-sequence random generator.

    logits / temperature --> top k --> the smallest set with probability p --> one of them, at random

Each sample uses one uniform random number (inverse transform), from the sequence's own generator, so that its output
depends only on the request. Temperature 0 is greedy.

Source: Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, section 3.1 (top-p).
"""

import torch


def next_tokens(logits, sequences):
    """For logits [R, V] of as many sequences: a list of tokens. Raises ``ValueError`` where there is a NaN."""
    wrong = logits.isnan().any(-1)
    if wrong.any():
        raise ValueError(f"next_tokens: the logits are NaN for sequence {wrong.int().argmax()} of {len(sequences)}")
    tokens = logits.argmax(-1).tolist()
    drawn = [i for i, each in enumerate(sequences) if each.request.temperature > 0]
    if drawn:
        for i, token in zip(drawn, _draw(logits[drawn], [sequences[i] for i in drawn])):
            tokens[i] = token
    return tokens


def tempered(logits, temperature):
    """Logits / temperature, moved so that the largest is 0: else a temperature close to 0 makes several infinite."""
    logits = logits.double()
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def _draw(logits, sequences):
    V = logits.shape[1]
    asked = [each.request for each in sequences]
    columns = [[each.temperature, each.top_k or V, each.top_p] for each in asked]
    temperature, top_k, top_p = torch.tensor(columns, dtype=torch.float64, device=logits.device).T[..., None]
    scores, tokens = tempered(logits, temperature).sort(descending=True, stable=True)
    shares = scores.masked_fill(torch.arange(V, device=logits.device) >= top_k, -torch.inf).softmax(-1)
    before = shares.cumsum(-1) - shares
    shares = shares.masked_fill(before >= top_p, 0)
    ends = shares.cumsum(-1)
    draws = torch.tensor([each.random.random() for each in sequences], dtype=torch.float64, device=logits.device)
    chosen = (ends <= draws[:, None] * ends[:, -1:]).sum(-1, keepdim=True)
    last = (shares > 0).sum(-1, keepdim=True) - 1
    return tokens.gather(1, chosen.minimum(last))[:, 0].tolist()
