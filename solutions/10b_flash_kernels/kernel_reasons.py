"""Why the output of a kernel is wrong: where the record of its programs tells, or another formula gives the same."""

import math

import torch

from tinydist.lab.differences import close

UNTOUCHED = -1e30  # what ``out`` has before
RESCALED = "when a tile brings a larger maximum, what was added up before counts from the old one"


# From the record.


def not_stored(trial, got, want, own, pick):
    M = trial.case.arguments(0)[4]
    rows = (got[0] == UNTOUCHED).all(1).nonzero().flatten().tolist()
    return f"Program {rows[0] // M} stores nothing in row {rows[0]} of out" if rows else None


def not_loaded(trial, got, want, own, pick):
    q, k, _, causal, M, _ = trial.case.arguments(0)
    programs = math.ceil(len(q) / M)
    there = {(program, name): set() for program in range(programs) for name in "qkv"}
    for load in trial.returned[0].record.loads:
        if load.name in "qkv":
            there[load.program[0], load.name].update(range(load.rows.start, load.rows.stop))
    for (program, name), rows in there.items():
        stop = min(len(k), (program + 1) * M + len(k) - len(q)) if causal else len(k)
        missing = sorted(set(range(stop)) - rows)
        if missing and name != "q":
            return (
                f"A tile is skipped: program {program} does not load row {missing[0]} of {name}, which a query of it "
                "sees. Where do its tiles begin, and where do they end?"
            )
    return None


UNDEFINED = {
    "exp of NaN": "exp is taken of NaN, and -inf - -inf is NaN. Where a query sees nothing of a tile, and has seen "
    "nothing before, its maximum is -inf: do not load such a tile, or subtract a finite number there",
    "exp is inf": "exp gives inf: its argument has to be 0 at most. For the weights it is a score minus the largest "
    "so far, of all tiles; for what was added up before it is the old maximum minus the new one",
    "0 / 0": "a total of 0 is divided by, and 0 / 0 is NaN. What was subtracted from the scores before exp?",
}


def undefined(trial, got, want, own, pick):
    found = trial.returned[0].record.undefined
    if not found or got[0].isfinite().all():
        return None
    program, kind = found[0]
    return f"In program {program}, {UNDEFINED[kind]}"


# From other formulas.


def another_formula(trial, got, want, own, pick):
    given = trial.case.arguments(0)
    for others in (other_scores, other_masks, other_sums):
        for words, result in others(*given):
            if close(got[0], result.float(), trial.case.rtol):
                return words
    return None


def scores_of(q, k):
    return q.double() @ k.double().T / math.sqrt(q.shape[1])


def seen_by(q, k, causal, M):
    """By query and key: how far the key stands before the query; is it loaded; is it seen?"""
    rows, columns = torch.arange(len(q)), torch.arange(len(k))
    beside = rows + len(k) - len(q)
    far = beside[:, None] - columns
    if not causal:
        return far, far.isfinite(), far.isfinite()
    ends = (rows // M + 1) * M + len(k) - len(q)
    loaded = columns < ends[:, None]
    return far, loaded, (far >= 0) & loaded


def softmax(scores, seen, v):
    return scores.masked_fill(~seen, -math.inf).softmax(1) @ v.double()


def other_scores(q, k, v, causal, M, N):
    seen, scores = seen_by(q, k, causal, M)[2], scores_of(q, k)
    factors = {
        "The scores are not multiplied by `scale`": math.sqrt(q.shape[1]),
        "The scores are multiplied by `scale` twice": 1 / math.sqrt(q.shape[1]),
        "exp(x) is exp2(x log2(e)): the scores lack the log2(e), which is 1.4427": math.log(2),
        "The scores are multiplied by log2(e), which is for exp2: exp does without": 1 / math.log(2),
    }
    for words, factor in factors.items():
        yield words, softmax(scores * factor, seen, v)


def other_masks(q, k, v, causal, M, N):
    if not causal:
        return
    (far, loaded, _), scores = seen_by(q, k, causal, M), scores_of(q, k)
    missing = "The causal mask is missing: a query sees keys behind its own"
    yield missing, softmax(scores, loaded, v)
    yield missing, softmax(scores, far.isfinite(), v)
    yield "The mask is off by one: a query sees the key after its own, too", softmax(scores, (far >= -1) & loaded, v)
    first = (
        "The first query stands beside the first key here, where the last one should stand beside the last key: row "
        "+ S - T"
    )
    yield first, softmax(scores, far >= len(k) - len(q), v)
    hidden = "Hidden keys have a score of 0, and exp(0) is 1: give them a score of -inf"
    yield hidden, softmax(scores * (far >= 0), loaded, v)


def other_sums(q, k, v, causal, M, N):
    """Tile by tile, with one mistake each."""
    if causal:
        return
    scores, values = scores_of(q, k).split(N, 1), v.double().split(N)
    old = torch.full((len(q), 1), -math.inf, dtype=torch.float64)
    total = raw = output = late = divided = torch.zeros(len(q), 1, dtype=torch.float64)
    for tile, each in zip(scores, values):
        new = torch.maximum(old, tile.amax(1, keepdim=True))
        weights, shrink = (tile - new).exp(), (old - new).exp()
        total = total * shrink + weights.sum(1, keepdim=True)
        raw = raw + weights.sum(1, keepdim=True)
        output = output * shrink + weights @ each
        late = (late + weights @ each) * shrink
        divided = (divided * shrink + weights @ each) / total
        old = new
    last = scores[-1].softmax(1) @ values[-1]
    yield "This is attention over the last tile alone: is the new maximum kept for the next round?", last
    yield f"The total is not rescaled: {RESCALED}", output / raw
    yield "The output is rescaled after the tile is added: rescale what was there before it, then add", late / total
    yield "The output is divided in each round, and such parts do not add up: divide once, before the store", divided


WHY = (not_stored, not_loaded, undefined, another_formula)
