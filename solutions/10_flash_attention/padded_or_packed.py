"""What sequences of different lengths cost, padded to the longest or laid end to end: tiles, and bytes."""

import math

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

CASES = [
    ([8, 8], 4, 16),
    ([12, 4, 8], 4, 16),
    ([512, 96, 40, 200, 64, 24, 72, 16], 64, 64),
    ([5, 3, 9, 1, 6], 4, 8),
    ([1, 1, 1, 1, 1, 1], 4, 8),
    ([30], 8, 32),
    ([7, 50, 2], 16, 128),
]


def test_cases():
    for lengths, tile, d in CASES:
        tokens = ", ".join(map(str, lengths))
        yield alone(
            lambda each=(lengths, tile, d): (list(each[0]), *each[1:]), f"{tokens} tokens, tiles of {tile}, d={d}"
        )


TILES = "last - start // tile + 1"
TRIANGLES, SQUARES, KEPT = "n * (n + 1) // 2", "4 * 2 * len(lengths) * longest**2", "2 * 4 * d + 4"
DOWN = "The last tile may be short, and is visited, too: round up"


class Predicted(Part):
    """What is right is not told."""

    def __init__(self, name, holds, *variants):
        super().__init__(name, name, holds, tell=False, variants=variants)


@exercise(
    title="Padded or packed",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", BY_HAND, SOLVED),
        Predicted(
            "padded",
            "the tiles that are visited if all sequences are padded to the longest",
            (DOWN, "math.ceil(longest / tile)", "longest // tile"),
            ("The diagonal's tiles are visited, too: n (n + 1) / 2", TRIANGLES, "n * (n - 1) // 2"),
            ("This is one sequence: there are len(lengths)", "len(lengths) * (n", "(n"),
            (
                "These are the tiles of the sequences as they are. Padded, each is as long as the longest",
                "len(lengths) * (n * (n + 1) // 2)",
                "sum(-(-each // tile) * (-(-each // tile) + 1) // 2 for each in lengths)",
            ),
        ),
        Predicted(
            "packed",
            "the same, if they are laid end to end; with 8 and 8 tokens in tiles of 4: 6",
            (DOWN, "range(0, tokens, tile)", "range(0, tokens - tile + 1, tile)"),
            ("The tile on the diagonal is visited, too", TILES, TILES.removesuffix(" + 1")),
        ),
        Predicted(
            "moved",
            "the bytes of scores and weights that three kernels move, forward, padded",
            (
                "Three kernels write and read whole squares: the mask only hides, and spares no byte",
                "longest**2",
                "(longest * (longest + 1) // 2)",
            ),
            ("Scores and weights are in 16 bits: 2 bytes a number", SQUARES, SQUARES.replace("2", "4", 1)),
            (
                "Four squares are moved: scores are written and read, and so are weights",
                SQUARES,
                SQUARES.replace("4", "3", 1),
            ),
            (
                "Scores and weights have a number for each query and key: their squares have no d",
                "longest**2",
                "longest**2 * d",
            ),
            ("This is one sequence: there are len(lengths)", " * len(lengths) * longest", " * longest"),
            (
                "The square of all tokens together is that of no kernel: each sequence has one, of the longest",
                "len(lengths) * longest**2",
                "tokens**2",
            ),
        ),
        Predicted(
            "kept",
            "the bytes that flash attention keeps from forward to backward, packed",
            (
                "These are the tokens of the padded batch: packed, there are sum(lengths)",
                "kept = tokens",
                "kept = longest * len(lengths)",
            ),
            ("The log-sum-exp is kept, too: 4 bytes for each query", KEPT, "2 * 4 * d"),
            ("Vectors are in 16 bits: 2 bytes a number", KEPT, "4 * 4 * d + 4"),
            ("Maximum and total are one number when a row is done: the log-sum-exp", KEPT, "2 * 4 * d + 8"),
            ("These are the tokens of the longest sequence alone", "kept = tokens", "kept = longest"),
        ),
    ],
    mistakes=[
        mistake(
            "A causal mask leaves half of the square and the diagonal: n (n + 1) / 2 tiles, where n is rounded up",
            "n * (n + 1) // 2",
            "n * n",
        ),
        mistake(
            "Each sequence has its own tiles here. Tiles begin at multiples of `tile` in the whole row, so one may "
            "hold two sequences, and a sequence may begin inside of one",
            "packed += " + TILES,
            "packed = sum(math.ceil(each / tile) * (math.ceil(each / tile) + 1) // 2 for each in lengths)",
        ),
        mistake(
            "This is the causal mask of the whole row: a tile of queries needs no keys before the sequence of its "
            "first query",
            TILES,
            "last + 1",
        ),
        mistake(
            "A tile of queries begins at the sequence of its first query, not at that of its last",
            "if each <= first",
            "if each < first + tile",
        ),
        mistake(
            "It is half of what is right. Scores are written and read, and so are weights: four squares, of 2 bytes a "
            "number",
            "4 * 2 * len(lengths)",
            "2 * 2 * len(lengths)",
        ),
        mistake(
            "Padded, each square is as large as that of the longest sequence",
            "len(lengths) * longest**2",
            "sum(each**2 for each in lengths)",
        ),
        mistake("The log-sum-exp is kept in 32 bits: 4 bytes for each query", "2 * 4 * d + 4", "2 * 4 * d + 2"),
        mistake("q, k, v and the output are kept: backward computes delta from the output", "2 * 4 * d", "2 * 3 * d"),
    ],
    hints=[
        "Padded: n = ceil(longest / tile), the same triangle for each sequence. Packed: one row of sum(lengths) "
        "tokens, and ceil(sum / tile) tiles of queries.",
        "Where does the sequence of the first query of a tile begin? From that key's tile on, up to its own on the "
        "diagonal, tiles are visited.",
        "Three kernels write and read a square of scores, then one of weights, in 2 bytes a number, for each sequence.",
        "Flash attention keeps four vectors of d numbers for each token, in 2 bytes, and one number of 4 bytes.",
    ],
    why="Padding costs the square of the longest sequence for every other one. That is why training code packs "
    "sequences and passes cu_seqlens, and why a mask that only hides the padding saves nothing.",
)
def padded_or_packed(lengths, tile, d):
    """Predict what causal attention of one head costs for sequences of different lengths, padded or packed.

    ``lengths`` are their tokens. Tiles have ``tile`` queries and as many keys; the last may be short. Packed, the
    sequences are laid end to end in one row, tiles begin at multiples of ``tile`` in this row, and a tile is visited if
    it holds a key between the first of the sequence of the tile's first query and the tile's last query. Vectors have d
    numbers; they, scores and weights are in 16 bits, the log-sum-exp is in 32.

    Return {"padded": ..., "packed": ..., "moved": ..., "kept": ...}: the tiles that are visited, padded to the longest,
    and packed; the bytes of scores and weights that three kernels move in a forward pass, padded; and the bytes that
    flash attention keeps for backward, packed.
    """
    # ? Padded: how many tiles has one sequence?
    # ? Packed: for each tile of queries, from which tile of keys to which?
    # ? How often is a square moved? What is kept for each token?
    longest, tokens = max(lengths), sum(lengths)
    n = math.ceil(longest / tile)
    padded = len(lengths) * (n * (n + 1) // 2)
    starts = [sum(lengths[:count]) for count in range(len(lengths))]
    packed = 0
    for last, first in enumerate(range(0, tokens, tile)):
        start = max(each for each in starts if each <= first)
        packed += last - start // tile + 1
    moved = 4 * 2 * len(lengths) * longest**2
    kept = tokens * (2 * 4 * d + 4)
    return {"padded": padded, "packed": packed, "moved": moved, "kept": kept}
