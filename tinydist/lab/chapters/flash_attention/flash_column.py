"""Flash attention backward, for one tile of keys and values: a column of tiles, from the diagonal on."""

import torch

from ...alone import Calls
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import about
from ...verdict import Property
from .column_tiles import CASES, D, E
from .columns import mistaken
from .compare import right, tensors, untouched_arguments
from .own_work import own_work
from .tile_costs import holds_tiles, visits

NAMES = ("dk", "dv")
TILES = 8  # of scores and of both gradients: what may be held


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls = Calls(watched, [tiles.input() for tiles in CASES])
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("runs", "the gradients dk [s, d] and dv [s, e] come back", lambda: came_back(calls))
    yield Property("dv", "of one tile: weights^T dout", calls.each(gradient("dv"), about("one tile)")))
    yield Property("dk", "of one tile: dscores^T q / sqrt(d)", calls.each(gradient("dk"), about("one tile)")))
    yield Property("sums", "over tiles of queries, with the weights of all keys", calls.each(both, about("square")))
    yield Property("lengths", "short tiles, of one query, longer than all; 16 of them", calls.each(both, lengths))
    yield Property("hidden", "a key that is not seen has no say", calls.each(both, about("hidden")))
    yield Property("reads", "no tile of queries before the keys", calls.each(unread, about("above")))
    yield Property("visits", "each tile once, by four products", calls.each(visited))
    yield Property("memory", "a tile of weights at a time", calls.each(held, about("many")))


def lengths(case):
    return any(words in case.about for words in ("more", "fewer", "short", "one key", "longer", "many"))


def came_back(calls):
    calls.end()
    calls.each(form)()


def form(trial):
    tiles = trial.case.expected[0]
    tensors(trial, NAMES, [(tiles.keys, D), (tiles.keys, E)])
    untouched_arguments(trial, ("k", "v", "q", "dout", "lse", "delta"))


def unread(trial):
    tiles = trial.case.expected[0]
    if any(each.isnan().any() for each in trial.returned[0]):
        raise Wrong(
            f"a gradient is NaN. Here q, dout, lse and delta hold NaN up to query {tiles.begin - 1}: those tiles are "
            "above the diagonal, and need not be read; you do, and 0 times NaN is NaN. The first key stands at "
            f"{tiles.start}: a tile of queries that ends before it sees none"
        )


def visited(trial):
    visits(trial, trial.case.expected[0].work)


def finite(trial):
    """What it was given, with zeros where nothing should be read."""
    *given, start, tile = trial.case.arguments(0)
    return (*(each.nan_to_num() for each in given), start, tile)


def gradient(name):
    def judge(trial):
        place = NAMES.index(name)
        got, expected = trial.returned[0][place], trial.case.expected[1 + place]

        def suspects():
            return {words: pair[place] for words, pair in mistaken(*finite(trial)).items()}

        right(name, got, expected, suspects, unknown(trial, got))

    return judge


def unknown(trial, got):
    if not got.any():
        return (
            "it is all zeros: is nothing added to it, or is every key masked? Query i of a tile stands at first + i, "
            "key i at start + i"
        )
    if trial.case.expected[0].loud:
        return "Mask the scores before exp, with -inf: a hidden key has the largest score here, and inf times 0 is NaN"
    if got.isinf().any() or got.isnan().any():
        return "The weights are exp(scores - lse), at most 1; a masked score is -inf, and its weight 0"
    return ""


def both(trial):
    for name in reversed(NAMES):
        gradient(name)(trial)


def held(trial):
    tiles = trial.case.expected[0]
    numbers = tiles.keys * (tiles.tile + D + E)
    holds_tiles(trial, TILES * numbers, tiles.keys * (tiles.queries - tiles.begin))


@exercise(
    chapter="10_flash_attention",
    title="One column of tiles: the backward pass",
    minutes=30,
    difficulty=4,
    targets={
        "values": "the gradients of causal attention; tiles that are short, of one query, or longer than all queries; "
        "a hidden key with a large score",
        "visits": "four products of matrices for each tile of `tile` queries from the diagonal on, and no other",
        "memory": "8 tiles of weights and of both gradients, with 128 queries: 3,840 bytes, where all weights have "
        "4,096",
    },
    hints=[
        "Forward first, for one tile: the scores as before, and the weights without any maximum or total. What is "
        "exp(score - lse)?",
        "out = weights v gives dv = weights^T dout and dweights = dout v^T. Softmax gives "
        "dscores = weights * (dweights - delta), with one delta a query.",
        "scores = q k^T / sqrt(d), so dk = dscores^T q / sqrt(d). lse and delta are [T]: [:, None] makes them a "
        "column, one number for each query of the tile.",
        "Queries before the first key see none of the tile: begin at the tile of queries that has position start, "
        "start // tile * tile. dk and dv add up over the tiles.",
    ],
    why="The weights of a sequence of 16,384 tokens have a gigabyte a head in fp32; computing them again costs one "
    "product of matrices of five, and is faster than reading them. A column owns its keys, so dk and dv need no lock "
    "and no atomic addition; only dq is shared by the columns.",
    check=properties,
)
def flash_column(k, v, q, dout, lse, delta, start, tile):
    """The gradients of one tile of keys and values in causal attention, from weights that are computed again.

    k [s, d] and v [s, e] stand at positions from ``start`` on; q [T, d] at positions 0 to T - 1, and come in tiles of
    ``tile``, with the gradients of their outputs, dout [T, e], the log-sum-exp of their scores, lse [T], and
    delta [T], the sum of dout * out over the width. The scores are q k^T / sqrt(d). Return dk [s, d] and dv [s, e].
    Tiles of queries that see none of these keys are not visited.
    """
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    positions = torch.arange(start, start + len(k))
    for first in range(0, len(q), tile):  # from where?
        rows = slice(first, first + tile)
        # Scores and mask, as in the forward pass. The weights, without maximum or total?
        # What does this tile add to dv?
        # The gradient of the weights, of the scores, and what it adds to dk?
        raise NotImplementedError
    return dk, dv
