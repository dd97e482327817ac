"""Flash attention forward, for one tile of queries: a row of tiles, up to the diagonal."""

import math

import torch

from ...alone import Calls
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import about
from ...verdict import Property
from .compare import right, tensors, untouched_arguments
from .own_work import own_work
from .row_tiles import CASES, E
from .rows import mistaken
from .tile_costs import holds_tiles, products, visits

NAMES = ("out", "lse")
TILES = 8  # of scores and output: what may be held


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
