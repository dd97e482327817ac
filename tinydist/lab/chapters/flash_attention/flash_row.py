"""Flash attention forward, for one tile of queries: a row of tiles, up to the diagonal."""

import math
from dataclasses import dataclass
from functools import partial

import torch

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...verdict import Property
from .compare import right, tensors
from .own_work import own_work
from .rows import mistaken, row
from .tile_costs import holds_tiles, visits

NAMES = ("out", "lse")
D, E = 4, 3
TILES = 8  # of scores and output: what may be held


@dataclass(frozen=True)
class Tiles:
    about: str
    queries: int
    start: int
    keys: int
    tile: int
    size: float = 1.0
    poisoned: bool = False  # NaN where nothing need be read

    @property
    def visible(self):
        """The first key that no query of the row needs to have in a tile."""
        seen = min(self.keys, self.start + self.queries)
        return min(self.keys, math.ceil(seen / self.tile) * self.tile)

    def input(self):
        generator = torch.Generator().manual_seed(1)
        q, k, v = (
            torch.randn(n, width, generator=generator)
            for n, width in ((self.queries, D), (self.keys, D), (self.keys, E))
        )
        q *= 2 * self.size
        expected = row(q, k, v, self.start, self.tile)
        if self.poisoned:
            k[self.visible :] = v[self.visible :] = math.nan
        queries = f"{self.queries} queries from position {self.start}, {self.keys} keys, tiles of {self.tile} keys"
        given = q, k, v, self.start, self.tile
        return input_of(partial(copied, given), f"{queries} ({self.about})", (self, *expected))


CASES = (
    Tiles("one tile", 4, 0, 4, 4),
    Tiles("below the diagonal and on it", 4, 8, 12, 4),
    Tiles("the last query at the start of a tile", 3, 6, 12, 4),
    Tiles("more queries than keys of a tile", 7, 5, 12, 3),
    Tiles("fewer queries than keys of a tile", 2, 5, 15, 5),
    Tiles("a short last tile", 2, 13, 15, 4),
    Tiles("one query, tiles of one key", 1, 3, 4, 1),
    Tiles("a tile longer than the keys", 3, 0, 3, 8),
    Tiles("large scores", 4, 8, 12, 4, size=100.0),
    Tiles("many keys", 8, 504, 512, 8),
    Tiles("right of the diagonal", 4, 4, 40, 4, poisoned=True),
)


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls = Calls(watched, [tiles.input() for tiles in CASES])
    yield Property("runs", "the output [t, e] and the log-sum-exp [t] come back", lambda: came_back(calls))
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("one tile", "scores, mask, softmax, log-sum-exp", calls.each(attended, about("one tile)")))
    yield Property("rescaling", "a new maximum changes the unit", calls.each(attended, about("below the")))
    yield Property("diagonal", "wherever it crosses a tile", calls.each(attended, about("of a tile)")))
    yield Property("lengths", "short tiles, of one key, longer than all; 64 of them", calls.each(attended, lengths))
    yield Property("large", "scores of some hundreds", calls.each(attended, about("large")))
    yield Property("visits", "no tile right of the diagonal", calls.each(visited))
    yield Property("memory", "a tile of scores at a time", calls.each(held, about("many keys")))


def about(words):
    return lambda case: words in case.about


def lengths(case):
    return any(words in case.about for words in ("short", "one query", "longer", "many"))


def came_back(calls):
    calls.end()
    calls.each(form)()


def form(trial):
    tiles = trial.case.expected[0]
    tensors(trial, NAMES, [(tiles.queries, E), (tiles.queries,)])


def visited(trial):
    tiles = trial.case.expected[0]
    why = f"The last query stands at {tiles.start + tiles.queries - 1}: no query sees a tile that begins after it"
    visits(trial, tiles.visible, tiles.tile, tiles.queries * (D + E), why)
    if tiles.poisoned and trial.returned[0][0].isnan().any():
        raise Wrong(
            f"out is NaN. Here the keys and values from {tiles.visible} on hold NaN: their tiles are right of the "
            f"diagonal, and need not be read; you do, and 0 times NaN is NaN. {why}"
        )


def finite(trial):
    """Keys and values, with zeros where none should be read."""
    return (each.nan_to_num() for each in trial.case.arguments(0)[1:3])


def attended(trial):
    tiles, *expected = trial.case.expected
    q, *_ = trial.case.arguments(0)
    wrong = None
    for place, name in enumerate(NAMES):

        def suspects(place=place):
            nonlocal wrong
            wrong = wrong or mistaken(q, *finite(trial), tiles.start, tiles.tile)
            return {words: pair[place] for words, pair in wrong.items()}

        right(name, trial.returned[0][place], expected[place], suspects, unknown(trial.returned[0][place]))


def unknown(got):
    if got.isnan().any():
        return "NaN is inf - inf, inf / inf, or 0 / 0: is exp taken only of what is at most 0, a score minus a maximum?"
    return ""


def held(trial):
    tiles = trial.case.expected[0]
    numbers = tiles.queries * (tiles.tile + E + 1)
    holds_tiles(trial, TILES * numbers, tiles.queries * tiles.visible)


@exercise(
    chapter="10_flash_attention",
    title="One row of tiles: the forward pass",
    minutes=30,
    difficulty=3,
    targets={
        "values": "out and lse of causal attention; tiles that are short, of one key, or longer than all keys; scores "
        "of some hundreds",
        "visits": "products of matrices for the tiles up to the diagonal, and for no other: NaN behind it does no harm",
        "memory": "8 tiles of scores, output and one number a query, with 512 keys: 3,072 bytes, where all scores "
        "have 16,384",
    },
    hints=[
        "Write it for one tile first: scores, mask, maximum, weights, total, output. Then ask what of these must "
        "change when the next tile brings a larger maximum.",
        "Query i of the tile stands at start + i, key c of a tile at first + c. The last query stands at "
        "start + len(q) - 1: tiles that begin after it are not visited.",
        "With new = torch.maximum(maximum, scores.amax(1, keepdim=True)): total and output are multiplied by "
        "exp(maximum - new), and then the tile's weights, exp(scores - new), are added.",
        "At the end, out is output / total, and lse is maximum + log(total), each [t]: squeeze(1).",
    ],
    why="A row needs nothing of the other rows, so each goes to another processor: that is the order of loops of "
    "FlashAttention-2. The one number a query that is kept, lse, is all that the backward pass needs to compute the "
    "weights again.",
    check=properties,
)
def flash_row(q, k, v, start, tile):
    """Causal attention of one tile of queries, with the scores of one tile of keys at a time.

    q [t, d] stand at positions from ``start`` on; k [S, d] and v [S, e] at positions 0 to S - 1, and come in tiles of
    ``tile``. A query sees the keys up to its own position. The scores are q k^T / sqrt(d). Return the output [t, e] and
    the log-sum-exp of the scores of each query, [t]. Tiles that no query sees are not visited.
    """
    maximum = torch.full((len(q), 1), -math.inf)
    total, output = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    positions = torch.arange(start, start + len(q))[:, None]
    for first in range(0, len(k), tile):  # up to where?
        keys, values = k[first : first + tile], v[first : first + tile]
        # Scores, and which of them are masked? The new maximum? What was added up so far, in its unit; and this tile?
        raise NotImplementedError
    # Which two tensors come back?
    raise NotImplementedError
