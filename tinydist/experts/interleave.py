"""Two microbatches in turn: while the tokens of one travel, the other computes.

    microbatch 1    attention, router | dispatch . . . . . | experts           | combine . . . . .
    microbatch 2                      | attention, router  | dispatch . . . .  | experts         | ...

A forward is a generator that yields where it would wait. Whoever has several runs each until it yields, in turn.
Backward comes in the reverse order, and its transfers overlap in the same way (all_to_all.py). The price is the memory
of a second microbatch. (``paired`` has the backward of one beside the forward of another, and so holds less.)
Source: DeepSeek-AI, DeepSeek-V3, 2024, section 3.4.1 (two microbatches while serving).
"""

from ..rules import each_of, validate


def finished(phases):
    """What a generator returns, once it has run to its end."""
    while True:
        try:
            next(phases)
        except StopIteration as end:
            return end.value


def interleaved(*all_phases):
    """What several generators return. Each runs to where it yields, then the next one."""
    results, running = [None] * len(all_phases), dict(enumerate(all_phases))
    while running:
        for number, phases in [*running.items()]:
            try:
                next(phases)
            except StopIteration as end:
                results[number] = end.value
                del running[number]
    return results


def phases_of(model, tokens):
    """A GPT's forward, as a generator of its MoE layers' phases. Returns logits [B, T, V]."""
    x = model.dropout(model.embedding(tokens) + model.position.weight[: tokens.shape[1]])  # [B, T, D]
    for block in model.blocks:
        x = x + block.dropout(block.attention(block.attention_norm(x)))
        normed = block.mlp_norm(x)
        out = (yield from block.mlp.phases(normed)) if hasattr(block.mlp, "phases") else block.mlp(normed)
        x = x + block.dropout(out)
    return model.head(model.norm(x))


@validate(microbatches=each_of(tuple))
def losses_of(model, microbatches):
    """The losses of ``microbatches``, (tokens, targets) each, run in turn; their sum's backward overlaps, too. Without
    auxiliary losses: layers know their last forward alone. A bias balances both microbatches."""
    logits = interleaved(*(phases_of(model, tokens) for tokens, _ in microbatches))
    return [
        model.cross_entropy(each.flatten(0, 1), targets.flatten()) for each, (_, targets) in zip(logits, microbatches)
    ]
