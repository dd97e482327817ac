"""Flash attention with four bugs, all of which many inputs do not show."""

import math
from dataclasses import dataclass
from functools import partial

import torch

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import came_to_its_end
from ...values import kind
from ...verdict import Property
from .compare import alike, first_difference, one_tensor
from .own_work import own_work
from .rows import row
from .tile_costs import holds_tiles, visits

D, E = 4, 3
TILES = 10  # of scores and output: what may be held besides out


@dataclass(frozen=True)
class Lengths:
    about: str
    queries: int
    keys: int
    tile: int
    size: float = 1.0

    @property
    def visible(self):
        """Positions of keys in tiles that are not right of the diagonal, of each tile of queries."""
        lasts = [min(first + self.tile, self.queries) for first in range(0, self.queries, self.tile)]
        seen = [max(0, last + self.keys - self.queries) for last in lasts]
        return [min(self.keys, math.ceil(each / self.tile) * self.tile) for each in seen]

    def tensors(self):
        generator = torch.Generator().manual_seed(3)
        shapes = (self.queries, D), (self.keys, D), (self.keys, E)
        q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
        return 2 * self.size * q, k, v

    def input(self):
        given = self.tensors()
        about = f"{self.queries} queries, {self.keys} keys, tiles of {self.tile} ({self.about})"
        return input_of(partial(copied, (*given, self.tile)), about, (self, naive(*given)))


def naive(q, k, v, window=0):
    """Causal attention in float64. ``window``: keys beyond a query's own position that it sees, or does not."""
    q, k, v = q.double(), k.double(), v.double()
    p = torch.arange(len(q))[:, None] + len(k) - len(q)
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(torch.arange(len(k)) > p + window, -math.inf)
    return (scores.softmax(1).nan_to_num() @ v).float()


CASES = (
    Lengths("one tile", 4, 4, 4),
    Lengths("three tiles by three", 12, 12, 4),
    Lengths("large scores", 8, 8, 4, size=100.0),
    Lengths("more keys", 8, 16, 4),
    Lengths("the diagonal leaves by a tile's corner", 4, 9, 4),
    Lengths("tiles of one", 3, 3, 1),
    Lengths("more queries, of which some see nothing", 8, 6, 4),
    Lengths("more queries, of which two tiles see nothing", 12, 2, 4),
    Lengths("short last tiles", 10, 10, 4),
    Lengths("short last tiles, other lengths", 5, 11, 3),
    Lengths("a tile longer than all", 3, 3, 8),
    Lengths("many keys", 8, 512, 8),
)


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls = Calls(watched, [lengths.input() for lengths in CASES])
    yield Property("runs", "for all lengths, also with a short last tile", lambda: runs(calls))
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("rescaling", "a new maximum changes the unit", calls.each(attended, in_tiles))
    yield Property("diagonal", "all tiles that a query sees are visited", calls.each(attended, diagonal))
    yield Property("nothing", "a query that sees no key gets zeros", calls.each(zeros, about("see nothing")))
    yield Property("lengths", "short tiles, longer than all; 64 of them", calls.each(attended, lengths))
    yield Property("visits", "no tile right of the diagonal", calls.each(visited))
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


def attended(trial):
    lengths, expected = trial.case.expected
    got = trial.returned[0]
    if not alike(got, expected):
        raise Wrong(f"{first_difference('out', got, expected)}.\n{cause(lengths, got)}")


def cause(lengths, got):
    q, k, v = lengths.tensors()
    for words, wrong in mistaken(q, k, v, lengths.tile).items():
        if alike(got, wrong, nan=True):
            return words
    first = int((~torch.isclose(got, naive(q, k, v), rtol=1e-4, atol=1e-5)).any(1).nonzero()[0])
    if 0 < lengths.queries // lengths.tile * lengths.tile <= first:
        return "Only the last tile of queries is wrong, which is short"
    p = first + lengths.keys - lengths.queries
    return f"Query {first} is the first that is wrong. It stands at position {p}, and sees the keys 0 to {p}"


def mistaken(q, k, v, tile):
    """words -> what it gives."""
    return {
        "The rescaling is forgotten: when a tile brings a larger maximum, what was added up before counts from the old "
        "one. Total and output, both, are multiplied by exp(old - new)": tiled(q, k, v, tile, output=False),
        "total is not rescaled: when a tile brings a larger maximum, it counts from the old one": tiled(
            q, k, v, tile, total=False
        ),
        "Neither total nor output is rescaled: when a tile brings a larger maximum, they count from the old one": tiled(
            q, k, v, tile, total=False, output=False
        ),
        "A tile of keys is left out: one whose first key stands where the last query of the tile stands is seen by "
        "that query": tiled(q, k, v, tile, short=1),
        "The mask is off by one: a query sees the key after itself": naive(q, k, v, 1),
        "The mask is off by one: a query does not see itself": naive(q, k, v, -1),
        "No key is masked": naive(q, k, v, len(q)),
    }


def tiled(q, k, v, tile, short=0, **mistakes):
    """Row by row of tiles, of which the last ``short`` positions are not visited."""
    offset = len(k) - len(q)
    parts = []
    for first in range(0, len(q), tile):
        queries, start = q[first : first + tile], first + offset
        seen = min(len(k), start + len(queries)) - short
        parts.append(row(queries, k, v, start, tile, until=max(0, seen), **mistakes)[0])
    return torch.cat(parts)


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


def visited(trial):
    lengths, _ = trial.case.expected
    sizes = [min(lengths.tile, lengths.queries - first) for first in range(0, lengths.queries, lengths.tile)]
    pairs = sum(size * seen for size, seen in zip(sizes, lengths.visible))
    why = "A tile of keys that begins after the last query of its tile is seen by none of them"
    visits(trial, pairs, lengths.tile**2, D + E, why, of="pairs of a query and a key")


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
        "values": "causal attention, with as many queries as keys, with fewer, with more",
        "nothing": "zeros for a query that sees no key, no NaN",
        "visits": "no tile right of the diagonal",
        "memory": "a tile of scores at a time, also with 512 keys",
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
