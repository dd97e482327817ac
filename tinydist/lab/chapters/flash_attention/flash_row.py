"""Flash attention forward, for one tile of queries: a row of tiles, up to the diagonal."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...verdict import Property
from .compare import right, tensors, untouched_arguments
from .own_work import own_work
from .rows import mistaken, row
from .tile_costs import Tiled, holds_tiles, products, visits

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
    change: Callable = lambda q, k, v, tiles: None  # of what is given
    unlike: str = ""  # said where nothing else explains what came
    rtol: float = 1e-4

    @property
    def visible(self):
        """The first key that no query of the row needs to have in a tile."""
        seen = min(self.keys, self.start + self.queries)
        return min(self.keys, math.ceil(seen / self.tile) * self.tile)

    @property
    def work(self):
        """Of a right answer."""
        seen = sum(min(self.keys, self.start + i + 1) for i in range(self.queries))
        count = math.ceil(self.visible / self.tile)
        return Tiled(seen, self.queries * self.visible, count, self.tile, D + E, products=2)

    def input(self):
        generator = torch.Generator().manual_seed(1)
        q, k, v = (
            torch.randn(n, width, generator=generator)
            for n, width in ((self.queries, D), (self.keys, D), (self.keys, E))
        )
        q *= 2 * self.size
        self.change(q, k, v, self)
        expected = row(q, k.nan_to_num(), v, self.start, self.tile)
        queries = f"{self.queries} queries from position {self.start}, {self.keys} keys, tiles of {self.tile} keys"
        given = q, k, v, self.start, self.tile
        return input_of(partial(copied, given), f"{queries} ({self.about})", (self, *expected))


def low(q, k, v, tiles):
    """All scores are near -2048, and exact in float32; the log-sum-exp is to 1e-4."""
    for each in (q, k):
        each.copy_((4 * each).round() / 4)
    q[:, 0], k[:, 0] = -64, 64


def loud(q, k, v, tiles):
    """For the first query, the key after its own has a score of 400."""
    q[:, 0], k[tiles.start + 1, 0] = 0, 100
    q[0, 0] = 8


def poisoned(q, k, v, tiles):
    """NaN where nothing need be read."""
    k[tiles.visible :] = v[tiles.visible :] = math.nan


def spoiled(q, k, v, tiles):
    v[0, 0] = math.nan


LOW = (
    "Here exp underflowed: less than -104 gives 0. The number subtracted must be the maximum of the scores itself, "
    "wherever that is finite"
)
LOUD = "Mask the scores before the maximum: a hidden key has decided the unit, or inf times 0 has given NaN"
CASES = (
    Tiles("one tile", 4, 0, 4, 4),
    Tiles("below the diagonal and on it", 4, 8, 12, 4),
    Tiles("the last query at the start of a tile", 3, 6, 12, 4),
    Tiles("more queries than keys of a tile", 7, 5, 12, 3),
    Tiles("fewer queries than keys of a tile", 2, 5, 15, 5),
    Tiles("a short last tile", 2, 13, 15, 4),
    Tiles("one query, tiles of one key", 1, 3, 4, 1),
    Tiles("a tile longer than the keys", 3, 0, 3, 8),
    Tiles("large scores", 1, 11, 12, 4, size=100.0),
    Tiles("low scores, near -2048", 4, 8, 12, 4, change=low, unlike=LOW, rtol=1e-3),
    Tiles("a hidden key with a score of 400", 4, 4, 8, 4, change=loud, unlike=LOUD),
    Tiles("many keys", 8, 152, 160, 8),
    Tiles("NaN in value 0", 4, 4, 8, 4, change=spoiled),
    Tiles("NaN right of the diagonal", 4, 4, 40, 4, change=poisoned),
)


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls = Calls(watched, [tiles.input() for tiles in CASES])
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("runs", "the output [t, e] and the log-sum-exp [t] come back", lambda: came_back(calls))
    yield Property("one tile", "scores, mask, softmax, log-sum-exp", calls.each(attended, about("one tile)")))
    yield Property("rescaling", "a new maximum changes the unit", calls.each(attended, about("below the")))
    yield Property("diagonal", "wherever it crosses a tile", calls.each(attended, about("of a tile)")))
    yield Property("lengths", "short tiles, of one key, longer than all; 20 of them", calls.each(attended, lengths))
    yield Property("large", "scores of some hundreds, and of -2048", calls.each(attended, about("scores")))
    yield Property("hidden", "a key that is not seen has no say", calls.each(attended, about("hidden")))
    yield Property("NaN", "stays where it is seen, in a value", calls.each(honest, about("in value 0")))
    yield Property("reads", "no tile right of the diagonal", calls.each(unread, about("right of")))
    yield Property("visits", "each tile once, by two products", calls.each(visited))
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
    untouched_arguments(trial, "qkv")


def honest(trial):
    out, _ = trial.returned[0]
    if not out[:, 0].isnan().all():
        raise Wrong(
            f"out[0, 0] is {out[0, 0].item():.4g}, where NaN is right: value 0, which every query sees, has NaN there. "
            "What hides it (nan_to_num?) hides from its reader that the model has diverged"
        )


def unread(trial):
    tiles = trial.case.expected[0]
    if any(each.isnan().any() for each in trial.returned[0]):
        raise Wrong(
            f"out is NaN. Here the keys and values from {tiles.visible} on hold NaN: their tiles are right of the "
            f"diagonal, and need not be read; you do, and 0 times NaN is NaN. The last query stands at "
            f"{tiles.start + tiles.queries - 1}: no query sees a tile that begins after it"
        )


def visited(trial):
    visits(trial, trial.case.expected[0].work)


def attended(trial):
    tiles, *expected = trial.case.expected
    q, k, v, *_ = trial.case.arguments(0)
    wrong = None
    for place, name in enumerate(NAMES):
        got = trial.returned[0][place]

        def suspects(place=place):
            nonlocal wrong
            wrong = wrong or mistaken(q, k, v, tiles.start, tiles.tile)
            return {words: pair[place] for words, pair in wrong.items()}

        right(name, got, expected[place], suspects, unknown(trial, got), tiles.rtol)


def unknown(trial, got):
    tiles = trial.case.expected[0]
    if not products(trial):
        return (
            f"No product of matrices was seen: is no tile visited? Keys {tiles.start} to "
            f"{tiles.start + tiles.queries - 1}, where the queries stand, are seen, too"
        )
    if tiles.unlike:
        return tiles.unlike
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
        "of some hundreds, and of -2048; a hidden key with a large one. NaN in a value that is seen comes out again",
        "visits": "two products of matrices for each tile of `tile` keys up to the diagonal, and no other: NaN behind "
        "it does no harm",
        "memory": "8 tiles of scores, output and one number a query, with 160 keys: 3,072 bytes, where all scores "
        "have 5,120",
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
