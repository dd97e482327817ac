"""Sampling: the next token of each sequence, from its own logits and its own dice.

    logits / temperature --> the k likeliest --> of those the fewest whose share is p --> one of them, at random

A draw is one number from 0 to 1, which falls into a token's share. It comes from the sequence's own generator, so that
what is written depends on the request alone. Temperature 0 is the limit: the likeliest.

Source: Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, section 3.1 (top-p).
"""

import torch


def next_tokens(logits, sequences):
    """For logits [R, V] of as many sequences: a list of tokens. Raises ``ValueError`` where there is a NaN."""
    wrong = logits.isnan().any(-1)
    if wrong.any():
        raise ValueError(f"next_tokens: the model gives NaN for sequence {wrong.int().argmax()} of {len(sequences)}")
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
