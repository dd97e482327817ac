"""Flash attention with four bugs, all of which many inputs do not show."""

import math

import torch

from ...alone import Calls
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import came_to_its_end
from ...values import kind
from ...verdict import Property
from .compare import alike, first_difference, one_tensor, untouched_arguments
from .lengths import CASES, E, mistaken
from .own_work import own_work
from .tile_costs import holds_tiles, visits

TILES = 10  # of scores and output: what may be held besides out


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls = Calls(watched, [lengths.input() for lengths in CASES])
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("runs", "for all lengths, also with a short last tile", lambda: runs(calls))
    yield Property("rescaling", "a new maximum changes the unit", calls.each(attended, in_tiles))
    yield Property("low", "scores of -2048", calls.each(attended, about("low")))
    yield Property("diagonal", "all tiles that a query sees are visited", calls.each(attended, diagonal))
    yield Property("nothing", "a query that sees no key gets zeros", calls.each(zeros, about("see nothing")))
    yield Property("lengths", "short tiles, longer than all; 20 of them", calls.each(attended, lengths))
    yield Property("NaN", "comes out where it is seen, and not where it is not", calls.each(spread, about("NaN")))
    yield Property("visits", "each tile once, by two products", calls.each(visited))
    yield Property("memory", "a tile of scores at a time", calls.each(held, about("many")))


def about(words):
    return lambda case: words in case.about


def in_tiles(case):
    return any(words in case.about for words in ("one tile", "three tiles", "large", "more keys"))


def lengths(case):
    return any(words in case.about for words in ("short", "longer", "many"))


def diagonal(case):
    return "corner" in case.about or "tiles of one" in case.about


def runs(calls):
    for trial in calls.all:
        if trial.stubbed:
            raise NotImplementedError
    calls.each(ended)()
    calls.each(form)()


def ended(trial):
    lengths = trial.case.expected[0]
    try:
        came_to_its_end(trial)
    except Wrong as wrong:
        rest = lengths.queries % lengths.tile
        if rest and isinstance(trial.error, RuntimeError) and "size" in str(trial.error):
            raise Wrong(
                f"{wrong}\n{lengths.queries} queries in tiles of {lengths.tile}: the last tile has {rest}. Which "
                "tensors beside it have the length of a whole tile?"
            ) from None
        raise


def form(trial):
    got = trial.returned[0]
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"it returned {kind(got)}, where the output, a tensor, is right")
    one_tensor("out", got, (trial.case.expected[0].queries, E))
    untouched_arguments(trial, "qkv")


def attended(trial):
    lengths, expected = trial.case.expected
    got = trial.returned[0]
    if not alike(got, expected, rtol=lengths.rtol):
        raise Wrong(f"{first_difference('out', got, expected)}.\n{cause(lengths, got, expected)}")


def cause(lengths, got, expected):
    for words, wrong in mistaken(*lengths.tensors(), lengths.tile).items():
        if alike(got, wrong, nan=True):
            return words
    if lengths.unlike:
        return lengths.unlike
    first = int((~torch.isclose(got, expected, rtol=1e-4, atol=1e-5)).any(1).nonzero()[0])
    if 0 < lengths.queries // lengths.tile * lengths.tile <= first:
        return "Only the last tile of queries is wrong, which is short"
    p = first + lengths.keys - lengths.queries
    return f"Query {first} is the first that is wrong. It stands at position {p}, and sees the keys 0 to {p}"


def zeros(trial):
    lengths, _ = trial.case.expected
    got, blind = trial.returned[0], lengths.queries - lengths.keys
    if got[:blind].isnan().any():
        first = int(got.isnan().any(1).nonzero()[0])
        raise Wrong(
            f"out of query {first} is NaN. There are {blind} more queries than keys, so the first {blind} see nothing: "
            "their maximum is -inf, and -inf - -inf is NaN. What do you subtract instead, so that exp gives 0?"
        )
    if got[:blind].any():
        first = int(got[:blind].any(1).nonzero()[0])
        raise Wrong(
            f"out of query {first} is {[round(x, 4) for x in got[first].tolist()]}, and it sees no key: zeros are "
            "right. The mean over all values, or over those of a tile, is what equal weights give it"
        )
    attended(trial)


def spread(trial):
    """The last value is NaN."""
    lengths, got = trial.case.expected[0], trial.returned[0]
    before = (lengths.queries - 1) // lengths.tile * lengths.tile
    if got[:before].isnan().any():
        raise Wrong(
            f"out of query {int(got.isnan().any(1).nonzero()[0])} is NaN. The last value is, but its tile is right of "
            f"the diagonal for queries before {before}: it begins after the last query of theirs, and need not be "
            "read. You do, and 0 times NaN is NaN"
        )
    if not got[-1].isnan().all():
        raise Wrong(
            f"out of the last query is {got[-1, 0].item():.4g}, where NaN is right: it sees the last value, which is "
            "NaN. What hides it (nan_to_num?) mends no bug, and hides from its reader that the model has diverged"
        )


def visited(trial):
    visits(trial, trial.case.expected[0].work)


def held(trial):
    lengths, expected = trial.case.expected
    numbers = TILES * lengths.tile * (lengths.tile + E + 1) + expected.numel()
    holds_tiles(trial, numbers, lengths.queries * lengths.keys)


@exercise(
    chapter="10_flash_attention",
    title="Find four bugs",
    minutes=25,
    difficulty=3,
    targets={
        "runs": "lengths that do not divide into tiles, also tiles that are longer than all",
        "values": "causal attention, with as many queries as keys, with fewer, with more; also with scores of -2048. "
        "NaN in a value that is seen comes out again",
        "nothing": "zeros for a query that sees no key, no NaN",
        "visits": "each tile of `tile` queries and keys once, none right of the diagonal",
        "memory": "a tile of scores at a time, also with 160 keys",
    },
    hints=[
        "The first one raises an error. Which tensors are made for a whole tile, and how many queries has the last?",
        "Follow what was added up when a tile brings a larger maximum: from which maximum does total count, from "
        "which output?",
        "positions[-1] is where the last query of the tile stands. Which is the first key that it does not see? Look "
        "for lengths where a tile of keys begins right there.",
        "Where every score of a query was masked so far, its maximum is -inf. Subtract "
        "highest.clamp(min=torch.finfo(highest.dtype).min) instead, in both exponents: exp(-inf - a finite number) "
        "is 0.",
    ],
    why="Each of these bugs is silent on some lengths: on the ones in a first test, often. That is why attention "
    "kernels are tested with lengths around the tile, with more and with fewer queries than keys, and against the "
    "naive one in fp64.",
    check=properties,
)
def mended_flash(q, k, v, tile):
    """Mend this flash attention: it has four bugs.

    Causal attention of q [T, d], k [S, d], v [S, e] in tiles of ``tile`` queries and as many keys. The last query
    stands beside the last key: query i at position i + S - T, and it sees the keys up to there. One that sees none gets
    zeros.
    """
    out = torch.zeros(len(q), v.shape[1])
    for start in range(0, len(q), tile):
        queries = q[start : start + tile] / math.sqrt(q.shape[1])
        positions = torch.arange(start, start + tile)[:, None] + len(k) - len(q)
        maximum = torch.full((tile, 1), -math.inf)
        total, output = torch.zeros(tile, 1), torch.zeros(tile, v.shape[1])
        for first in range(0, len(k), tile):
            if first >= positions[-1]:
                break
            keys, values = k[first : first + tile], v[first : first + tile]
            scores = queries @ keys.T
            scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
            highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
            weights = (scores - highest).exp()
            total = total * (maximum - highest).exp() + weights.sum(1, keepdim=True)
            output = output + weights @ values
            maximum = highest
        out[start : start + tile] = output / total.clamp(min=1)  # the maximum alone gives 1
    return out
